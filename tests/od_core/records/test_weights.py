"""Weights of records: rounded by exact fractions, files as frames, faults one by one, refusals, what is said."""

import csv
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from od_core import Budget, FlowTree, Geography, OdError, PrivacyUnit, plan_release
from od_core.privacy.domain import list_unit_facts
from od_core.privacy.neighbours import NO_FAULTS, Acceptance, Neighbours
from od_core.privacy.unit import LARGEST_WEIGHT
from od_core.publication.certify import describe_guarantee
from od_core.records.callers_table import load_trips
from od_core.records.counting import CountQuery, count_records_in_memory, count_trips
from od_core.records.counts import TripCounts
from od_core.records.load import RecordColumns, load_records
from tests.od_core.publication.examples import of_unit

pytestmark = pytest.mark.usefixtures("one_scratch_database")

ZONES = pd.DataFrame({"region": ["a", "a", "b"], "zone": ["a1", "a2", "b1"]})
GEOGRAPHY = Geography.from_frame(ZONES, ["region", "zone"])
TREE = FlowTree(GEOGRAPHY, GEOGRAPHY, "destination")
UNBOUNDED = PrivacyUnit("trip", "unbounded", max_weight=5)
BOUNDED = PrivacyUnit("trip", max_weight=5)


def expected(text: str, most: int) -> int | None:
    """The trips of a record by exact fractions; None where the text is no weight."""
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number) or number < 0:
        return None
    return min(most, math.floor(Fraction(number) + Fraction(1, 2)))


def weighed(column: pd.Series, most: int) -> list[int | None]:
    """The trips of each record of a frame with these weights; None where its weight is no weight."""
    records = pd.DataFrame({"origin": "a1", "destination": "b1", "weight": column}, index=column.index)
    unit = PrivacyUnit("trip", max_weight=most)
    loaded = load_trips(records, unit, None, (), one_row_a_trip=False)  # noqa: F841  # DuckDB reads it by its name
    counted = CountQuery(TREE, unit).render_sql("counted_trips")
    query = f"SELECT {counted} FROM (SELECT TRY_CAST(weight AS DOUBLE) AS weight FROM loaded)"
    return [trips for (trips,) in duckdb.sql(query).fetchall()]


@given(
    st.lists(st.floats(0, 9) | st.floats() | st.integers(0, 20).map(lambda n: n / 2), max_size=60),
    st.sampled_from([1, 5, LARGEST_WEIGHT]),
)
@example([0.49999999999999994, 0.5, 1.5, 2.5, -0.0, 1e300, 4.5, 5.5], 5)
def test_a_weight_is_rounded_to_the_nearest_and_cut_exactly(numbers: list[float], most: int) -> None:
    texts = [repr(number) for number in numbers]
    wanted = [expected(text, most) for text in texts]
    for column in (pd.Series(numbers, dtype=float), pd.Series(texts, dtype=object)):
        assert weighed(column, most) == wanted


def test_objects_that_are_no_numbers_are_no_weights() -> None:
    """Those of another type are refused by it, and a missing or broken text is a fault."""
    column = pd.Series([None, pd.NA, "\ud800", 2, np.float32(2.5), "3"], dtype=object)
    assert weighed(column, 5) == [None] * 3 + [2, 3, 3]
    for value, kind in ((True, "bool"), (b"2", "bytes"), ([2], "list")):
        with pytest.raises(OdError, match=f"OD-TRIPS-WEIGHTS: column 'weight' holds {kind}, not weights"):
            weighed(pd.Series([2, value], dtype=object), 5)


def counted(records: pd.DataFrame, folder: Path, unit: PrivacyUnit, threshold: Fraction) -> list[TripCounts]:
    """From the frame, from CSV, from Parquet."""
    records.to_csv(folder / "records.csv", index=False, quoting=csv.QUOTE_ALL)
    records.to_parquet(folder / "records.parquet")
    counts = [count_trips(records.assign(in_period=True), TREE, unit=unit, fault_threshold=threshold)]
    for name in ("records.csv", "records.parquet"):
        load_records(folder / name, RecordColumns(weight="weight"), "2001-06", folder / "staged.parquet")
        counts.append(count_records_in_memory(folder / "staged.parquet", TREE, unit=unit, fault_threshold=threshold))
    return counts


