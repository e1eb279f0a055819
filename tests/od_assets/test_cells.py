"""Releases whose zones are cells of a grid: the job, its bundle, and what a declaration may not say."""

import json
import re
import sys
from hashlib import sha256
from pathlib import Path

import h3
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import shapely
from pydantic import ValidationError

from od_assets.cli import app as cli
from od_assets.cli.diagnosis import _describe_boundaries
from od_assets.components import OdRelease
from od_assets.resources.warehouse import verify_published_releases
from od_assets.series.invented import invent_records
from od_assets.series.reading import read_declaration
from od_assets.series.section import describe_first_fault
from od_assets.series.series import Zones
from od_core import open_release
from od_core.errors import OdError
from od_core.periods import Period

from .conftest import failure_text

CITY = shapely.Polygon([(3.98, 54.06), (4.05, 54.05), (4.08, 54.08), (4.06, 54.11), (4.0, 54.11)])

COLUMNS = {"origin": ["lon", "lat"], "destination": ["end_lon", "end_lat"], "date": "date"}

GRIDS = {
    "hexagons": {"resolution": 8, "coarser": [6, 7], "within": "city.geojson"},
    "squares": {"size": "1 km", "coarser": ["10 km", "5km"], "within": "city.geojson"},
}


def declare(project, grid, *, columns=COLUMNS, **changes):
    (project.root / "city.geojson").write_text(shapely.to_geojson(CITY), encoding="utf-8")
    geography = {grid: GRIDS[grid], "unknown_area": "elsewhere"}
    return project.component(geography=geography, trips__columns=columns, **changes)


@pytest.mark.parametrize("grid", GRIDS)
def test_records_with_coordinates_are_counted_in_cells_and_maps_show_these(grid, project):
    """Some points lie outside of the city. The release is verified from the bundle alone."""
    declared = declare(project, grid, trips__fault_threshold="0.9")
    geography = declared.read_geography().origin
    generator = np.random.default_rng(3)
    longitude = generator.uniform(3.97, 4.09, (400, 2))
    latitude = generator.uniform(54.04, 54.12, (400, 2))
    points = {"lon": longitude[:, 0], "lat": latitude[:, 0], "end_lon": longitude[:, 1], "end_lat": latitude[:, 1]}
    project.write_records(pd.DataFrame(points).assign(date="2001-01-09"))
    project.publish(declared)
    copied = pd.read_parquet(next((project.var / "confidential").rglob("2001-01/**/raw_trips.parquet")))
    if grid == "hexagons":
        cells = [h3.latlng_to_cell(y, x, 8) for x, y in zip(points["lon"], points["lat"], strict=True)]
        zones = {*geography.zones}
        assert copied["origin"].tolist() == [cell if cell in zones else "(outside)" for cell in cells]
    is_inside = shapely.contains_xy(CITY, points["lon"], points["lat"])
    assert "(outside)" not in {*copied["origin"][is_inside]}
    bundle = project.var / "releases" / "trips" / "2001-01" / "r1"
    drawn = pq.read_table(bundle / "tables" / "boundaries.parquet").to_pandas()
    levels = {code for codes in geography.codes[1:] for code in codes} - {"elsewhere"}
    assert {*drawn["area"]} == levels
    certificate = json.loads((bundle / "certificate.json").read_text())
    outline = (project.root / "city.geojson").read_bytes()
    assert certificate["records"]["boundaries"] == [sha256(outline).hexdigest()]
    assert open_release(bundle).levels
    (project.root / "city.geojson").unlink()
    assert [row["faults"] for row in verify_published_releases("trips")] == [{}]


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("columns", [COLUMNS, {"origin": "from", "destination": "to", "date": "date"}])
def test_invented_records_of_cells_lie_in_them(grid, columns, project):
    """Not one is a fault, which would end the run before its counts."""
    declared = declare(project, grid, columns=columns)
    project.write_records(invent_records(declared, Period("2001-01")))
    result = project.materialize("geography", "raw_trips", "trip_counts", component=declared)
    assert result.success, failure_text(result)
    assert "elsewhere" in declared.read_geography().origin.zones


def test_cells_without_an_area_for_other_places_refuse_points_outside(project):
    declared = declare(project, "hexagons", geography__unknown_area=None)
    point = {"lon": 4.02, "lat": 54.08, "end_lon": 4.2, "end_lat": 54.08, "date": "2001-01-09"}
    project.write_records(pd.DataFrame([point]))
    assert not project.run(declared).success


