"""Counters of users: at most M trips of a user in a year, in any order of counting, and through kills and replays."""

import os
import shutil
import stat
import traceback
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from od_core import Budget, OdError, ReleaseKey, release_flows
from od_core.errors import STAYS_CHARGED
from od_core.ledger import staged_files
from od_core.ledger.measurements import begin_release
from od_core.ledger.user_counters import UserCounters
from od_core.noise.table_sampler import TableNoise
from od_core.privacy.domain import compute_largest_rho
from tests.od_core.ledger.ledger_rows import rows
from tests.od_core.ledger.person_years import (
    COLUMNS,
    FEBRUARY,
    GEOGRAPHY,
    JANUARY,
    MARCH,
    REVISED,
    WALKERS,
    PersonYear,
    Trip,
    by_origin,
    forget_the_year,
    hashed,
    trips_of,
)
from tests.od_core.oracles.person_year import Record, Step, Year, breaches
from tests.od_core.oracles.person_year import Release as OracleRelease

pytestmark = pytest.mark.usefixtures("one_scratch_database")

CANARY = "qxcanary7"
USERS = ["ann", "bob", CANARY]
MANY = trips_of("ann", 5) + trips_of("bob", 1, zone=1) + trips_of(CANARY, 2, zone=2)
"""Five trips of one user, one of another, and two of a third."""


@pytest.fixture
def year(tmp_path: Path) -> PersonYear:
    return PersonYear(tmp_path, m=2, most=3)


def released(year: PersonYear, release_id: str, trips: list[Trip] = MANY, **changes: object):
    """A release of one call, whose noise is so narrow that it is 0."""
    frame = pd.DataFrame(trips, columns=COLUMNS, dtype="str")
    given_ = {"unit": year.unit, "budget": Budget(rho=10**4, delta="1e-8"), "noise": "table"} | changes
    return release_flows(frame, GEOGRAPHY, ledger=year.ledger, release_id=release_id, one_row_a_trip=True, **given_)  # type: ignore[arg-type]


MONTHS = ("2001-01", "2001-02", "2001-03")


@pytest.mark.representatives("sqlite-*")
@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(("engine", "order"), [("sqlite", (0, 1, 2)), ("postgresql", (2, 0, 1))], indirect=["engine"])
def test_a_user_has_at_most_m_trips_a_month_and_the_rest_of_the_year_is_used_up_in_the_order_of_counting(year, order):
    """A month that is counted later gets what is left; a release that was drawn is the same ever after."""
    first = {MONTHS[k]: released(year, f"commuters/{MONTHS[k]}/r1") for k in order}
    begun_at = [{"z0": 2, "z1": 1, "z2": 2}, {"z0": 1, "z1": 1, "z2": 1}, {"z1": 1}]
    assert [by_origin(release) for release in first.values()] == begun_at
    for month in MONTHS:
        again = released(year, f"commuters/{month}/r1")
        pd.testing.assert_frame_equal(again.measurements, first[month].measurements)
        pd.testing.assert_frame_equal(again.flows, first[month].flows)
    (balance,) = year.ledger.balances()
    assert balance.spent == compute_largest_rho([Fraction(10**4)] * 3, 2, 3) == Fraction(12_500)


def test_another_year_begins_afresh(year):
    for month in ("2001-11", "2001-12"):
        released(year, f"commuters/{month}/r1")
    assert by_origin(released(year, "commuters/2002-01/r1")) == {"z0": 2, "z1": 1, "z2": 2}
    assert by_origin(released(year, "commuters/2000-12/r1")) == {"z0": 2, "z1": 1, "z2": 2}
    assert by_origin(released(year, "commuters/2001-01/r1")) == {"z1": 1}


def test_counters_are_closed_and_name_nobody(year, tmp_path):
    umask = os.umask(0)
    try:
        year.finish(JANUARY, MANY)
    finally:
        os.umask(umask)
    root = tmp_path / "confidential" / "user-counters"
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*"))}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert [path for path in modes if path.is_file()] == [year.path(JANUARY)]
    assert CANARY.encode() not in year.path(JANUARY).read_bytes()
    table = pq.read_table(year.path(JANUARY))
    assert table.column_names == ["user_high", "user_low", "counted", "trips"]
    assert table.to_pandas().equals(table.to_pandas().sort_values(["user_high", "user_low"]).reset_index(drop=True))
    assert year.counted(JANUARY, USERS) == {"ann": 2, "bob": 1, CANARY: 2}


