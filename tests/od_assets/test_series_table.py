"""One declaration of many series: each row of a table is a series as if it had a declaration of its own."""

import json
import re
import sys
from copy import deepcopy
from typing import Any

import dagster as dg
import pytest
import yaml

from od_assets.cli.target_plan import refuse_records
from od_assets.code_location import load_definitions
from od_assets.components import OdReleases
from od_assets.components.project import refuse_broken_declarations
from od_assets.series.reading import list_series_names, read_declared_series
from od_core.errors import OdError
from tests.od_assets.cli.commands import command
from tests.od_assets.conftest import ATTRIBUTES, Project, records
from tests.projects import declare, define_all

ROWS = "city,epsilon,team\nbergen,1,north\noslo,0.5,south\n"
"""A table of two series."""


def declare_cities(project: Project, rows: str = ROWS, **changes: Any) -> None:
    """Declare a series for each row, and the warehouse."""
    project.component()  # writes the domain
    attributes = deepcopy(ATTRIBUTES)
    attributes |= {"name": "{{ row.city }}_trips", "owners": ["team:{{ row.team }}"], **changes}
    attributes["privacy"] = {**attributes["privacy"], "epsilon": "{{row.epsilon}}"}
    (project.root / "cities.csv").write_text(rows, encoding="utf-8")
    declare(project.defs, "cities", "OdReleases", {"for_each": "cities.csv", "series": attributes})
    declare(project.defs, "warehouse", "OdWarehouse", {})


@pytest.fixture
def cities(project, monkeypatch) -> Project:
    """A project whose definitions Dagster loads, with a declaration of two series."""
    declare_cities(project)
    define_all(project.root)
    for name in [name for name in sys.modules if name.partition(".")[0] == "declared"]:  # of another test
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(project.root)
    return project


def test_each_row_is_the_series_that_a_declaration_of_its_own_would_be(cities):
    assert list_series_names() == ("bergen_trips", "oslo_trips")
    for city, epsilon, team in (("bergen", "1", "north"), ("oslo", "0.5", "south")):
        single = ATTRIBUTES | {"name": f"{city}_trips", "owners": [f"team:{team}"]}
        single["privacy"] = single["privacy"] | {"epsilon": epsilon}
        found = read_declared_series(f"{city}_trips")
        assert found.model_dump() == type(found).model_validate(single).model_dump()
    definitions = load_definitions()
    assert {job.name for job in definitions.jobs or []} >= {"bergen_trips_release", "oslo_trips_release"}
    assert not [sensor for sensor in definitions.sensors or [] if "broken" in sensor.name]
    refuse_broken_declarations()


def test_commands_know_the_series_of_rows(cities):
    cities.write_records(records())
    assert command("run", "oslo_trips", "--period", "2001-01").exit_code == 0
    rows = json.loads(command("status", "--json").stdout)
    assert {row["release"] for row in rows} == {"bergen_trips/2001-01/r1", "oslo_trips/2001-01/r1"} | {
        f"{city}_trips/2001-02/r1" for city in ("bergen", "oslo")
    }
    assert [row["release"] for row in rows if row["state"] == "published"] == ["oslo_trips/2001-01/r1"]
    refused = command("run", "olso_trips", "--period", "2001-01")
    assert "did you mean 'oslo_trips'?" in str(refused.exception)


BAD_ROWS = {
    "city,epsilon,team\nbergen,1,north\noslo,,south\n": "row 2 of cities.csv has no value of epsilon",
    "city,epsilon,team\nbergen,1,north\noslo,0.5\n": "row 2 of cities.csv has 2 of the 3 values of the header",
    "city,epsilon,team\n": "cities.csv has 0 rows",
    "": "cities.csv has 0 rows",
    "city,city,team\nbergen,1,north\n": "cities.csv has two columns of one name",
    "town,epsilon,team\nbergen,1,north\n": "cities.csv has no column 'city'",
    'city,epsilon,team\n"bergen,1,north\n': "cities.csv is not a CSV file in UTF-8",
    "city,epsilon,team\nbergen,1,north\noslo,-1,south\n": "oslo_trips is left out",
    "city,epsilon,team\nbergen,1,north\nbergen,2,south\n": "bergen_trips is declared twice: in cities (row 1) and",
    "city,epsilon,team\nbergen,1,north\nOs lo,1,south\n": "Os lo_trips",
}
"""Tables with a fault, and a part of the message."""


@pytest.mark.parametrize("rows", BAD_ROWS)
def test_a_wrong_table_is_refused_by_name(cities, rows, caplog):
    (cities.root / "cities.csv").write_text(rows, encoding="utf-8")
    with pytest.raises(OdError, match=r"^OD-") as refused:
        refuse_broken_declarations()
    loaded = load_definitions()
    said = "\n".join([str(refused.value), *(record.getMessage() for record in caplog.records)])
    assert BAD_ROWS[rows] in said
    assert [sensor for sensor in loaded.sensors or [] if sensor.name.startswith("broken_")]