def test_the_doctor_finds_no_gaps_between_cells(project):
    series = declare(project, "hexagons")
    assert _describe_boundaries(series, series.read_geography()) == "cells of a grid, without gaps"


def test_the_tutorial_begins_with_coordinates_and_no_zones(project, monkeypatch):
    """Its outline, declarations and commands, as they stand on the page."""
    page = (Path(__file__).parents[2] / "docs/tutorial/release-a-csv.md").read_text(encoding="utf-8")
    part = page.split("## 10. ")[1].split("\n## ")[0]
    outline, release, domain, commands = re.findall(r"```\w+\n(.*?)```", part, re.DOTALL)
    for name, text in (("my_rides/defs.yaml", release), ("domains/my_rides.yaml", domain)):
        assert f"`src/city/defs/{name}`" in part
        (project.defs / name).parent.mkdir(exist_ok=True)
        (project.defs / name).write_text(text, encoding="utf-8")
    data = project.root / "data" / "my_rides"
    data.mkdir(parents=True)
    (data / "city.geojson").write_text(outline, encoding="utf-8")
    declared = read_declaration(project.defs / "my_rides" / "defs.yaml", OdRelease)
    for command in commands.splitlines():
        words = command.split()
        if words[1] == "run":
            project.publish(declared, words[-1])
        elif words[1] != "report":
            monkeypatch.setattr(sys, "argv", words)
            with pytest.raises(SystemExit, match="0"):
                cli.main()
    assert pd.read_csv(data / "2026-01.csv")["start_lat"].between(54, 54.2).all()
    released = open_release(project.var / "releases" / "my_rides" / "2026-01" / "r1")
    assert h3.get_resolution(released.flows["origin"].iloc[0]) == 7


def test_the_outline_is_a_setting_of_reading(project):
    declared = declare(project, "hexagons")
    before = declared.reading["boundaries"]
    assert "boundaries" not in declare(project, "hexagons", columns={"date": "date"}).reading
    larger = CITY.buffer(0.001)
    (project.root / "city.geojson").write_text(shapely.to_geojson(larger), encoding="utf-8")
    assert declared.reading["boundaries"] != before


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({}, "declare one of file, with levels, hexagons and squares"),
        (GRIDS, "declare only one of file, hexagons and squares"),
        ({"file": "z.csv", "levels": ["zone"], "hexagons": GRIDS["hexagons"]}, "declare only one of file"),
        ({"file": "z.csv"}, "declare one of file, with levels"),
        ({"hexagons": GRIDS["hexagons"], "levels": ["zone"]}, "cells of a grid have no levels of a file"),
        ({"squares": GRIDS["squares"], "names": {"zone": "name"}}, "cells of a grid have no names of a file"),
        ({"squares": {"size": "0 km", "within": "o.geojson"}}, "squares.size: write a length"),
        ({"squares": {"size": "1 km", "coarser": ["10 miles"], "within": "o.geojson"}}, "squares.coarser: write"),
        ({"hexagons": {"resolution": True, "within": "o.geojson"}}, "hexagons.resolution: true and false"),
        ({"hexagons": {"resolution": 8}}, "hexagons.within: Field required"),
    ],
)
def test_other_declarations_are_refused(declared, words):
    with pytest.raises(ValidationError) as caught:
        Zones(**declared)
    assert re.search(words, describe_first_fault(caught.value.errors(), Zones))


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"hexagons": {"resolution": 16, "within": "o.geojson"}}, "not between 0 and 15"),
        ({"hexagons": {"resolution": 8, "coarser": [9], "within": "o.geojson"}}, "9 is not coarser than resolution 8"),
        ({"squares": {"size": "1 km", "coarser": ["1500 m"], "within": "o.geojson"}}, "1500 m do not consist"),
    ],
)
def test_cells_that_do_not_fit_together_are_refused(declared, words):
    with pytest.raises(OdError, match=words):
        _ = Zones(**declared).zone_list


def test_a_declaration_is_the_same_after_it_was_written():
    for grid, declared in GRIDS.items():
        zones = Zones(**{grid: declared})
        assert Zones.model_validate(zones.model_dump()).zone_list == zones.zone_list
    assert zones.zone_list.levels == ("square_10km", "square_5km", "square_1km")