def test_a_user_of_whom_nothing_is_counted_has_a_row_with_the_trips(year):
    for key in (JANUARY, FEBRUARY, MARCH):
        year.finish(key, MANY)
    assert year.counted(MARCH, USERS) == {"ann": 0, "bob": 1, CANARY: 0}
    assert sorted(pq.read_table(year.path(MARCH))["trips"].to_pylist()) == sorted(Counter(t[0] for t in MANY).values())


def test_a_drawn_release_is_not_counted_from_changed_records(year, tmp_path):
    """Of other users, or of the same users between other zones."""
    year.finish(JANUARY, MANY)
    before = contents(tmp_path)
    for changed in (MANY[6:] + trips_of("cy", 2), MANY[4:], trips_of("ann", 5, 4) + MANY[5:]):
        with pytest.raises(OdError, match="OD-REPLAY-INPUT-CHANGED") as refused:
            year.count(JANUARY, changed)
        assert_says_nothing(refused.value, year)
    assert contents(tmp_path) == before
    year.count(JANUARY, MANY[::-1])
    with pytest.raises(OdError, match="OD-REPLAY-INPUT-CHANGED"):  # of whom nothing is counted any more
        year.count(JANUARY, MANY + trips_of("cy", 2))


def contents(folder: Path) -> dict[Path, bytes]:
    files = (path for path in (folder / "confidential").rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files}


def assert_says_nothing(error: BaseException, year: PersonYear) -> None:
    """One line, without a user id or the hash of one, and with a next step."""
    assert isinstance(error, OdError), error
    said = "".join(traceback.format_exception(error))
    assert "\n" not in str(error)
    assert "; next: " in str(error)
    for user in USERS:
        assert user not in error.message + error.next_step
    assert CANARY not in said
    for number in hashed(CANARY, year.confidential.read_or_make_key()):
        assert not any(form in said for form in (str(number), f"{number:x}"))


# Kills


def test_a_kill_between_counters_and_counts_draws_nothing(year, tmp_path):
    """The counts of an earlier attempt have trips that the new counters do not record, so they are refused."""
    year.count(JANUARY, MANY)
    year.killed(JANUARY, trips_of("cy", 1))
    before = rows(year.ledger.path)
    with pytest.raises(OdError, match=r"OD-YEAR-COUNTERS: .* were not written together") as refused:
        year.draw(JANUARY)
    assert_says_nothing(refused.value, year)
    assert refused.value.spent == "nothing was spent"
    assert rows(year.ledger.path) == before
    assert not list(tmp_path.rglob("noisy_*"))
    assert by_origin(year.finish(JANUARY, MANY)) == {"z0": 2, "z1": 1, "z2": 2}


def test_a_kill_before_the_first_counts_draws_nothing(year):
    year.saved[JANUARY] = year.killed(JANUARY, MANY)
    with pytest.raises(OdError, match="OD-YEAR-COUNTERS"):
        year.draw(JANUARY)
    assert rows(year.ledger.path)[-1]["kind"] == "CAP"
    year.finish(JANUARY, MANY)


class Killed(BaseException):
    """As the end of the process, which nothing handles."""


@pytest.mark.parametrize(("module", "name"), [(UserCounters, "store_or_compare"), (UserCounters, "hold_to_input")])
def test_one_call_that_dies_before_the_draw_is_made_again(year, monkeypatch, module, name):
    """The same trips are counted, and nothing is charged twice."""
    with monkeypatch.context() as patch:
        patch.setattr(module, name, dies)
        with pytest.raises(Killed):
            released(year, "commuters/2001-01/r1")
    with monkeypatch.context() as patch:
        write = staged_files.write_durably

        def dies_after(path, content):
            write(path, content)
            raise Killed

        patch.setattr(staged_files, "write_durably", dies_after)
        with pytest.raises(Killed):
            released(year, "commuters/2001-01/r1")
    assert by_origin(released(year, "commuters/2001-02/r1")) == {"z0": 1, "z1": 1, "z2": 1}
    assert by_origin(released(year, "commuters/2001-01/r1")) == {"z0": 2, "z1": 1, "z2": 2}
    assert by_origin(released(year, "commuters/2001-03/r1")) == {"z1": 1}


def dies(*_: object, **__: object) -> None:
    raise Killed


