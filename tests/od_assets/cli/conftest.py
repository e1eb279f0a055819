"""Two published months of flights, for commands that read or derive from what is published."""

import shutil
from pathlib import Path

import pytest

from tests.published_flights import KEYS

OLD, NEW = map(str, KEYS)


@pytest.fixture
def var(published_few, tmp_path, monkeypatch) -> Path:
    """Two published months, and nothing else: no ledger, no database, no confidential folder."""
    shutil.copytree(published_few / "releases", tmp_path / "alone" / "releases")
    monkeypatch.setenv("OD_VAR", str(tmp_path / "alone"))
    return tmp_path / "alone"