def test_a_broken_row_leaves_out_its_series_alone(cities):
    (cities.root / "cities.csv").write_text("city,epsilon,team\nbergen,1,north\noslo,-1,south\n", encoding="utf-8")
    loaded = load_definitions()
    assert loaded.resolve_job_def("bergen_trips_release")
    assert "oslo_trips_release" not in {job.name for job in loaded.jobs or []}
    [sensor] = [sensor for sensor in loaded.sensors or [] if sensor.name == "broken_rows_of_cities"]
    with pytest.raises(OdError, match=r"cities/defs\.yaml, row 2"):
        refuse_broken_declarations()
    with pytest.raises(OdError, match=r"cities/defs\.yaml, row 2"), dg.build_sensor_context() as context:
        sensor.evaluate_tick(context)
    assert command("plan", "bergen_trips").exit_code == 0
    listed = command("status", "--json")
    assert listed.exit_code == 2
    assert "cities/defs.yaml, row 2" in listed.stderr


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (ROWS, "oslo_trips declares it as records"),
        ("city,epsilon,team\nbergen,1,north\noslo,,south\n", "row 2 of cities.csv has no value of epsilon"),
        ("city,epsilon,team\nbergen,1,north\noslo,1\n", "row 2 of cities.csv has 2 of the 3 values of the header"),
    ],
)
def test_records_of_a_row_are_confidential_also_if_the_table_has_a_fault(cities, rows, fault):
    declare_cities(cities, rows, trips=ATTRIBUTES["trips"] | {"files": "{{ row.city }}/{period}.csv"})
    path = cities.root / "oslo" / "2001-01.csv"
    path.parent.mkdir()
    path.write_text("origin,destination,trips\n", encoding="utf-8")
    with pytest.raises(OdError, match=re.escape(fault)):
        refuse_records(path)


def test_a_folder_keeps_a_name_that_a_row_has_too(cities):
    declare(cities.defs, "oslo_trips", "OdRelease", ATTRIBUTES | {"name": "oslo_trips"})
    with pytest.raises(OdError, match=r"oslo_trips is declared twice: in cities \(row 2\) and oslo_trips"):
        read_declared_series("oslo_trips")
    assert load_definitions().resolve_job_def("bergen_trips_release")


def test_a_table_of_another_kind_of_series(project):
    declare_cities(project)
    table = yaml.safe_load((project.defs / "cities" / "defs.yaml").read_text(encoding="utf-8"))["attributes"]
    table["component"] = "od_assets.components.OdRelese"
    component = OdReleases.model_validate(table)
    [sensor] = component.build_defs(None).sensors or []
    assert "bergen_trips, oslo_trips" in str(sensor.description)


SUBCLASS = """
from od_assets.components import OdRelease


class CityRelease(OdRelease):
    '''A release with the settings of the team.'''

    revision: int = 3
"""


def test_a_subclass_is_seen_by_every_command(cities):
    (cities.root / "declared" / "own.py").write_text(SUBCLASS, encoding="utf-8")
    text = yaml.dump({"type": "declared.own.CityRelease", "attributes": ATTRIBUTES})
    (cities.defs / "trips").mkdir()
    (cities.defs / "trips" / "defs.yaml").write_text(text, encoding="utf-8")
    assert "trips" in list_series_names()
    assert read_declared_series("trips").revision == 3
    assert load_definitions().resolve_job_def("trips_release")
    cities.write_records(records())
    assert command("run", "trips", "--period", "2001-01").exit_code == 0
    (cities.root / "declared" / "own.py").write_text("1 / 0", encoding="utf-8")
    sys.modules.pop("declared.own")
    with pytest.raises(
        OdError, match=r"trips/defs\.yaml: type: declared\.own cannot be imported \(ZeroDivisionError\)"
    ):
        read_declared_series("trips")


def test_a_post_processing_that_dagster_refuses_leaves_out_one_series(cities, caplog):
    project = cities
    for name, wrong in (("trips", False), ("journeys", True)):
        processing = {"assets": [{"target": "*", "attributes": {"owners": ["nobody"] if wrong else ["team:a"]}}]}
        document = {"type": "od_assets.components.OdRelease", "attributes": ATTRIBUTES | {"name": name}}
        (project.defs / name).mkdir()
        text = yaml.dump(document | {"post_processing": processing})
        (project.defs / name / "defs.yaml").write_text(text, encoding="utf-8")
    loaded = load_definitions()
    assert loaded.resolve_job_def("trips_release")
    assert loaded.resolve_job_def("oslo_trips_release")
    [sensor] = [sensor for sensor in loaded.sensors or [] if sensor.name == "broken_declarations"]
    assert str(sensor.description).endswith("Left out, with their schedules: journeys.")
    assert "journeys/defs.yaml: post_processing: " in caplog.text


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("{{ env('NO_LAKE', 'lake') }}/{period}.csv", "lake/{period}.csv"),
        ("{{ project_root }}/{period}.csv", "ROOT/{period}.csv"),
        ("{{ context.project_root }}/{period}.csv", "ROOT/{period}.csv"),
        ('{{env("NO_LAKE","")}}{period}.csv', "{period}.csv"),
    ],
)
def test_templates_of_other_components(project, written, expected):
    read = project.component(trips__files=written)
    assert read.trips.files == expected.replace("ROOT", str(project.root))