def test_a_lost_draw_keeps_its_counters(year, monkeypatch):
    """Somebody may have seen it, so its trips count for the year, and another count must find the same ones."""
    with monkeypatch.context() as patch:
        patch.setattr(TableNoise, "draw", dies)
        with pytest.raises(Killed):
            released(year, "commuters/2001-01/r1")
    for changed in (trips_of("bob", 1), MANY[4:]):
        with pytest.raises(OdError, match="OD-REPLAY-INPUT-CHANGED"):
            released(year, "commuters/2001-01/r1", changed)
    assert by_origin(released(year, "commuters/2001-02/r1")) == {"z0": 1, "z1": 1, "z2": 1}
    assert by_origin(released(year, "commuters/2001-01/r1")) == {"z0": 2, "z1": 1, "z2": 2}


# Lost and damaged counters


def remove(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path, *, at: int = 6) -> None:
    """Change the pages of the first column, and not the footer."""
    content = bytearray(path.read_bytes())
    content[at : at + 24] = bytes(byte ^ 0x5A for byte in content[at : at + 24])
    path.write_bytes(content)


def rewrite(path: Path, change) -> None:
    table = pq.read_table(path)
    pq.write_table(change(table), path)


def lower(table):
    counted = table["counted"].to_pandas().clip(upper=1)
    return table.set_column(2, table.schema.field(2), pa.array(counted, pa.int32()))


def of_others(table):
    return table.set_column(0, table.schema.field(0), [[value + 1 for value in table["user_high"].to_pylist()]])


DAMAGES = {
    "removed": remove,
    "cut": cut,
    "emptied": empty,
    "changed bytes": flip,
    "changed bytes of a page header": partial(flip, at=4),
    "fewer trips": partial(rewrite, change=lower),
    "other users": partial(rewrite, change=of_others),
    "no rows": partial(rewrite, change=lambda table: table.slice(0, 0)),
    "another key": partial(rewrite, change=lambda table: table.replace_schema_metadata({"key": "0123456789abcdef"})),
}


@pytest.fixture(scope="module")
def one_month_drawn(tmp_path_factory: pytest.TempPathFactory) -> PersonYear:
    """January is drawn, and February is counted. Not to be changed."""
    year = PersonYear(tmp_path_factory.mktemp("one_month_drawn"), m=2, most=3)
    year.finish(JANUARY, MANY)
    year.count(FEBRUARY, trips_of("bob", 1))
    return year


@pytest.mark.representatives("removed", "changed bytes", "other users")
@pytest.mark.parametrize("how", DAMAGES)
def test_lost_counters_of_a_drawn_release_stop_the_year(one_month_drawn, tmp_path, how):
    """Neither a later month, nor a revision, nor the release itself is counted, and nothing is drawn or written."""
    shutil.copytree(one_month_drawn.folder, tmp_path, dirs_exist_ok=True)
    year = replace(one_month_drawn, folder=tmp_path, saved={**one_month_drawn.saved}, drawn=[])
    DAMAGES[how](year.path(JANUARY))
    before, ledger = contents(tmp_path), rows(year.ledger.path)
    attempts = [partial(year.count, MARCH, MANY), partial(year.draw, FEBRUARY)]
    if how != "another key":  # its content is whole, and these count nothing of it
        attempts += [partial(year.count, key, MANY) for key in (JANUARY, WALKERS)]
    for attempt in attempts:
        with pytest.raises(OdError, match="OD-YEAR-COUNTERS-LOST:") as refused:
            attempt()
        assert "restore" in refused.value.next_step
        assert ("another key" in refused.value.message) == (how == "another key")
        is_charged = attempt.args[0] == JANUARY  # nothing is reserved for the others
        assert refused.value.spent == (STAYS_CHARGED if is_charged else "nothing was spent")
        assert_says_nothing(refused.value, year)
        assert contents(tmp_path) == before
    assert rows(year.ledger.path) == ledger
    year.finish(ReleaseKey("commuters", "2002-01"), MANY)  # another year is not concerned


@pytest.mark.representatives("cut", "fewer trips", "another key")
@pytest.mark.parametrize("how", [name for name in DAMAGES if name != "removed"])
def test_damaged_counters_of_an_undrawn_release_are_told_in_one_line(year, how):
    """By a release of another period, and by another one of the same. They are written anew by the next count."""
    year.count(JANUARY, MANY)
    DAMAGES[how](year.path(JANUARY))
    code = {"another key": "OD-YEAR-COUNTERS-LOST"}.get(how, "OD-YEAR-COUNTERS")
    if how in ("cut", "emptied", "changed bytes", "changed bytes of a page header", "another key"):
        for key in (FEBRUARY, WALKERS):
            with pytest.raises(OdError, match=f"{code}:") as refused:
                year.count(key, MANY)
            assert_says_nothing(refused.value, year)
    with pytest.raises(OdError, match="OD-YEAR-COUNTERS") as refused:
        year.draw(JANUARY)
    assert_says_nothing(refused.value, year)
    assert rows(year.ledger.path)[-1]["kind"] == "CAP"
    assert by_origin(year.finish(JANUARY, MANY)) == {"z0": 2, "z1": 1, "z2": 2}
    assert by_origin(year.finish(FEBRUARY, MANY)) == {"z0": 1, "z1": 1, "z2": 1}


