"""What a file of records counts is decided record by record, from the record and public facts alone.

Every rule of a declaration is in force at once: categories, codes that are nowhere, an area for unknown places,
prefixes and joined levels, sides of unequal depth, times with a zone or without, records of other periods, weights. The
oracle reads one record at a time, with Python's own calendar and clocks.
"""

import datetime
import math
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from od_core import Acceptance, FlowTree, Neighbours, PrivacyUnit
from od_core.geography.flow_tree import Pairs, equalise_depths
from od_core.periods import Period
from od_core.privacy.domain import list_charged_periods
from od_core.records.counting import count_records_in_memory
from od_core.records.formats import TABLE, RecordColumns
from od_core.records.load import load_records
from od_core.records.zone_lists import ZoneList, build_geography
from tests.od_core.privacy.test_sensitivity import KEY, OF_ONE_KIND, UNITS, most, node_counts

pytestmark = pytest.mark.usefixtures("one_scratch_database")

HOMES_LIST = ZoneList("homes.csv", ("county", "zone"), prefixes={"county": 2}, unknown_area="elsewhere")
HOMES = build_geography(pd.DataFrame({"zone": ["01a", "01b", "02a", "99x"]}), HOMES_LIST)
TOWNS = [("N", "p", "n1"), ("N", "q", "n2"), ("S", "p", "s1"), ("S", "p", "99x")]
WORKS_LIST = ZoneList("works.csv", ("region", "town", "zone"), joined={"town": ("region", "part")})
WORKS = build_geography(pd.DataFrame(TOWNS, columns=["region", "part", "zone"]), WORKS_LIST)
TREE = FlowTree(*equalise_depths(HOMES, WORKS))
QUIET = [*settings.default.suppress_health_check, HealthCheck.filter_too_much]
OSLO = ZoneInfo("Europe/Oslo")
PERIODS = ("2001-01", "2000-12", "2000-12--2001-01", "2001-W01", "2001-01-01", "2001-01-01--2001-01-09", "2000-Q4")


class Record(NamedTuple):
    """One record, as it stands in a file."""

    origin: str | None
    destination: str | None
    time: str | None
    kind: str | None
    weight: str | None
    person: str | None


class Declared(NamedTuple):
    """What is declared of the records, public facts all."""

    period: str
    outside: str
    zoned: bool
    unit: PrivacyUnit


CODES = [None, "", " ", "01a", "02a", "01A", "99x", "abroad", "elsewhere", '"', "a,b", "n1", "n2", "s1", "\x7f", "x\ny"]
TIMES = [None, *(f"{day}T{clock}" for day in ("2000-12-31", "2001-01-01", "2001-01-31", "2000-06-30", "2001-01-08")
                 for clock in ("00:00:00", "12:00:00", "22:59:59", "23:00:00", "23:59:59"))]  # fmt: skip
RECORDS = st.builds(
    Record,
    *[st.sampled_from(CODES)] * 2,
    st.sampled_from(TIMES),
    st.sampled_from([None, "1", "1", "1", "2", "1 "]),
    st.sampled_from([None, "", "nan", "-1", "0", "0.5", "2.4", "1e300", "inf", "many"]),
    st.sampled_from(["p", "u1", "u2", " ", None]),
)
GOOD = st.builds(
    Record,
    st.sampled_from(["01a", "01b", "abroad"]),
    st.sampled_from(["n1", "s1"]),
    st.sampled_from([time for time in TIMES if time]),
    st.just("1"),
    st.sampled_from(["1", "2.4", "3.5", "9"]),
    st.sampled_from(["p", "u1"]),
)
MIXED = st.one_of(GOOD, GOOD, RECORDS)


def written(folder: Path, rows: list[Record], *, zoned: bool) -> Path:
    """CSV of local times, or Parquet of instants."""
    table = pd.DataFrame(rows, columns=Record._fields, dtype=object)
    if not zoned:
        table.to_csv(folder / "records.csv", index=False, lineterminator="\n")
        return folder / "records.csv"
    columns = {name: pa.array(table[name], pa.string()) for name in Record._fields}
    moments = [row.time and datetime.datetime.fromisoformat(row.time).replace(tzinfo=datetime.UTC) for row in rows]
    columns["time"] = pa.array(moments, pa.timestamp("us", "UTC"))
    pq.write_table(pa.table(columns), folder / "records.parquet")
    return folder / "records.parquet"


def counts(folder: Path, rows: list[Record], declared: Declared) -> list[np.ndarray]:
    """Counts of every public node, through the file."""
    source, target = written(folder, rows, zoned=declared.zoned), folder / "raw_trips.parquet"
    unit = declared.unit
    weight, user = "weight" if unit.max_weight else None, "person" if unit.kind != "trip" else None
    columns = RecordColumns(date="time", weight=weight, user=user)
    options = {"categories": (("kind", ("1", "")),), "nowhere": ("abroad", "", "99x")}
    form = TABLE.with_options(one_row_a_trip=True, outside_period=declared.outside, **options)
    given = {"geography": HOMES, "destination_geography": WORKS, "time_zone": "Europe/Oslo"}
    load_records(source, columns, declared.period, target, record_format=form, **given)
    given = {"unit": unit, "key": KEY, "period": declared.period, "fault_threshold": Fraction(1)}
    found = count_records_in_memory(target, TREE, **given)
    return node_counts(TREE, found)


