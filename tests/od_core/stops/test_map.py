"""Maps, lists of places, and records that are placed on them."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from od_core import Budget, MapGrid, OdError, PrivacyUnit, release_stops
from od_core.records.load import TABLE, RecordColumns, load_records
from od_core.stops.trajectories import PlaceColumns, PlaceList, Trajectories, place_records

DEGREES = {"longitude": ["-10", "30", "10", "29.9"], "latitude": ["40", "60", "50", "40.1"]}
PLACES = pd.DataFrame({"zone": ["SW", "NE", "middle", "01"], **DEGREES})
STAGES = ("origin", "stop", "destination")


def places(side: int = 4, stages: tuple[str, ...] = STAGES, **changes) -> PlaceList:
    return PlaceList.from_frame(PLACES.assign(**changes), PlaceColumns(), side=side, stages=stages)


def test_the_least_map_is_cut_evenly_and_its_last_degree_lies_in_the_last_cell():
    listed = places()
    assert listed.map.edges == (-10, 30, 40, 60)
    assert listed.cells.tolist() == [[0, 0], [3, 3], [2, 2], [3, 0]]  # cells of 10 by 5 degrees
    assert listed.map.grid.sizes == (4,) * 6
    assert MapGrid.from_facts(listed.map.facts()) == listed.map


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"zone": ["a", "a", "b", "c"]}, "OD-STOPS-PLACES"),
        ({"zone": [1, 2, 3, 4]}, "OD-GEOGRAPHY-NOT-TEXT"),
        ({"latitude": ["40", "95", "50", "60"]}, "OD-STOPS-MAP"),
        ({"latitude": ["40", "nan", "50", "60"]}, "OD-STOPS-MAP"),
        ({"longitude": ["1", "1", "1", "1"]}, "OD-STOPS-MAP"),
        ({"side": 2**31 + 1}, "OD-STOPS-MAP"),
        ({"stages": ()}, "OD-STOPS-MAP"),
        ({"stages": ("origin", "origin")}, "OD-STOPS-MAP"),
    ],
)
def test_a_bad_list_or_map_is_one_line(changes, code):
    with pytest.raises(OdError, match=f"{code}:"):
        places(**changes)


def loaded(folder, records: pd.DataFrame):
    records.to_csv(folder / "given.csv", index=False)
    columns = RecordColumns("from", "to", date="day", stops=("via",))
    load_records(folder / "given.csv", columns, "2001-02", folder / "records.parquet")
    return folder / "records.parquet"


def trips(number: int) -> pd.DataFrame:
    generator = np.random.default_rng(number)
    codes = {name: generator.choice(PLACES["zone"], number) for name in ("from", "via", "to")}
    return pd.DataFrame({**codes, "day": "2001-02-03"})


def test_records_are_placed_stop_by_stop(tmp_path):
    listed, records = places(), trips(500)
    placed = place_records(loaded(tmp_path, records), listed)
    cell = dict(zip(PLACES["zone"], listed.cells.tolist(), strict=True))
    expected = [[*cell[a], *cell[b], *cell[c]] for a, b, c in records[["from", "via", "to"]].itertuples(index=False)]
    assert sorted(placed.points.tolist()) == sorted(expected)
    assert place_records(loaded(tmp_path, trips(0)), listed).points.shape == (0, 6)


def test_trips_of_one_place_are_points_of_two_dimensions(tmp_path):
    """The only place is read as the origin and as the destination, and counts once."""
    listed, records = places(stages=("stop",)), trips(300)
    records.to_csv(tmp_path / "given.csv", index=False)
    columns, form = RecordColumns("via", "via", date="day"), replace(TABLE, one_row_a_trip=True)
    load_records(tmp_path / "given.csv", columns, "2001-02", tmp_path / "one.parquet", record_format=form)
    placed = place_records(tmp_path / "one.parquet", listed)
    cell = dict(zip(PLACES["zone"], listed.cells.tolist(), strict=True))
    assert sorted(placed.points.tolist()) == sorted(cell[code] for code in records["via"])
    assert listed.map.grid.sizes == (4, 4)
    assert listed.map.convert_to_degrees(np.array([0, 3]), np.array([1, 3])) == [(-10, 55, 10, 60)]


POINTS = MapGrid(-74.3, -73.7, 40.5, 40.9, 7, ("origin", "stop", "destination"))
AXES = ((-74.3, -73.7, 7), (40.5, 40.9, 7))


def gps(folder, records: pd.DataFrame, name: str = "given.csv", threshold=Fraction(1, 100)):
    """The points of records with the columns x_1, y_1, x_2, y_2, x_3 and y_3, which are degrees."""
    records.to_csv(folder / name, index=False) if name.endswith("csv") else records.to_parquet(folder / name)
    columns = RecordColumns("x_1", "y_3", stops=("y_1", "x_2", "y_2", "x_3"), axes=AXES)
    load_records(folder / name, columns, "2001-02", folder / "records.parquet")
    return place_records(folder / "records.parquet", PlaceList.from_map_cells(POINTS, PlaceColumns()), threshold)


def degrees(number: int, seed: int = 5) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    columns = [name for k in (1, 2, 3) for name in (f"x_{k}", f"y_{k}")]
    edges = [(-74.3, -73.7), (40.5, 40.9)] * 3
    drawn = {name: generator.uniform(*pair, number) for name, pair in zip(columns, edges, strict=True)}
    return pd.DataFrame(drawn)


@pytest.mark.parametrize("name", ["given.csv", "given.parquet"])
def test_points_are_placed_as_the_library_places_coordinates(tmp_path, name):
    """Cell by cell in exact fractions, and as Trajectories.from_coordinates; edges of cells and of the map included."""
    records = degrees(300)
    cuts = [[-74.3 + k * (0.6 / 7), 40.5 + k * (0.4 / 7)] * 3 for k in range(7)] + [[-73.7, 40.9] * 3]
    records = pd.concat([records, pd.DataFrame(cuts, columns=records.columns)], ignore_index=True)
    placed = gps(tmp_path, records, name)
    known = Trajectories.from_coordinates(records.to_numpy(), POINTS.grid, [axis[:2] for axis in AXES] * 3)
    assert sorted(placed.points.tolist()) == sorted(known.points.tolist())
    assert np.array_equal(Trajectories.from_coordinates(records, POINTS, one_row_a_trip=True).points, known.points)
    assert placed.grid == POINTS.grid
    for point, row in zip(known.points[:300].tolist(), records[:300].to_numpy().tolist(), strict=True):
        for cell, (least, most, cells), degree in zip(point, AXES * 3, row, strict=True):
            width = (Fraction(most) - Fraction(least)) / cells
            assert cell <= (Fraction(degree) - Fraction(least)) / width < cell + 1


def test_points_off_the_map_are_faults_and_so_are_swapped_degrees(tmp_path):
    """One at a time: missing, text, infinite, beyond each edge, latitude before longitude; no message quotes them."""
    beyond = [(0, -74.31), (0, -73.69), (1, 40.49), (1, 40.91), (2, np.inf), (3, -np.inf), (4, np.nan), (5, None)]
    faulty = degrees(len(beyond) + 2, seed=6).astype(object)
    for row, (column, value) in enumerate(beyond):
        faulty.iloc[row, column] = value
    faulty.iloc[-2, 2] = "40,7"
    faulty.iloc[-1, [2, 3]] = faulty.iloc[-1, [3, 2]].to_numpy()
    both = pd.concat([degrees(90), faulty])
    with pytest.raises(OdError, match="OD-TRIPS-FAULTS") as refused:
        gps(tmp_path, both)
    assert not any(text in str(refused.value) for text in ("40,7", "-74", "10 of"))
    found = gps(tmp_path, both, threshold=Fraction(1, 10)).points.tolist()
    assert sorted(found) == sorted(gps(tmp_path, degrees(90)).points.tolist())
    swapped = degrees(50).rename(columns={"x_1": "y_1", "y_1": "x_1"})
    with pytest.raises(OdError, match="OD-TRIPS-FAULTS"):
        gps(tmp_path, swapped, threshold=Fraction(98, 100))


def test_the_library_refuses_points_off_the_map_and_says_what_comes_first():
    swapped = degrees(50)[["y_1", "x_1", "y_2", "x_2", "y_3", "x_3"]].to_numpy()
    with pytest.raises(OdError, match=r"OD-STOPS-OFF-GRID.*next: .*the longitude of a point comes before the latitude"):
        Trajectories.from_coordinates(swapped, POINTS)
    for grid, bounds in ((POINTS, [axis[:2] for axis in AXES] * 3), (POINTS.grid, None)):
        with pytest.raises(OdError, match=r"OD-STOPS-BOUNDS.*a map has edges in their place"):
            Trajectories.from_coordinates(degrees(5).to_numpy(), grid, bounds)
    trips = Trajectories.from_coordinates(degrees(50).to_numpy(), POINTS)
    release = release_stops(trips, POINTS, unit=PrivacyUnit("trip"), budget=Budget(epsilon=1), noise="table")
    assert release.plan.map == POINTS


def test_faults_are_dropped_one_by_one_or_refused(tmp_path):
    """An unlisted origin, a missing stop, a day of another month; no message quotes them."""
    stops = {"from": ["QQ", "SW", "SW"], "via": ["NE", None, "NE"], "to": ["NE", "NE", "NE"]}
    faulty = pd.DataFrame({**stops, "day": ["2001-02-03"] * 2 + ["2001-03-01"]})
    file = loaded(tmp_path, pd.concat([trips(97), faulty]))
    with pytest.raises(OdError, match="OD-TRIPS-FAULTS") as refused:
        place_records(file, places())
    assert "QQ" not in str(refused.value)
    assert len(place_records(file, places(), Fraction(3, 100)).points) == 97


def test_a_place_off_the_stated_map_and_a_column_that_is_missing():
    with pytest.raises(OdError, match="OD-STOPS-MAP"):
        PlaceList.from_frame(PLACES, PlaceColumns(), side=4, stages=STAGES, edges=(-10, 20, 40, 60))
    with pytest.raises(OdError, match="no column 'lon'"):
        PlaceList.from_frame(PLACES, PlaceColumns(longitude="lon"), side=4, stages=STAGES)


def test_coordinates_are_numbers_and_a_list_of_cells_has_a_limit(tmp_path):
    records = degrees(3).assign(x_1=True)
    with pytest.raises(OdError, match=r"OD-TRIPS-COORDINATE.*column 'x_1' holds BOOLEAN"):
        gps(tmp_path, records, "given.parquet")
    with pytest.raises(OdError, match=r"OD-STOPS-PLACES.*at most 1,048,576 cells"):
        PlaceList.from_map_cells(replace(POINTS, side=(1 << 20) + 1), PlaceColumns())
    listed = PlaceList.from_map_cells(POINTS, PlaceColumns())
    assert listed.codes == ["0", "1", "2", "3", "4", "5", "6"]
    assert listed.to_frame()["longitude"].between(-74.3, -73.7).all()
