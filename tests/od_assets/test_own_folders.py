"""No test sees what the checkout that it runs in has released."""

from __future__ import annotations

import os
import pkgutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from od_assets.project import current_project
from tests import checkouts_own
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
def test_a_test_that_touches_what_the_checkout_has_released_fails(touch: Callable[[], object]) -> None:
    with pytest.raises((OSError, sqlite3.OperationalError)):
        touch()
    with pytest.raises(AssertionError, match="no such folder"):
        refuse_what_was_touched()
    refuse_what_was_touched()  # it is said once


def test_looking_for_packages_beside_var_is_no_use_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """But listing it is."""
    (tmp_path / "var").mkdir()
    monkeypatch.setattr(checkouts_own, "VAR", tmp_path / "var")
    assert [found.name for found in pkgutil.iter_modules([str(tmp_path)])] == []
    refuse_what_was_touched()
    os.listdir(tmp_path / "var")  # noqa: PTH208  # as pkgutil does
    with pytest.raises(AssertionError, match=r"os\.listdir"):
        refuse_what_was_touched()


def test_the_folder_of_what_is_written_is_the_tests_own(tmp_path: Path) -> None:
    assert current_project().var == tmp_path / "var"
    assert os.environ["DAGSTER_HOME"] == str(tmp_path / "var" / "dagster")
    current_project().var.mkdir()
    (current_project().var / "ledger.sqlite").touch()
    refuse_what_was_touched()