def test_counters_that_exceed_a_bound_are_not_drawn_from(year):
    """Counts of more than M trips of a user, with the counters and the fingerprint that belong to them."""
    other = PersonYear(year.folder, 2, 3)
    year.finish(JANUARY, MANY)
    with pytest.MonkeyPatch.context() as patch:
        forget_the_year(patch)
        other.count(FEBRUARY, MANY)
    before = rows(year.ledger.path)
    with pytest.raises(OdError, match=r"OD-YEAR-COUNTERS: .* exceed max_trips_year") as refused:
        other.draw(FEBRUARY)
    assert_says_nothing(refused.value, year)
    assert rows(year.ledger.path) == before


@pytest.mark.parametrize("replaced", [None, bytes(31), bytes(32)], ids=["missing", "cut short", "another"])
def test_a_lost_key_stops_the_year(year, replaced):
    """With another key, all users would have other hashes, and their trips would be counted afresh."""
    year.finish(JANUARY, MANY)
    path = year.confidential.path / "hmac.key"
    kept = path.read_bytes()
    path.unlink() if replaced is None else path.write_bytes(replaced)
    is_other = replaced == bytes(32)
    for key in (JANUARY, FEBRUARY, REVISED, WALKERS):
        with pytest.raises(OdError) as refused:
            year.count(key, MANY)
        assert refused.value.code == ("OD-YEAR-COUNTERS-LOST" if is_other else "OD-KEY-LOST")
        assert ("were made with another key" in refused.value.message) == is_other
        assert ("keep the present one" in refused.value.next_step) == is_other
        assert "from a backup" in refused.value.next_step
        assert refused.value.spent == ("nothing was spent" if is_other and key != JANUARY else STAYS_CHARGED)
        if is_other:
            assert_says_nothing(refused.value, year)
    assert (path.read_bytes() if path.exists() else None) == replaced
    path.write_bytes(kept)
    year.finish(FEBRUARY, MANY)


def test_a_lost_fingerprint_stops_the_year(year):
    year.finish(JANUARY, MANY)
    (year.confidential.path / str(JANUARY.folder) / "identity.json").unlink()
    with pytest.raises(OdError, match=r"OD-YEAR-COUNTERS-LOST: .* was drawn without counters"):
        year.count(FEBRUARY, MANY)


def test_a_release_without_counters_is_not_drawn(year):
    counted = year.count(JANUARY, MANY)
    with pytest.raises(OdError, match=r"OD-YEAR-COUNTERS: .* counted without the counters of its users"):
        begin_release(year.confidential, year.ledger, JANUARY, "commuters", year.plan, counted)
    assert rows(year.ledger.path)[-1]["kind"] == "CAP"


@pytest.mark.parametrize(
    ("changes", "release_id", "code"),
    [
        ({"max_trips_year": 4}, "commuters/2001-01/r1", "OD-DOMAIN-CONFLICT"),
        ({"id_pattern": "[a-z]+"}, "commuters/2001-01/r1", "OD-DOMAIN-CONFLICT"),
        ({}, "walkers/2001-01/r1", "OD-DOMAIN-UNDECLARED"),
        ({}, "commuters/2001/r1", "OD-DOMAIN-PERIOD"),
        ({}, "commuters/2001-W05/r1", "OD-DOMAIN-PERIOD"),
    ],
)
def test_what_is_refused_writes_no_counters(year, tmp_path, changes, release_id, code):
    year.unit = replace(year.unit, **changes)
    with pytest.raises(OdError, match=f"{code}:"):
        released(year, release_id)
    assert not list(tmp_path.rglob("*.parquet"))
    assert rows(year.ledger.path)[-1]["kind"] == "CAP"


# All small worlds, against the state machine of the oracle

