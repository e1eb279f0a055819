"""A ledger that a process may read and not write: all is read, nothing is charged, no file is left behind."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from od_core import Ledger, OdError, PrivacyDomain, ReleaseKey
from od_core.ledger import chain
from tests.od_core.ledger.ledger_rows import domain, rows, small_plan, try_release
from tests.privileges import without_rights_of_root

KEY = ReleaseKey("commuters", "2001-06")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may enter, with a ledger that no process has open."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        ledger = Ledger(folder / "ledger.sqlite")
        ledger.declare(domain(1))
        ledger.reserve(KEY, "commuters", small_plan())
        (folder / "confidential").chmod(0o755)
        (folder / "confidential" / "ledger.head").chmod(0o644)
        yield folder


def assert_read_only(path: Path, entries: int, declared: PrivacyDomain) -> None:
    """Everything is read, a trial is answered, and each call that adds an entry is refused with the owner's name."""
    files = sorted(path.parent.iterdir())
    with without_rights_of_root():
        reader = Ledger(path, whole=False)
        with reader.keep_open():
            assert reader.verify() == entries
        assert reader.list_level_kinds(KEY) == ["RESERVED"] * 4
        try_release(reader, KEY, declared, small_plan())
        with pytest.raises(OdError, match="OD-LEDGER-CAP"):
            try_release(reader, ReleaseKey("commuters", "2001-06", 2), declared, small_plan(2))
        for add in (
            lambda: reader.start_draw(KEY, 1),
            lambda: reader.declare(domain(3, "still more")),
            lambda: reader.reserve(ReleaseKey("commuters", "2001-07"), "commuters", small_plan()),
            lambda: Ledger(path),
        ):
            with pytest.raises(OdError, match=r"OD-LEDGER-UNAVAILABLE: .*belongs to .* with mode .*next: run it as"):
                add()
    assert sorted(path.parent.iterdir()) == files
    assert len(rows(path)) == entries


def test_a_ledger_that_nobody_has_open(folder: Path) -> None:
    assert_read_only(folder / "ledger.sqlite", 6, domain(1))


def test_a_ledger_that_its_owner_has_open(folder: Path) -> None:
    """Its newest entries are in the log, which is read, too."""
    path = folder / "ledger.sqlite"
    with closing(chain.SqliteChain(path)._connect()) as owner:
        owner.execute("SELECT count(*) FROM entries").fetchall()  # the log stays as long as it is open
        Ledger(path).declare(domain(2, "more"))
        assert (folder / "ledger.sqlite-wal").stat().st_size > 0
        assert_read_only(path, 7, domain(2, "more"))


def test_a_log_without_its_index_is_not_left_out(folder: Path) -> None:
    """A backup of a stopped process may have one. SQLite cannot read it here, and without it entries would be lost."""
    path = folder / "ledger.sqlite"
    with closing(chain.SqliteChain(path)._connect()) as owner:
        owner.execute("SELECT count(*) FROM entries").fetchall()
        Ledger(path).declare(domain(2, "more"))
        (folder / "copy" / "confidential").mkdir(parents=True)
        for name in ("ledger.sqlite", "ledger.sqlite-wal", "confidential/ledger.head"):
            shutil.copy(folder / name, folder / "copy" / name)
    with without_rights_of_root(), pytest.raises(OdError, match=r"read a copy of ledger\.sqlite and ledger.sqlite-wal"):
        Ledger(folder / "copy" / "ledger.sqlite", whole=False)
    assert Ledger(folder / "copy" / "ledger.sqlite").verify() == 7


def test_a_ledger_that_is_written_to_meanwhile_is_not_taken_for_damaged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by another process. Here the reader may write, but is taken for one that may not."""
    monkeypatch.setattr(chain, "can_write", lambda _: False)
    reader = Ledger(folder / "ledger.sqlite", whole=False)
    with pytest.raises(OdError, match="written to while it was read"), reader.one_look():
        Ledger(folder / "ledger.sqlite").declare(domain(2, "more"))
    assert reader.verify() == 7
