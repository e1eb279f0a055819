"""A ledger that was edited, cut, locked, or asked by two at once."""

import hashlib
import json
import os
import sqlite3
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from od_core import Budget, Cap, OdError, PrivacyUnit, ReleaseKey, plan_release
from od_core.ledger import chain, postgres_chain
from od_core.ledger.chain import Entries
from od_core.ledger.ledger import Ledger, LevelState, hold_to_unit, make_chain
from od_core.privacy.domain import PrivacyDomain, list_unit_facts
from tests.forked import SERVER
from tests.od_core.ledger.ledger_rows import (
    GEOGRAPHY,
    TRIP,
    assert_chain,
    charged,
    domain,
    edit,
    finish,
    ledger_at,
    published,
    put_back,
    rows,
    saved,
    small_plan,
)
from tests.od_core.ledger.processes import reserve_at_once
from tests.postgres import server_of


@pytest.fixture
def history(ledger, key):
    return published(ledger, key)


def forged(row, **changes):
    """A statement that changes a row and hashes it anew, with its values."""
    row = {name: value for name, value in {**row, **changes}.items() if name != "hash"}
    digest = hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()
    assigned = ", ".join(f"{name} = ?" for name in (*changes, "hash"))
    return f"UPDATE entries SET {assigned} WHERE number = ?", *changes.values(), digest, row["number"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET rho = '0' WHERE kind = 'RESERVED'",
        "UPDATE entries SET rowid = rowid + 100",
        "DELETE FROM entries WHERE kind = 'DRAWING'",
        "DELETE FROM entries",
    ],
)
def test_sqlite_itself_refuses_to_change_a_row(history, statement):
    before = rows(history)
    with closing(sqlite3.connect(history)) as connection, pytest.raises(sqlite3.IntegrityError, match="never"):
        connection.execute(statement)
    assert rows(history) == before


