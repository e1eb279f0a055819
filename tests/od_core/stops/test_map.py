"""Maps, lists of places, and records that are placed on them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from od_core import OdError
from od_core.records.load import RecordColumns, load_records
from od_core.stops.geometry import MapGrid
from od_core.stops.trajectories import PlaceColumns, PlaceList, place_records

PLACES = pd.DataFrame(
    {
        "zone": ["SW", "NE", "middle", "01"],
        "longitude": ["-10", "30", "10", "29.9"],
        "latitude": ["40", "60", "50", "40.1"],
    }
)
STAGES = ("origin", "stop", "destination")


def places(side: int = 4, stages: tuple[str, ...] = STAGES, **changes) -> PlaceList:
    return PlaceList.from_frame(PLACES.assign(**changes), PlaceColumns(), side=side, stages=stages)


def test_the_least_map_is_cut_evenly_and_its_last_degree_lies_in_the_last_cell():
    listed = places()
    assert listed.map.edges == (-10, 30, 40, 60)
    assert listed.cells.tolist() == [[0, 0], [3, 3], [2, 2], [3, 0]]  # cells of 10 by 5 degrees
    assert listed.map.grid.sizes == (4,) * 6
    assert MapGrid.from_facts(listed.map.facts()) == listed.map


def test_a_box_has_the_rectangle_of_its_cells_for_each_place():
    rectangles = places().map.degrees(np.array([0, 0, 1, 2, 3, 3]), np.array([3, 3, 1, 3, 3, 3]))
    assert rectangles == [(-10, 40, 30, 60), (0, 50, 10, 60), (20, 55, 30, 60)]


def test_a_list_is_read_again_as_it_was_written(tmp_path):
    listed = places()
    listed.to_frame().to_csv(tmp_path / "places.csv", index=False)
    again = PlaceList.from_frame(pd.read_csv(tmp_path / "places.csv", dtype=str), PlaceColumns(), side=4, stages=STAGES)
    assert again.digest == listed.digest
    assert places(side=5).digest != listed.digest


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"zone": ["a", "a", "b", "c"]}, "OD-STOPS-PLACES"),
        ({"zone": ["a", None, "b", "c"]}, "OD-GEOGRAPHY-MISSING-CODE"),
        ({"zone": ["a", " a", "b", "c"]}, "OD-GEOGRAPHY-PADDED-CODE"),
        ({"zone": ["a", "A", "b", "c"]}, "OD-GEOGRAPHY-CASE"),
        ({"zone": ["=a", "A", "b", "c"]}, "OD-GEOGRAPHY-FORMULA"),
        ({"zone": [1, 2, 3, 4]}, "OD-GEOGRAPHY-NOT-TEXT"),
        ({"latitude": ["40", "", "50", "60"]}, "OD-STOPS-MAP"),
        ({"latitude": ["40", "95", "50", "60"]}, "OD-STOPS-MAP"),
        ({"latitude": ["40", "nan", "50", "60"]}, "OD-STOPS-MAP"),
        ({"longitude": ["1", "1", "1", "1"]}, "OD-STOPS-MAP"),
        ({"side": 0}, "OD-STOPS-MAP"),
        ({"side": 2**31 + 1}, "OD-STOPS-MAP"),
        ({"stages": ("origin",)}, "OD-STOPS-MAP"),
        ({"stages": ("origin", "origin")}, "OD-STOPS-MAP"),
    ],
)
def test_a_bad_list_or_map_is_one_line(changes, code):
    with pytest.raises(OdError) as refused:
        places(**changes)
    assert refused.value.code == code


def test_a_place_off_the_stated_map_and_a_column_that_is_missing():
    with pytest.raises(OdError, match="OD-STOPS-MAP"):
        PlaceList.from_frame(PLACES, PlaceColumns(), side=4, stages=STAGES, edges=(-10, 20, 40, 60))
    with pytest.raises(OdError, match="no column 'lon'"):
        PlaceList.from_frame(PLACES, PlaceColumns(longitude="lon"), side=4, stages=STAGES)


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


def test_faults_are_dropped_one_by_one_or_refused(tmp_path):
    """An unlisted origin, a missing stop, a day of another month; no message quotes them."""
    faulty = pd.DataFrame(
        {
            "from": ["QQ", "SW", "SW"],
            "via": ["NE", None, "NE"],
            "to": ["NE", "NE", "NE"],
            "day": ["2001-02-03"] * 2 + ["2001-03-01"],
        }
    )
    file = loaded(tmp_path, pd.concat([trips(97), faulty]))
    with pytest.raises(OdError, match="OD-TRIPS-FAULTS") as refused:
        place_records(file, places())
    assert "QQ" not in str(refused.value)
    assert len(place_records(file, places(), Fraction(3, 100)).points) == 97