def counted_as(row: Record, declared: Declared) -> tuple[str, str, int] | None:
    """The zones and the trips that one record counts for; None where it counts nothing."""
    if row.kind not in ("1", "", None) or row.time is None or row.destination not in WORKS.zones:
        return None
    moment = datetime.datetime.fromisoformat(row.time)
    if declared.zoned:
        moment = moment.replace(tzinfo=datetime.UTC).astimezone(OSLO)
    period = Period(declared.period)
    if not period.first <= moment.date() < period.end:
        return None
    trips = 1
    if declared.unit.max_weight is not None:
        try:
            weight = float(row.weight or "nan")
        except ValueError:
            return None
        if not (math.isfinite(weight) and weight >= 0):
            return None
        trips = min(math.floor(weight + 0.5), declared.unit.max_weight)
    return row.origin if row.origin in HOMES.zones else "elsewhere", row.destination, trips


def expected_leaves(rows: list[Record], declared: Declared) -> dict[tuple[str, str], int]:
    leaves = dict.fromkeys(product(HOMES.zones, WORKS.zones), 0)
    for row in rows:
        if (counted := counted_as(row, declared)) is not None:
            leaves[counted[:2]] += counted[2]
    return leaves


TRIPS = st.sampled_from([unit for unit in UNITS if unit.kind == "trip"])


def declarations(units: st.SearchStrategy[PrivacyUnit]) -> st.SearchStrategy[Declared]:
    return st.builds(Declared, st.sampled_from(PERIODS), st.sampled_from(["drop", "refuse"]), st.booleans(), units)


@settings(suppress_health_check=QUIET)
@example(
    rows=[
        Record("01a", "n1", "2001-01-31T22:59:59", "1", weight, None) for weight in ("0.49", "2.4", "3.5", "9", "-1")
    ],
    declared=Declared("2001-01", "refuse", True, PrivacyUnit("trip", max_weight=4)),
)
@given(rows=st.lists(MIXED, min_size=4, max_size=12), declared=declarations(TRIPS))
def test_a_file_counts_what_each_record_alone_counts(tmp_path, rows, declared):
    """The leaves are those of the oracle, which never sees two records at once."""
    leaves = counts(tmp_path, rows, declared)[-1]
    wanted = expected_leaves(rows, declared)
    for (origin, destination), trips in wanted.items():
        numbers = ([HOMES.zones.index(origin)], [WORKS.zones.index(destination)])
        pairs = Pairs(TREE.depth, *(np.array(number, np.int32) for number in numbers))
        assert leaves[TREE.compute_first_ranks(pairs)] == trips


@pytest.mark.representatives("trip bounded", "user_period unbounded")
@settings(suppress_health_check=QUIET)
@given(data=st.data())
@pytest.mark.parametrize("units", OF_ONE_KIND.values(), ids=OF_ONE_KIND)
def test_neighbouring_files_differ_by_no_more_than_the_noise_is_made_for(tmp_path, units, data):
    """One record, or all of one user: replaced by others, or removed; categories and unlisted places let one leave."""
    declared = data.draw(declarations(st.sampled_from(units)))
    unit = declared.unit
    others = data.draw(st.lists(MIXED.filter(lambda row: row.person != "p"), max_size=5))
    if unit.kind == "trip":
        one, another = ([data.draw(MIXED)] for _ in range(2))
    else:
        many = st.lists(MIXED, max_size=6)
        one, another = ([row._replace(person=user) for row in data.draw(many)] for user in "pq")
    if unit.neighbours == "unbounded":
        another = []
    before = counts(tmp_path, others + one, declared)
    after = counts(tmp_path, data.draw(st.permutations(others + another)), declared)
    nodes = tuple(map(TREE.count_nodes_by_size, range(TREE.depth + 1)))
    neighbours = Neighbours(unit, Acceptance(Fraction(1), has_categories=True), has_unknown_areas=False, nodes=nodes)
    limits = most(neighbours, TREE.depth)
    for level, (a, b, limit) in enumerate(zip(before, after, limits, strict=True)):
        assert int(((a - b) ** 2).sum()) <= limit, level


@settings(suppress_health_check=QUIET)
@given(
    rows=st.lists(MIXED, min_size=6, max_size=12),
    declared=declarations(st.just(PrivacyUnit("trip"))),
    elementary=st.sampled_from(["day", "week", "month"]),
)
def test_the_charged_periods_hold_every_record_that_a_release_can_hold(tmp_path, rows, declared, elementary):
    """A release counts what the releases of the periods that it charges count together, each record in one of them."""
    period = Period(declared.period)
    assume(0 < len(period.split_into(elementary)) < 10)
    parts = list_charged_periods(period, elementary, "trip")
    whole = counts(tmp_path, rows, declared)
    sums = [counts(tmp_path, rows, declared._replace(period=part)) for part in parts]
    for level, found in enumerate(whole):
        assert np.array_equal(found, sum(part[level] for part in sums))