def test_a_head_that_is_written_piece_by_piece_is_whole(ledger, key, monkeypatch):
    """The system may write a part of what it is given, and say so."""
    ledger.reserve(key, "commuters", small_plan())
    pwrite = chain.os.pwrite
    monkeypatch.setattr(chain.os, "pwrite", lambda file, data, place: pwrite(file, data[: (len(data) + 1) // 2], place))
    ledger.start_draw(key, 1)
    assert Ledger(ledger.path).count_draws(key, 1) == 1


def test_the_head_is_durable_before_an_entry_counts(ledger, key, monkeypatch):
    ledger.reserve(key, "commuters", small_plan())
    written = []
    monkeypatch.setattr(chain.os, "fdatasync", lambda file: written.append(os.pread(file, 12, 0).decode()))
    ledger.start_draw(key, 1)
    assert written == [f"{ledger.verify():012d}"]


EDITS = {
    "a charge made smaller": "UPDATE entries SET rho = '1/1000' WHERE number = 4",
    "a cap raised": """UPDATE entries SET content = replace(content, '"1"', '"9"') WHERE kind = 'CAP'""",
    "another time": "UPDATE entries SET at = '2001-07-01T00:00:00+00:00' WHERE number = 9",
    "the last row": "UPDATE entries SET period = '2001-07' WHERE kind = 'PUBLISHED'",
    "a hash": "UPDATE entries SET hash = replace(hash, substr(hash, 1, 1), 'x') WHERE number = 6",
    "a row removed": "DELETE FROM entries WHERE number = 5",
    "the first row removed": "DELETE FROM entries WHERE number = 1",
    "two rows exchanged": "UPDATE entries SET number = CASE number WHEN 5 THEN -5 WHEN 6 THEN 5 ELSE number END",
    "a row put in": "INSERT INTO entries SELECT 99, at, 'CAP', domain, period, release, level, draw, rho, epsilon,"
    " delta, content, previous, hash FROM entries WHERE kind = 'CAP'",
    "a row written over": "REPLACE INTO entries SELECT 4, at, kind, domain, period, release, level, draw, '1/1000',"
    " epsilon, delta, content, previous, hash FROM entries WHERE number = 4",
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_row_breaks_the_chain(history, name):
    """Whoever takes the guards away first is found out at the next use."""
    edit(history, EDITS[name])
    with pytest.raises(OdError, match="OD-LEDGER-BROKEN:"):
        Ledger(history)


def test_an_edited_row_with_a_hash_of_its_own_breaks_the_chain(history):
    """Whoever makes a charge smaller and hashes it anew would have to hash every row after it."""
    edit(history, *forged(rows(history)[3], rho="1/1000"))
    with pytest.raises(OdError, match="OD-LEDGER-BROKEN"):
        Ledger(history)


def test_a_newest_row_with_a_hash_of_its_own_is_not_the_one_that_the_head_names(history):
    """No row after it has to be hashed anew, so only the head knows."""
    edit(history, *forged(rows(history)[-1], at="2001-07-01T00:00:00+00:00"))
    assert refusal(history) == "OD-LEDGER-ROLLED-BACK"


def refusal(path: Path) -> str | None:
    """Code with which a ledger is refused; None where it is taken."""
    try:
        ledger_at(path)
    except OdError as error:
        return error.code
    return None


@pytest.mark.parametrize(("how", "flip"), [("another letter", 0x01), ("no UTF-8", 0x80)])
def test_a_changed_byte_of_a_row_is_found(history, how, flip):
    """One byte of each long value of each row, one at a time."""
    whole, generator = history.read_bytes(), np.random.default_rng(20010601)
    values = {str(value).encode() for row in rows(history) for value in row.values() if len(str(value)) > 3}
    places = [whole.index(value) + int(generator.integers(len(value))) for value in sorted(values) if value in whole]
    assert len(places) > 30
    for place in places:
        history.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
        assert refusal(history) == "OD-LEDGER-BROKEN", f"byte {place} of {whole[place - 9 : place + 9]!r}"
    history.write_bytes(whole)
    assert refusal(history) is None


def test_a_changed_byte_anywhere_is_found_or_changes_nothing(history):
    """In tables of contents, headers and empty space too."""
    whole, before, generator = history.read_bytes(), rows(history), np.random.default_rng(20010602)
    for place in (*range(0, 100, 7), *generator.integers(100, len(whole), 40)):
        history.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        assert refusal(history) is not None or rows(history) == before, f"byte {place}"


@pytest.mark.parametrize("damage", ["half", "one page", "cut in a page", "garbage", "garbage behind the header"])
def test_a_damaged_file_is_broken_and_left_alone(history, damage):
    whole = history.read_bytes()
    noise = np.random.default_rng(1).bytes(len(whole))
    damages = {"half": whole[: len(whole) // 2], "one page": whole[:4096], "cut in a page": whole[:-100]}
    damages |= {"garbage": noise, "garbage behind the header": whole[:100] + noise[100:]}
    damaged = damages[damage]
    history.write_bytes(damaged)
    with pytest.raises(OdError, match="OD-LEDGER-BROKEN:"):
        Ledger(history)
    assert history.read_bytes() == damaged


@pytest.mark.usefixtures("engine")
def test_a_ledger_older_than_its_newest_row_is_refused(ledger, key):
    """The copy before each transition, and any at the end, at first use and in an open ledger; the newest is taken."""
    copies = [b"", saved(ledger.path)]
    steps = [lambda: ledger.reserve(key, "commuters", small_plan())]
    for level in (1, 2, 3, 4):
        steps.append(lambda level=level: ledger.start_draw(key, level))
        steps.append(lambda level=level: finish(ledger, key, level, "0"))
    steps += [lambda: ledger.publish(key, "0" * 64), lambda: ledger.declare(domain(2, "census year"))]
    for step in steps:
        step()
        copies.append(saved(ledger.path))
        for older in copies[:-1] if step is steps[-1] else copies[-2:-1]:
            put_back(ledger.path, older)
            assert refusal(ledger.path) == "OD-LEDGER-ROLLED-BACK"
            with pytest.raises(OdError, match="OD-LEDGER-ROLLED-BACK"):
                ledger.balance("commuters", "2001-06")
        put_back(ledger.path, copies[-1])
        assert refusal(ledger.path) is None
    put_back(ledger.path, None)
    assert refusal(ledger.path) == "OD-LEDGER-ROLLED-BACK"
    with pytest.raises(OdError, match="OD-LEDGER-ROLLED-BACK"):
        ledger.reserve(ReleaseKey("commuters", "2001-07"), "commuters", small_plan())


@pytest.mark.usefixtures("engine")
def test_of_two_processes_one_wins(tmp_path, ledger):
    """A cap for one: exactly one wins. A cap for five of twenty: five, and the sum is the cap to the last digit."""
    ledger.declare(domain("0.1", "room for one"))
    with SERVER.Manager() as manager, ProcessPoolExecutor(2, mp_context=SERVER) as pool:
        for cap, wins in (("0.1", 1), ("0.6", 5)):
            start = manager.Barrier(2)
            tries = [range(1, 11), range(11, 21)] if wins > 1 else [range(31, 32), range(32, 33)]
            if wins > 1:
                ledger.declare(domain(cap, "room for five more"))
            results = [pool.submit(reserve_at_once, start, ledger.path, revisions) for revisions in tries]
            outcomes = sorted(outcome for result in results for outcome in result.result(timeout=300))
            tried = sum(map(len, tries))
            assert outcomes == ["OD-LEDGER-CAP"] * (tried - wins) + ["won"] * wins
            assert charged(ledger.path) == Fraction(cap)
            assert_chain(ledger.path)
    reserved = [row["release"] for row in rows(ledger.path) if row["kind"] == "RESERVED"]
    assert {reserved.count(release) for release in reserved} == {4}


def test_a_locked_ledger_is_waited_for_and_then_refused(ledger, key, monkeypatch):
    monkeypatch.setattr(chain, "WAIT_SECONDS", 0.3)
    ledger.reserve(key, "commuters", small_plan())
    before = rows(ledger.path)
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(OdError, match="OD-LEDGER-UNAVAILABLE:"):
            ledger.start_draw(key, 1)
        with pytest.raises(OdError, match="OD-LEDGER-UNAVAILABLE"):
            Ledger(ledger.path)
        holder.execute("ROLLBACK")
    assert rows(ledger.path) == before
    assert ledger.start_draw(key, 1) == 1


def test_a_file_damaged_under_an_open_ledger_is_named(ledger, key):
    """Also where the run keeps it open."""
    for kept in ledger.path.parent.glob("ledger.sqlite*"):
        kept.write_bytes(b"this is no database " * 400)
    with ledger.keep_open(), pytest.raises(OdError) as refused:
        ledger.reserve(key, "commuters", small_plan())
    assert refused.value.code == "OD-LEDGER-BROKEN"


def test_a_look_counts_the_entries_and_changes_nothing(history):
    before = {path: path.read_bytes() for path in history.parent.rglob("*") if path.is_file()}
    assert Ledger(history, whole=False).verify() == len(rows(history))
    assert {path: path.read_bytes() for path in history.parent.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", EDITS)
def test_a_reader_that_trusts_the_head_draws_nothing_from_an_edited_ledger(history, key, name):
    """It verifies from the newest entry on, and the whole chain before it adds its first one."""
    reader = Ledger(history, whole=False)
    edit(history, EDITS[name])
    for use in (
        lambda: reader.reserve(ReleaseKey("commuters", "2001-07"), "commuters", small_plan()),
        lambda: reader.start_draw(key, 1),
        lambda: Ledger(history, whole=False).publish(key, "0" * 64),
        reader.verify,
    ):
        with pytest.raises(OdError, match="OD-LEDGER-BROKEN"):
            use()


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("opens", [Ledger.one_look, Ledger.trial])
def test_a_look_and_a_trial_verify_what_follows_the_entry_of_the_head(ledger, key, opens):
    """A process that is killed before it writes the head leaves such an entry."""
    number, digest = [(row["number"], row["hash"]) for row in rows(published(ledger, key))][-2]
    (ledger.path.parent / "confidential" / "ledger.head").write_bytes(f"{number:012d} {digest}".encode())
    with opens(ledger):
        assert ledger.verify() == number + 1
    edit(ledger.path, EDITS["the last row"])
    with pytest.raises(OdError, match="OD-LEDGER-BROKEN"), opens(ledger):
        pass


@pytest.mark.usefixtures("engine")
def test_a_trial_is_not_refused_for_an_entry_that_another_process_adds_meanwhile(ledger, key, monkeypatch):
    """The head names that entry, and the copy does not have it."""
    ledger.reserve(key, "commuters", small_plan())
    other, copy = ledger_at(ledger.path), type(ledger._chain)._copy_into

    def copy_before_a_draw(self, memory):
        copy(self, memory)
        other.start_draw(key, 1)

    monkeypatch.setattr(type(ledger._chain), "_copy_into", copy_before_a_draw)
    with ledger.trial():
        assert ledger.find_level_state(key, 1) == LevelState("RESERVED", 1, None)
    assert ledger.find_level_state(key, 1) == LevelState("DRAWING", 1, None)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("name", ["a charge made smaller", "a cap raised", "another time", "a row removed"])
@pytest.mark.parametrize("kept", [True, False])
def test_an_open_ledger_sees_an_edit_when_a_release_begins(ledger, key, name, kept):
    """It verified these entries before, and nothing is charged after the edit; a loop may keep it open."""
    ledger.reserve(key, "commuters", small_plan())
    ledger.start_draw(key, 1)
    finish(ledger, key, 1, "1" * 64)
    with ledger.keep_open() if kept else nullcontext():
        ledger.start_draw(key, 2)
        edit(ledger.path, EDITS[name])
        edited = rows(ledger.path)
        for begins in (key, ReleaseKey("commuters", "2001-07")):
            with pytest.raises(OdError, match="OD-LEDGER-BROKEN"):
                ledger.reserve(begins, "commuters", small_plan())
    assert rows(ledger.path) == edited


def test_an_index_that_hides_a_charge_is_found(history):
    """The entries are whole, but what looks for them by their release would miss one."""
    with closing(sqlite3.connect(history, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        changed = "UPDATE sqlite_master SET sql = replace(sql, 'level, number)', 'draw, number)') WHERE type = 'index'"
        assert connection.execute(changed).rowcount
    with pytest.raises(OdError, match="OD-LEDGER-BROKEN"):
        Ledger(history)


@pytest.mark.representatives("*-user")
@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("unit", [TRIP, PrivacyUnit("user", column="user", max_trips=2)], ids=["trip", "user"])
def test_what_is_read_for_a_release_does_not_grow_with_the_ledger(ledger, monkeypatch, unit):
    """Entries that are read, and the instructions of SQLite, which counts the entries that it looks through, too.

    Only what concerns a whole data set or series looks through more entries of an index in a longer ledger.
    """
    read, instructions = [], []

    class Counting(Entries):
        def __init__(self, connection, *arguments, **named):
            super().__init__(connection, *arguments, **named)
            if server_of(ledger.path) is None:
                connection.set_progress_handler(lambda: instructions.append(1), 1)

        def _read(self, where, *values):
            found = super()._read(where, *values)
            read.extend(found)
            return found

    for module in (chain, postgres_chain):
        monkeypatch.setattr(module, "Entries", Counting)

    def counted(use):
        read.clear()
        instructions.clear()
        use()
        return len(read), len(instructions)

    plan, data_set = small_plan(unit=unit), f"panel_of_{unit.kind}"
    ledger.declare(PrivacyDomain(data_set, unit, Cap(rho=Fraction(100)), "decided by the board"))
    levels = [step.number for step in plan.charged_steps]

    def release(number):
        key = ReleaseKey("commuters", f"{2001 + number // 12}-{number % 12 + 1:02d}")
        whole = [
            counted(lambda: ledger.reserve(key, data_set, plan)),
            counted(lambda: ledger.balance(data_set, key.period)),
            counted(lambda: ledger.read_newest_entry(data_set)),
        ]
        own = [counted(lambda: ledger.read_declared_facts(data_set))]
        for level in levels:
            own.append(counted(lambda level=level: ledger.start_draw(key, level)))
            own.append(counted(lambda level=level: finish(ledger, key, level, "0")))
        own += [
            counted(lambda: ledger.publish(key, "0" * 64)),
            counted(lambda: ledger.record(key)),
            counted(lambda: ledger.list_changed_settings(key, data_set, plan)),
        ]
        return [entries for entries, _ in whole], own

    _, second, *others = [release(number) for number in range(5)]
    assert all(other == second for other in others)
    periods = [key.period for key in ledger.list_published_releases()]
    assert len(periods) == 5
    assert counted(lambda: ledger.find_balances(data_set, periods))[0] == 3  # the data set, twice, and its cap
    assert counted(lambda: ledger.list_published_releases(series="commuters"))[0] == 0
    assert counted(ledger.read_states)[0] == 0
    assert ledger.list_published_releases(series="commuter") == {}
    left = {period: ledger.balance(data_set, period).left for period in periods}
    assert left == {period: found.left for period, found in ledger.find_balances(data_set, periods).items()}
    assert {name: (state.kinds, state.rho, state.is_published) for name, state in ledger.read_states().items()} == {
        str(key): (["MEASURED"] * len(levels), plan.charge.as_rho, True) for key in ledger.list_published_releases()
    }


@pytest.mark.usefixtures("engine")
def test_a_ledger_of_a_later_version_is_refused(ledger, key):
    """What that version charged in its own kind of entries would not be counted."""
    ledger.reserve(key, "commuters", small_plan())
    with ledger._open_transaction() as entries:
        entries.append("POOLED", "commuters", key)
    for use in (ledger.verify, lambda: ledger_at(ledger.path)):
        with pytest.raises(OdError, match=r"OD-LEDGER-NEWER: .* POOLED"):
            use()


def test_a_look_makes_no_ledger(tmp_path):
    with pytest.raises(OdError, match="OD-LEDGER-UNAVAILABLE"), make_chain(tmp_path / "ledger.sqlite").open_read_only():
        pass
    assert not list(tmp_path.iterdir())


def test_a_file_without_entries_is_no_ledger_unless_a_head_names_one(tmp_path):
    """A process that is killed while it creates the ledger leaves such a file."""
    path, kept = tmp_path / "ledger.sqlite", tmp_path / "confidential" / "ledger.head"
    for statement in ("", "PRAGMA journal_mode = WAL"):
        path.unlink(missing_ok=True)
        path.touch()
        with closing(sqlite3.connect(path)) as begun:
            begun.execute(statement)
        assert not make_chain(path).exists()
        kept.unlink(missing_ok=True)
        Ledger(path, whole=False).declare(PrivacyDomain("survey", PrivacyUnit("trip"), Cap(rho=1), "a test"))
    put_back(path, b"")
    with pytest.raises(OdError, match="OD-LEDGER-ROLLED-BACK"):
        Ledger(path, whole=False)


def test_a_head_that_a_killed_process_did_not_write_is_written_before_the_next_entry(tmp_path):
    """Otherwise a power cut after that entry, which may be a charge, would leave a ledger that nobody can use."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.declare(PrivacyDomain("survey", PrivacyUnit("trip"), Cap(rho=Fraction(1)), "a test"))
    head = tmp_path / "confidential" / "ledger.head"
    written = head.read_bytes()
    head.unlink()
    with Ledger(tmp_path / "ledger.sqlite")._open_transaction():
        assert head.read_bytes() == written
    ledger.declare(PrivacyDomain("survey", PrivacyUnit("trip"), Cap(rho=Fraction(2)), "a new reason"))
    assert head.read_bytes() > written


def test_a_trial_within_a_trial_is_a_part_of_it(tmp_path):
    """It sees what was entered before it, and what it enters is seen after it; nothing of either is kept."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    domain = PrivacyDomain("a", PrivacyUnit("trip"), Cap(rho=Fraction(1)), "a test")
    with ledger.trial():
        ledger.declare(domain)
        with ledger.trial():
            assert ledger.find_balances("a", ["2001-01"])["2001-01"].left == 1
            ledger.declare(replace(domain, name="b"))
        assert ledger.find_balances("b", ["2001-01"])["2001-01"].left == 1
    for name in ("a", "b"):
        with pytest.raises(OdError, match="OD-DOMAIN-UNDECLARED"):
            ledger.find_balances(name, ["2001-01"])


def test_no_release_is_made_within_a_trial_or_a_look(tmp_path):
    """Its charge would be lost, and that of another thread would be, too, if a trial were not that of its thread."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    domain = PrivacyDomain("a", PrivacyUnit("trip"), Cap(rho=Fraction(1)), "a test")
    for within in (ledger.trial(), ledger.one_look()):
        with within, pytest.raises(OdError, match="keeps no charge"), ledger.lock_for_release():
            pass
    with ledger.one_look(), ThreadPoolExecutor(1) as other:
        other.submit(ledger.declare, domain).result()
        assert ledger.balances() == []
    with ledger.lock_for_release():
        assert ledger.read_declared_facts("a")["unit"] == "trip"


def test_a_cap_that_cannot_state_what_was_charged_is_refused(tmp_path):
    given = {"budget": Budget(epsilon=1, delta="1e-8"), "mechanism": "stability_histogram"}
    plan = plan_release(GEOGRAPHY, unit=PrivacyUnit("trip"), **given)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.declare(PrivacyDomain("a", plan.unit, Cap(epsilon=9, delta="1e-6"), "a test"))
    ledger.reserve(ReleaseKey("a", "2001-01"), "a", plan)
    before = ledger.balances()
    with pytest.raises(OdError, match="OD-LEDGER-CAP-KIND"):
        ledger.declare(PrivacyDomain("a", plan.unit, Cap(rho=5), "from now on in rho"))
    assert ledger.balances() == before


def test_a_pair_cap_that_a_data_set_declares_is_that_of_each_release():
    unit = PrivacyUnit("user_year", "unbounded", "user", 10, max_trips_year=20, max_trips_pair=1, id_pattern="[0-9]{3}")
    for declared, other in ((unit, replace(unit, max_trips_pair=None)), (replace(unit, max_trips_pair=None), unit)):
        hold_to_unit(declared, list_unit_facts(declared), "a")
        with pytest.raises(OdError, match="OD-DOMAIN-CONFLICT"):
            hold_to_unit(other, list_unit_facts(declared), "a")
