"""Groups given as numbers by area and size: the same to the last number as the same groups in one row each."""

from fractions import Fraction

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Budget, OdError, TopCodeEstimate, evaluate_group_sizes, release_group_sizes
from od_core.group_sizes.groups import GroupSizes, NumberedGroups
from od_core.records.load import RecordColumns, load_records
from tests.od_core.doubles import SeededLaplace
from tests.od_core.group_sizes.test_release import GEOGRAPHY, UNBOUNDED, DrawsNothing
from tests.od_core.ledger.ledger_rows import declared

COUNTED = pd.DataFrame({"area": ["03", "01", "01", "02", "01"], "size": [2, 12, 0, 1, 3], "groups": [4, 1, 5, 30, 0]})
COUNTED = COUNTED.astype({"area": "str"})
"""Sizes up to 12, of which the largest is above the top code, an area without groups, and a size without groups."""


def expanded(counted):
    """The oracle: one row a group, each with a name of its own, in another order."""
    rows = counted.loc[counted.index.repeat(counted["groups"]), ["area", "size"]]
    return rows.assign(group=[f"g{k}" for k in range(len(rows))]).sample(frac=1, random_state=1)


def released(groups, **changes):
    arguments = {"unit": UNBOUNDED, "budget": Budget(epsilon=1), "mechanism": "cumulative", "top_code": 9}
    return release_group_sizes(groups, GEOGRAPHY, **{**arguments, "noise": SeededLaplace(7), **changes})


cells = st.tuples(st.sampled_from(["01", "02", "03", "04"]), st.integers(0, 12))
tables = st.dictionaries(cells, st.integers(0, 40), min_size=1).filter(lambda counts: any(counts.values()))


@pytest.mark.representatives("sizes", "cumulative")
@pytest.mark.parametrize("mechanism", ["naive", "sizes", "cumulative"])
@given(cells=tables)
def test_a_release_is_that_of_one_row_a_group(mechanism, cells):
    counted = pd.DataFrame([(*cell, groups) for cell, groups in cells.items()], columns=["area", "size", "groups"])
    counted = counted.astype({"area": "str"})
    top_code = 9 if mechanism == "naive" else TopCodeEstimate(Fraction(1, 5), most=11)
    one, other = (released(table, mechanism=mechanism, top_code=top_code) for table in (counted, expanded(counted)))
    assert one.frame.top_code == other.frame.top_code
    for name in ("measurements", "histogram", "cumulative", "members"):
        pd.testing.assert_frame_equal(getattr(one, name), getattr(other, name))
    pd.testing.assert_frame_equal(*(evaluate_group_sizes(one, table) for table in (counted, expanded(counted))))


def test_the_ledger_takes_both_forms_for_the_same_input(tmp_path):
    ledger = declared(tmp_path, "departures", UNBOUNDED)
    arguments = {"ledger": ledger, "release_id": "departures/2001-06/r1", "noise": "table"}
    first = released(COUNTED, **arguments)
    again = released(expanded(COUNTED), **arguments)
    pd.testing.assert_frame_equal(first.measurements, again.measurements)
    with pytest.raises(OdError, match="OD-REPLAY-INPUT-CHANGED"):
        released(COUNTED.assign(size=[2, 12, 0, 2, 3]), **arguments)


