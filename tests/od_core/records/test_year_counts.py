"""Unit ``user_year`` in files and in memory: the same counts and the same counters, month after month."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from od_core import FlowTree, Geography, OdError, ReleaseKey
from od_core.ledger.object_store import LocalStore
from od_core.records.counting import count_records, count_trips
from od_core.records.counts import TripCounts
from od_core.records.formats import TABLE
from od_core.records.load import RecordColumns, load_records
from od_core.records.segments import Breakdown, SegmentSource
from tests.od_core.ledger.person_years import PersonYear

pytestmark = pytest.mark.usefixtures("one_scratch_database")

CODES = ["01", "02", "10", "?"]
ZONES = pd.DataFrame({"region": ["n", "n", "s", "s"], "zone": CODES}, dtype="str")
PLAIN = Geography.from_frame(ZONES, ["region", "zone"])
WITH_UNKNOWN = Geography.from_frame(ZONES, ["region", "zone"], unknown="?")
TREES = {"listed zones": FlowTree(PLAIN, PLAIN), "unknown zones": FlowTree(WITH_UNKNOWN, PLAIN, "origin")}
MODE = Breakdown("mode", ("car", "bus", "other"), "other")
USERS = ["ann", "bob1", "cy", "dee9", "Ann", "ann ", "a42", "", None]
"""Four ids that match the pattern, and others that do not."""
KEYS = [ReleaseKey("commuters", f"2001-0{month}", revision) for month, revision in ((6, 1), (7, 1), (5, 1), (6, 2))]


def records(key: ReleaseKey, number: int = 120) -> pd.DataFrame:
    """Records of the month of a release, and some of other months, zones, modes and users."""
    generator = np.random.default_rng([int(key.period[-2:]), key.revision])

    def drawn(values: list[str | None]) -> list[str | None]:
        return [values[k] for k in generator.integers(0, len(values), number)]

    days = [f"{key.period}-15", f"{key.period}-28", "2001-01-01"]
    columns = {"person": USERS, "origin": [*CODES, "03"], "destination": CODES}
    columns |= {"mode": ["car", "bus", "tram", None], "date": days}
    return pd.DataFrame({name: drawn(values) for name, values in columns.items()}, dtype=object)


def counted(
    frame: pd.DataFrame,
    year: PersonYear,
    tree: FlowTree,
    key: ReleaseKey,
    form: str,
    breakdowns: tuple[Breakdown, ...] = (),
    fault_threshold: Fraction = Fraction(1),
) -> TripCounts:
    given = {"unit": year.unit, "key": year.confidential.read_or_make_key(), "period": key.period}
    given |= {"fault_threshold": fault_threshold, "breakdowns": breakdowns, "counters": year.counters(key)}
    if form == "memory":
        in_period = frame["date"].str.startswith(key.period)
        return count_trips(frame.assign(in_period=in_period.astype(bool)), tree, one_row_a_trip=True, **given)
    folder = year.confidential.make_subfolder(key.folder)
    source = year.folder / f"trips.{form}"
    if form == "csv":
        frame.to_csv(source, index=False)
    else:
        frame.to_parquet(source)
    sources = tuple(SegmentSource(one.name, one.name) for one in breakdowns)
    columns = RecordColumns(date="date", user="person", segments=sources)
    form = TABLE.with_options(one_row_a_trip=True)
    load_records(source, columns, key.period, folder / "raw_trips.parquet", record_format=form)
    files = count_records(folder / "raw_trips.parquet", tree, LocalStore(folder), "counts", **given)
    return files.read_all()


def pieces(counts: TripCounts) -> list[list[int]]:
    return [column.tolist() for piece in counts.iterate_column_pieces() for column in piece]


@pytest.mark.representatives("segments")
@pytest.mark.parametrize(("tree", "breakdowns"), [*zip(TREES, [(), (MODE,)], strict=True)], ids=["totals", "segments"])
def test_files_and_memory_count_the_same_trips_of_a_year(tmp_path: Path, tree: str, breakdowns) -> None:
    """A later month, an earlier one and a revision; what one form has counted, the others count on."""
    years = {form: PersonYear(tmp_path / form, m=3, most=7) for form in ("memory", "parquet", "csv")}
    totals = []
    for key in KEYS:
        found = {form: counted(records(key), year, TREES[tree], key, form, breakdowns) for form, year in years.items()}
        stored = {form: pq.read_table(year.path(key)).to_pylist() for form, year in years.items()}
        assert pieces(found["memory"]) == pieces(found["parquet"]) == pieces(found["csv"])
        assert stored["memory"] == stored["parquet"] == stored["csv"]
        fingerprints = {year.counters(key).compute_fingerprint(key) for year in years.values()}
        assert len(fingerprints) == 1
        per_user = years["memory"].counted(key, ["ann", "bob1", "cy", "dee9"])
        assert sum(per_user.values()) == found["memory"].total
        totals.append(per_user)
    assert totals[0] == dict.fromkeys(totals[0], 3)
    assert all(sum(each.get(user, 0) for each in totals[:3]) == 7 for user in totals[0])


@pytest.mark.representatives("csv")
@pytest.mark.parametrize("form", ["memory", "parquet", "csv"])
def test_trips_above_a_pair_cap_are_no_trips_of_the_year(tmp_path: Path, form: str) -> None:
    """Of nine trips, three pairs are counted in a month, and of four in the year, one in the next."""
    year = PersonYear(tmp_path / form, m=3, most=4, of_pair=1)
    months = []
    for key in KEYS[:2]:
        pairs = [("01", "02")] * 6 + [("01", "10"), ("02", "10"), ("10", "01")]
        frame = pd.DataFrame(pairs, columns=["origin", "destination"]).assign(person="cy", date=f"{key.period}-15")
        counts = counted(frame.astype(object), year, TREES["listed zones"], key, form)
        months.append((counts.total, year.counted(key, ["cy"])["cy"]))
        assert pq.read_table(year.path(key))["trips"].to_pylist() == [9]
    assert months == [(3, 3), (1, 1)]
    few = pd.DataFrame({"origin": ["01"] * 5, "destination": "02", "person": "bob1", "date": f"{KEYS[2].period}-15"})
    counts = counted(few.astype(object), year, TREES["listed zones"], KEYS[2], form)
    assert (counts.total, year.counted(KEYS[2], ["bob1"])) == (1, {"bob1": 1})


@pytest.mark.representatives("parquet")
@pytest.mark.parametrize("form", ["memory", "parquet"])
def test_the_counted_trips_of_a_year_are_a_part_of_those_that_m_alone_counts(tmp_path: Path, form: str) -> None:
    """The same keyed order chooses them, so a user with less left loses the last ones of that order."""
    tree = TREES["listed zones"]
    bounded, free = PersonYear(tmp_path / "bounded", 3, 4), PersonYear(tmp_path / "free", 3, 1000)
    for number, key in enumerate(KEYS[:3]):
        fewer, all_of_them = (counted(records(key), year, tree, key, form) for year in (bounded, free))
        assert set(fewer.rank.tolist()) <= set(all_of_them.rank.tolist())
        assert (fewer.total, all_of_them.total) == ([12, 4, 0][number], 12)


def test_an_id_that_the_pattern_refuses_is_told_alike_in_files_and_memory(tmp_path: Path) -> None:
    """Every record has an id. No message quotes one."""
    frame = pd.DataFrame({"person": ["ann", "Ann42"], "origin": "01", "destination": "02", "date": "2001-06-15"})
    tree, none, told = TREES["listed zones"], Fraction(0), set()
    for form in ("memory", "parquet", "csv"):
        with pytest.raises(OdError, match="OD-TRIPS-FAULTS") as refused:
            counted(frame, PersonYear(tmp_path / form, 2, 3), tree, KEYS[0], form, fault_threshold=none)
        told.add((str(refused.value), refused.value.confidential_detail))
    ((said, detail),) = told
    assert "lack a valid user id (one that matches id_pattern, if declared)" in said
    assert "ann" not in said.lower()
    assert detail == "1 of 2 trips"
