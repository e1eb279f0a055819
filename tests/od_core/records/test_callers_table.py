"""Tables of any form and with any column names give the same release, and every fault names the caller's own column."""

from fractions import Fraction
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from od_core import Breakdown, Budget, FlowTree, Geography, OdError, PrivacyUnit, evaluate, release_flows, release_stops
from od_core.group_sizes.groups import GroupSizes
from od_core.records.counting import count_trips
from od_core.stops.geometry import Grid
from od_core.stops.trajectories import Trajectories
from tests.od_core.doubles import ListedLaplace, no_noise
from tests.od_core.records.conftest import OnlyAStream

pytestmark = pytest.mark.usefixtures("one_scratch_database")

CANARY = "QX-CANARY-7731"
ZONES = pd.DataFrame({"region": ["n", "n", "s"], "zone": ["01", "02", "03"]})
GEOGRAPHY = Geography.from_frame(ZONES, ["region", "zone"])
TREE = FlowTree(GEOGRAPHY, GEOGRAPHY)
FLOWS = pd.DataFrame({"origin": ["01", "02", "03"], "destination": ["03", "03", "01"], "trips": [10, 20, 1_000]})
OWN = {"origin": "start", "destination": "to zone", "trips": 'n "x"'}
OF_OWN_NAMES = FLOWS.rename(columns=OWN).assign(origin="not read")
SIDES = {"origin": "start", "destination": "to zone"}
BY_MODE = (Breakdown("mode", ("car", "bus")),)


def as_file(ending: str):
    """A function that writes a table to a file of the folder, and returns the path."""

    def write(table: pd.DataFrame, folder: Path) -> Path:
        path = folder / f"trips{ending}"
        table.to_parquet(path) if ending == ".parquet" else table.to_csv(path, index=False)
        return path

    return write


FORMS = {
    "pandas": lambda table, _: table,
    "arrow": lambda table, _: pa.Table.from_pandas(table),
    "batches": lambda table, _: pa.Table.from_pandas(table).to_reader(),
    "duckdb": lambda table, _: duckdb.from_df(table),
    "stream": lambda table, _: OnlyAStream(pa.Table.from_pandas(table)),
    "text path": lambda table, folder: str(as_file(".csv")(table, folder)),
    **{ending: as_file(ending) for ending in (".csv", ".csv.gz", ".parquet")},
}


@pytest.fixture(params=FORMS)
def form(request, tmp_path):
    return lambda table: FORMS[request.param](table, tmp_path)


@pytest.mark.parametrize("form", ["pandas", "arrow", "batches", "duckdb", "stream"], indirect=True)
def test_a_geography_is_made_from_any_table(form):
    assert Geography.from_frame(form(ZONES), ["region", "zone"]).digest == GEOGRAPHY.digest


def test_any_form_with_own_names_is_released_as_the_data_frame_is(form):
    options = {"unit": PrivacyUnit("trip", "bounded"), "budget": Budget(epsilon=1, delta="1e-8"), "noise": no_noise()}
    expected = release_flows(FLOWS, GEOGRAPHY, **options)
    release = release_flows(form(OF_OWN_NAMES), GEOGRAPHY, columns=OWN, **options)
    pd.testing.assert_frame_equal(release.flows, expected.flows)
    assert release.trips_between("region", ["s"], "region", ["n"]).trips == 1_000
    assert evaluate(release, form(OF_OWN_NAMES), columns=OWN)["max_abs_error"].eq(0).all()
    assert evaluate(release, form(FLOWS.assign(trips=[10, 20, 999])))["max_abs_error"].eq(1).all()


@pytest.mark.representatives("arrow", "text path", ".parquet")
def test_users_weights_and_periods_are_read_from_any_form(form):
    records = pd.DataFrame({"start": ["01", "01", "02"], "to zone": ["03", "03", "03"]})
    of_users = PrivacyUnit("user", column="who", max_trips=1)
    users = records.assign(who=["7", "7", "8"])
    assert count_trips(form(users), TREE, unit=of_users, key=bytes(32), columns=SIDES).total == 2
    weights = records.assign(w=[1.4, 9, 0.5])
    names = SIDES | {"weight": "w"}
    assert count_trips(form(weights), TREE, unit=PrivacyUnit("trip", max_weight=5), columns=names).total == 1 + 5 + 1
    marked = records.assign(in_period=[True, False, True])
    assert count_trips(form(marked), TREE, columns=SIDES, fault_threshold=Fraction(1)).total == 2
    for texts in (["True", "no", "t"], ["yes", "perhaps", "1"]):
        marked = records.assign(in_period=texts)
        assert count_trips(form(marked), TREE, columns=SIDES, fault_threshold=Fraction(1)).total == 2


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"orgin": "start"}, "unknown key 'orgin' (did you mean 'origin'?)"),
        ({"user": "who"}, "the unit names the column of user ids"),
        ({"origin": "start", "destination": "start"}, "column 'start' is both the column of origin and that of dest"),
        ({"origin": "destination"}, "column 'destination' is both"),
        ({"origin": 3}, "gives 'origin' no name, but a value of type int"),
        (SIDES | {"mode": "start"}, "column 'start' is both the column of origin and that of mode"),
        ({"mode": "in_period"}, "column 'in_period' is both"),
        (["start"], "columns is a list, not a mapping"),
    ],
)
def test_names_that_cannot_be_are_refused(columns, says):
    with pytest.raises(OdError, match="OD-TABLE-COLUMNS") as refused:
        count_trips(OF_OWN_NAMES, TREE, columns=columns, breakdowns=BY_MODE)
    assert says in str(refused.value)


