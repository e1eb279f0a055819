"""No test sees what the checkout that it runs in has released."""

import os
import sqlite3
from pathlib import Path

import pytest

from tests.checkouts_own import VAR, refuse_what_was_touched

LEDGER = VAR / "no such folder" / "ledger.sqlite"


@pytest.mark.parametrize(
    "touch",
    [
        LEDGER.read_bytes,
        lambda: LEDGER.open("w"),
        lambda: os.listdir(LEDGER.parent),  # noqa: PTH208  # another event
        lambda: os.scandir(LEDGER.parent),
        LEDGER.mkdir,
        LEDGER.unlink,
        lambda: LEDGER.rename("elsewhere"),
        lambda: os.open(os.fsencode(LEDGER), os.O_RDONLY),
        lambda: sqlite3.connect(LEDGER),
        lambda: sqlite3.connect(f"file:{LEDGER}?mode=ro", uri=True),
        lambda: Path(os.path.relpath(LEDGER)).read_bytes(),
    ],
)
def test_a_test_that_touches_what_the_checkout_has_released_fails(touch):
    with pytest.raises((OSError, sqlite3.OperationalError)):
        touch()
    with pytest.raises(AssertionError, match="no such folder"):
        refuse_what_was_touched()
    refuse_what_was_touched()  # it is said once