NAMES = ("ann", "bob", "cy")
KEYS = {"1": JANUARY, "2": FEBRUARY, "3": MARCH, "r": REVISED, "w": WALKERS}
PERIODS = {"1": 1, "2": 2, "3": 3, "r": 2, "w": 1}
ORACLE = {name: OracleRelease(name, period, {0: Fraction(1)}) for name, period in PERIODS.items()}

NUMBERS = st.tuples(*[st.integers(0, 3)] * 3)
FILES = st.lists(st.fixed_dictionaries(dict.fromkeys(NAMES, NUMBERS)), min_size=2, max_size=2)
"""Two files: numbers of trips by user and period."""
EVENTS = ["count", "killed", "finish", "finish", "lost"]
STEPS = st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from([*KEYS])), max_size=7)
BOUNDS = st.tuples(st.integers(1, 3), st.integers(0, 3)).map(lambda both: (both[0], both[0] + both[1]))


class Raising:
    def draw(self, variance, level, first, size):
        raise Killed


def run_both(folder: Path, m: int, most: int, files, steps) -> tuple[PersonYear, Year]:
    """Take the steps in the product and in the oracle, and compare all draws by user."""

    def trips_in(file, period: int) -> list[Trip]:
        return [trip for k, name in enumerate(NAMES) for trip in trips_of(name, file[name][period - 1], zone=k)]

    trips = [{period: trips_in(file, period) for period in (1, 2, 3)} for file in files]
    records = [
        {name: tuple(Record(t, "aa") for t in (1, 2, 3) for _ in range(file[name][t - 1])) for name in NAMES}
        for file in files
    ]
    year, oracle = PersonYear(folder, m, most), Year(m, most, records)
    for number, (what, name) in enumerate(steps):
        key, release = KEYS[name], ORACLE[name]
        first = oracle.drawn(release)
        file = number % 2 if first is None else first.file
        given_ = trips[file][PERIODS[name]]
        may_draw = oracle.may_draw(release)
        oracle.run([Step(what, release, file)])
        if what == "killed":
            year.killed(key, given_)
            continue
        if what == "count" or not may_draw:
            year.count(key, given_)
        if what == "finish":
            year.draw(key)
        elif what == "lost":
            try:
                year.draw(key, Raising())
            except Killed:
                continue
    finished = [draw for draw in oracle.draws if not draw.is_lost]
    by_release = {}
    for draw in finished:
        by_release[draw.release.name] = {f"z{k}": len(draw.trips[n]) for k, n in enumerate(NAMES) if draw.trips[n]}
    for key, release in year.drawn:
        name = next(name for name, one in KEYS.items() if one == key)
        assert by_origin(release) == by_release[name], (name, steps)
    return year, oracle


def two_files(one: dict[str, tuple[int, int, int]], other: dict[str, tuple[int, int, int]]):
    """Files with the numbers of some users; the others have no trips. Steps take them in turn."""
    return [dict.fromkeys(NAMES, (0, 0, 0)) | file for file in (one, other)]


def finished(names: str) -> list[tuple[str, str]]:
    return [("finish", name) for name in names]


# A revision that is counted after March gets what its period had.
@example((2, 3), two_files({"ann": (3, 3, 3)}, {"ann": (3, 3, 3)}), finished("123r"))
# A revision with fewer trips gives nothing back.
@example((2, 3), two_files({"ann": (0, 2, 3)}, {"ann": (0, 1, 0)}), finished("2r3"))
# Two series use a period once, by the larger number.
@example((2, 3), two_files({"ann": (1, 3, 0)}, {"ann": (3, 0, 3)}), finished("w123"))
# A month without trips changes nobody.
@example((2, 3), two_files({"bob": (2, 0, 0)}, {"ann": (3, 3, 3)}), finished("132"))
# An undrawn release is counted again from changed records, which leaves more of the year.
@example(
    (2, 3),
    two_files({"ann": (3, 0, 3)}, {"ann": (0, 3, 0), "bob": (2, 0, 0)}),
    [("count", "1"), ("finish", "2"), ("count", "3"), ("count", "1"), ("finish", "3"), ("finish", "1")],
)
@given(BOUNDS, FILES, STEPS)
def test_the_counted_trips_are_those_of_the_state_machine(tmp_path_factory, bounds, files, steps):
    year, oracle = run_both(tmp_path_factory.mktemp("year"), *bounds, files, steps)
    assert breaches(oracle) == set()
    assert {key for key, _ in year.drawn} == {KEYS[draw.release.name] for draw in oracle.draws if not draw.is_lost}
