"""A ledger, a domain and a release in a folder of their own."""

from pathlib import Path

import pytest

from od_core import Ledger, ReleaseKey
from tests.od_core.ledger.ledger_rows import domain, ledger_at

KEY = ReleaseKey("commuters", "2001-06")


@pytest.fixture
def key() -> ReleaseKey:
    return KEY


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger with the domain declared under a cap of 1, in PostgreSQL where a test uses that engine."""
    ledger = ledger_at(tmp_path / "ledger.sqlite")
    ledger.declare(domain(1))
    return ledger
