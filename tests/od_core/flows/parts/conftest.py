"""Folders in memory where the machine has them: thousands of small files are synced, and no disk is tested here."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")  # noqa: S108  # a file system, below which a folder of its own is made


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, prefix="od-test-") as name:
        yield Path(name)