@pytest.mark.parametrize(("user", "mode"), [("who", "who"), ("mode", "other")])
def test_a_breakdown_has_neither_the_column_nor_the_name_of_user_ids(user, mode):
    unit, given = PrivacyUnit("user", column=user, max_trips=1), {"key": bytes(32), "one_row_a_trip": True}
    table = OF_OWN_NAMES.assign(who="7", mode="car", other="car")
    with pytest.raises(OdError, match=rf"OD-TABLE-COLUMNS.* '{user}' is both .* of user ids"):
        count_trips(table, TREE, unit=unit, columns=SIDES | {"mode": mode}, breakdowns=BY_MODE, **given)


def test_names_of_a_table_without_a_header_are_not_shown(tmp_path):
    """They are the values of the first record."""
    path = tmp_path / "trips.csv"
    path.write_text(f"{CANARY},03,7731\n{CANARY},03,7731\n")
    for table in (path, pd.read_csv(path)):
        with pytest.raises(OdError, match=r"OD-TRIPS-COLUMN.* no column 'start'") as refused:
            count_trips(table, TREE, columns=SIDES)
        assert CANARY not in str(refused.value)
        assert "7731" not in str(refused.value)


def test_groups_of_any_form_with_own_names(form):
    groups = pd.DataFrame({"group": ["g", "h"], "area": ["01", "03"], "size": [2, 5]})
    own = {"group": "family", "area": "where", "size": "members"}
    read = GroupSizes.from_frame(form(groups.rename(columns=own)), GEOGRAPHY, columns=own)
    assert (read.area.tolist(), read.size.tolist()) == ([0, 2], [2, 5])
    for table, says in (
        (groups.assign(size=-7731), "'members' is not a whole number"),
        (groups.assign(size=CANARY), "'members' is missing or is not a number"),
        (groups.assign(area="7731"), "'where' has an area that is not a leaf area"),
        (groups.assign(group="7731"), "'family' lists a group twice"),
        (groups.drop(columns="area"), "no column 'where'"),
    ):
        with pytest.raises(OdError, match="OD-GROUPS") as refused:
            GroupSizes.from_frame(form(table.rename(columns=own)), GEOGRAPHY, columns=own)
        assert says in refused.value.message
        assert "7731" not in str(refused.value)


@pytest.mark.representatives("pandas", ".csv")
def test_trips_with_stops_are_refused_if_nothing_says_what_a_row_is(form):
    table, grid, unit = form(pd.DataFrame({"from": [0], "to": [1], "trips": [300]})), Grid((2, 2)), PrivacyUnit("trip")
    ends = {"columns": ["from", "to"]}
    for call in (
        lambda **one: Trajectories.from_cells(table, grid, **ends, **one),
        lambda **one: Trajectories.from_coordinates(table, grid, [(0, 2)] * 2, **ends, **one),
        lambda **one: release_stops(table, grid, unit=unit, budget=Budget(epsilon=1), **ends, **one),
        lambda **one: Trajectories.from_zones(
            form(pd.DataFrame({"to": ["a"], "n": ["3"]})), "a", columns=["to"], **one
        ),
    ):
        with pytest.raises(OdError, match=r"OD-TRIPS-ROWS: .* might hold the number of trips: '(trips|n)'"):
            call()
        call(one_row_a_trip=True)


def test_a_release_of_stops_takes_a_file_and_names_of_its_columns(tmp_path):
    path = as_file(".csv")(pd.DataFrame({"x": [1, 3], "y": [0, 6]}), tmp_path)
    options = {"unit": PrivacyUnit("trip"), "budget": Budget(epsilon=1), "noise": ListedLaplace([0])}
    release = release_stops(path, (4, 7), mechanism="identity", columns=["x", "y"], **options)
    assert release.counts.sum() == 2
    with pytest.raises(OdError, match=r"OD-STOPS-DIMENSIONS: a file of trips needs columns=\[...\]"):
        release_stops(path, (4, 7), **options)
    with pytest.raises(OdError, match="the trips are not a table"):
        release_stops([[1, 0]], (4, 7), columns=["x", "y"], **options)