def changed(**columns):
    return COUNTED.assign(**columns)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (COUNTED.drop(columns="size"), "OD-GROUPS-COLUMN.*'size'"),
        (COUNTED.drop(columns="groups"), "OD-GROUPS-COLUMN.*'group'"),
        (changed(group="g"), "OD-GROUPS-COLUMN: the groups have both"),
        (changed(size=[2, 12, None, 1, 3]), "OD-GROUPS-SIZE: a size in column 'size' is missing"),
        (changed(size=[2, 3, 0, 1, 3]), "OD-GROUPS-TWICE: the number of groups of an area and size"),
        (changed(groups=[4, 1, -5, 30, 0]), "OD-GROUPS-COUNT: a number of groups in column 'groups' is not a whole"),
        (changed(groups=[4, 1, 5.5, 30, 0]), "OD-GROUPS-COUNT: a number of groups in column 'groups' is not a whole"),
        (changed(groups=[4, 1, None, 30, 0]), "OD-GROUPS-COUNT: a number of groups in column 'groups' is missing"),
        (changed(groups=[4, 1, 2**53, 2**53, 0]), "OD-GROUPS-COUNT: the numbers of groups sum"),
        (changed(groups=[4, 1, 5, 2**31, 0]), "OD-GROUPS-SIZE: the number of groups times"),
        (changed(groups=0), "OD-GROUPS-NONE"),
        (changed(area="99"), "OD-GROUPS-AREA"),
    ],
)
def test_bad_input_is_refused_before_a_draw(given, code):
    with pytest.raises(OdError, match=code) as refused:
        released(given, noise=DrawsNothing())
    assert "5.5" not in str(refused.value)


def listed(folder, numbers="area,groups\n01,8\n02,30\n03,4\n"):
    (folder / "areas.csv").write_text(numbers, encoding="utf-8")
    return NumberedGroups(folder / "areas.csv")


def loaded(folder, counted, **columns):
    counted.to_csv(folder / "given.csv", index=False)
    read = RecordColumns("area", "area", trips="groups", size="size", **columns)
    assert read.row == "column 'groups' holds the number of groups of the size in column 'size'"
    load_records(folder / "given.csv", read, "2001-02", folder / "records.parquet")
    return folder / "records.parquet"


def test_records_of_numbers_are_completed_by_groups_without_members(tmp_path):
    """Area 01 has 8 groups by the public list, and 6 in the records, of which 5 have no member."""
    grouping = listed(tmp_path)
    groups = grouping.count_records(loaded(tmp_path, COUNTED), GEOGRAPHY, "2001-02")
    expected = GroupSizes.from_frame(changed(groups=[4, 1, 7, 30, 0]), GEOGRAPHY)
    for one, other in zip(next(groups.iterate_column_pieces()), next(expected.iterate_column_pieces()), strict=True):
        assert one.tolist() == other.tolist()
    assert groups.count_per_area(GEOGRAPHY).tolist() == [8, 30, 4, 0]
    assert grouping.count_groups_per_area(GEOGRAPHY, 28).tolist() == [8, 30, 4, 0]


def test_faults_of_records_are_a_share_of_the_groups(tmp_path):
    """One row of five, with one group of 41, is of no listed area: more than 1/50 of the groups."""
    file = loaded(tmp_path, changed(area=["03", "99", "01", "02", "01"]))
    with pytest.raises(OdError, match="OD-TRIPS-FAULTS"):
        listed(tmp_path).count_records(file, GEOGRAPHY, "2001-02", Fraction(1, 50))
    groups = listed(tmp_path).count_records(file, GEOGRAPHY, "2001-02", Fraction(1, 40))
    assert (groups.total, groups.count_per_area(GEOGRAPHY).sum()) == (4 * 2 + 30, 42)


@pytest.mark.parametrize(
    ("records", "numbers", "code"),
    [
        (COUNTED, "area,groups\n01,8\n02,29\n03,4\n", "OD-GROUPS-COUNT: the records have more groups"),
        (COUNTED, "area,groups\n01,8\n01,29\n", r"OD-GROUPS-TWICE: areas\.csv"),
        (COUNTED, "area,number\n01,8\n", r"OD-GROUPS-COLUMN: areas\.csv"),
        (changed(groups=[4, 1, 5.5, 30, 0]), None, "OD-GROUPS-COUNT"),
        (changed(size=[2, 3, 0, 1, 3]), None, "OD-GROUPS-TWICE"),
    ],
)
def test_bad_records_of_numbers_are_refused(records, numbers, code, tmp_path):
    grouping = listed(tmp_path) if numbers is None else listed(tmp_path, numbers)
    with pytest.raises(OdError, match=code):
        grouping.count_records(loaded(tmp_path, records), GEOGRAPHY, "2001-02")