@pytest.mark.parametrize("unit", [BOUNDED, UNBOUNDED], ids=["bounded", "unbounded"])
def test_a_fault_is_one_record_whatever_the_others_weigh(unit: PrivacyUnit, tmp_path: Path) -> None:
    """Three of twenty: no weight, no zone, no weight; the others weigh 5 each."""
    frame = pd.DataFrame({"origin": ["a1"] * 20, "destination": ["b1"] * 20, "weight": ["9"] * 17 + ["", "3", "-1"]})
    frame.loc[18, "origin"] = "nowhere"
    assert [counts.total for counts in counted(frame, tmp_path, unit, Fraction(3, 20))] == [85] * 3
    too_many = Fraction(14, 100)
    for count in (
        lambda: count_trips(frame, TREE, unit=unit, fault_threshold=too_many),
        lambda: count_records_in_memory(tmp_path / "staged.parquet", TREE, unit=unit, fault_threshold=too_many),
    ):
        with pytest.raises(OdError, match="OD-TRIPS-FAULTS") as caught:
            count()
        assert ", weight or listed category that is needed" in str(caught.value)
        assert caught.value.confidential_detail == "3 of 20 trips"


def frame(**columns: object) -> pd.DataFrame:
    return pd.DataFrame({"origin": ["a1"], "destination": ["b1"], **columns})


@pytest.mark.parametrize(
    ("records", "unit", "code", "says"),
    [
        (frame(weight=[2.0]), PrivacyUnit("trip"), "OD-TRIPS-WEIGHTS", "no max_weight is declared"),
        (
            frame(weight=[2.0], u=["x"]),
            PrivacyUnit("user", column="u", max_trips=2),
            "OD-TRIPS-WEIGHTS",
            "no max_weight",
        ),
        (frame(), BOUNDED, "OD-TRIPS-COLUMN", "no column 'weight'"),
        (frame(weight=[2.0], trips=[3]), BOUNDED, "OD-TRIPS-WEIGHTS", "only a row that is a single record"),
        (frame(weight=[True]), BOUNDED, "OD-TRIPS-WEIGHTS", "holds bool"),
        (frame(weight=pd.to_datetime(["2001-01-01"])), BOUNDED, "OD-TRIPS-WEIGHTS", "holds datetime"),
        (frame(trips=[0.5]), PrivacyUnit("trip"), "OD-TRIPS-COUNT", "a column 'weight' and a declared max_weight"),
        (frame(trips=[-1]), PrivacyUnit("trip"), "OD-TRIPS-COUNT", "from 0 to 2^53"),
    ],
)
def test_frames_and_files_refuse_the_same(
    records: pd.DataFrame, unit: PrivacyUnit, code: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(OdError, match=code) as caught:
        count_trips(records, TREE, unit=unit, key=bytes(32), fault_threshold=Fraction(1))
    assert says in str(caught.value)
    records.to_parquet(tmp_path / "records.parquet")
    names = {name: name for name in ("weight", "trips") if name in records}

    def count_file() -> None:
        staged, columns = tmp_path / "staged.parquet", RecordColumns(**names, user=unit.column)  # type: ignore[arg-type]
        load_records(tmp_path / "records.parquet", columns, "2001-06", staged)
        count_records_in_memory(staged, TREE, unit=unit, key=bytes(32), fault_threshold=Fraction(1))

    with pytest.raises(OdError, match=code):
        count_file()


@pytest.mark.parametrize("bound", [0, -1, 1.0, True, "3", LARGEST_WEIGHT + 1, Decimal(3)])
def test_a_bound_is_a_whole_number(bound: object) -> None:
    with pytest.raises(OdError, match="OD-UNIT-MAX-WEIGHT"):
        PrivacyUnit("trip", max_weight=bound)  # type: ignore[arg-type]


def test_the_unit_says_its_bound_everywhere() -> None:
    """n is noised, also where a record counts at most 1; the domain is that of the data set."""
    assert not Neighbours(PrivacyUnit("trip", max_weight=1), NO_FAULTS).have_equal_totals
    assert Neighbours(PrivacyUnit("trip", max_weight=7), NO_FAULTS).count_shifted_cells(1) == 2
    assert list_unit_facts(BOUNDED) == list_unit_facts(PrivacyUnit("trip"))
    plan = plan_release(GEOGRAPHY, unit=BOUNDED, budget=Budget(1, "1e-8"), acceptance=NO_FAULTS)
    assert [step.level for step in plan.steps] == [0, 1, 2, 3, 4]
    assert [step.sensitivity_squared for step in plan.steps] == [25, 50, 50, 50, 50]
    assert plan.facts()["max_weight"] == plan.facts()["contribution_bound"] == 5
    sentences = describe_guarantee(of_unit(BOUNDED), plan.spent, Acceptance())
    assert "one record, which counts at most 5 trips, was replaced by any other record" in sentences["protected"]
    assert "rounded to the nearest whole number (halves up), but at most 5" in sentences["contribution"]
    assert "0.1 % of its records are faulty. Otherwise, faulty records are not counted." in sentences["input"]
    assert "contribution" not in describe_guarantee(of_unit(PrivacyUnit("trip")), plan.spent, Acceptance())
