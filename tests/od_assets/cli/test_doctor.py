"""Every fault of a declaration is planted once, and found; the command says a line a finding."""

import json
from collections.abc import Callable

import dagster as dg
import pandas as pd
import pytest
import shapely
import yaml

from od_assets.cli import diagnosis as installation
from od_assets.cli.app import main
from od_assets.cli.diagnosis import inspect_declaration
from od_assets.sensors.broken_declarations import BROKEN, make_faults_sensor
from od_core.errors import OdError
from tests.od_assets.canary import COUNT, USER, ZONE, leaks, planted
from tests.od_assets.cli.commands import command
from tests.od_assets.conftest import ATTRIBUTES, DOMAIN, ZONES, Project


@pytest.fixture
def declared(project, monkeypatch) -> Callable[..., Project]:
    """Writes the declaration of ``trips``, with changes, and that of its data set."""

    def write(attributes=ATTRIBUTES, kind="OdRelease", **changes):
        (project.defs / "domains" / "trips.yaml").write_text(yaml.dump(DOMAIN | changes.pop("domain_section", {})))
        project.declare({**attributes, "name": "trips", **changes}, kind)
        return project

    return write


def test_a_declaration_that_fits_is_said_with_its_areas_and_its_plan(declared):
    project = declared()
    whole = inspect_declaration("trips")
    assert all(one.ok for one in whole)
    assert whole[0].what.endswith(": one row per trip")
    assert [one.what.partition(":")[0] for one in whole] == [
        "declaration trips, data set trips",
        "records of trips",
        "geography of trips",
        "plan of trips",
        "assets and schedules of trips",
    ]
    assert whole[2].what.endswith("3 region, 6 zone")
    assert not project.var.exists()


def test_gaps_between_zones_and_zones_without_a_boundary_are_said_and_overlaps_are_a_fault(declared):
    """Of six zones, five are a ring around a lake of 1 in 8 squares, with a sliver between two of them."""
    squares = [[(0, 0), (1, 0), (2, 0)], [(2, 1)], [(2, 2)], [(1, 2)], [(0, 2), (0, 1)]]
    shapes = [shapely.union_all([shapely.box(x, y, x + 1, y + 1) for x, y in part]) for part in squares]
    shapes[1] = shapes[1].difference(shapely.box(2.2, 1.9999, 2.8, 2))
    area = shapely.area(shapes).sum()

    def inspect(shapes):
        project = declared(
            trips={"files": "{period}.csv", "columns": {"origin": ["lon", "lat"], "date": "date"}},
            geography={"file": "zones.csv", "levels": ["region", "zone"], "boundaries": {"file": "zones.geojson"}},
        )
        features = [
            {"type": "Feature", "properties": {"zone": zone}, "geometry": shapely.geometry.mapping(shape)}
            for zone, shape in zip(ZONES["zone"], shapes, strict=False)
        ]
        (project.root / "zones.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        [finding] = [one for one in inspect_declaration("trips") if one.what.startswith("boundaries of trips")]
        return finding

    codes = [repr(zone) for zone in ZONES["zone"]]
    said = inspect(shapes).what
    assert (
        f"zones without a boundary, and so without points: {codes[5]}; gaps between zones: 2, of which slivers: 1"
        in said
    )
    assert f"{(1 + 0.6 * 0.0001) / area:.2g} of the zones' area" in said
    assert f"the largest is beside {', '.join(codes[:5])}" in said
    assert "no gaps between zones" in inspect(shapes[:2]).what
    overlapping = inspect([*shapes[:4], shapely.box(1, 2, 2, 3)])
    assert "overlap, so a point may lie in both" in str(overlapping.fault)


@pytest.mark.parametrize(
    ("changes", "others", "fault"),
    [
        ({"colour": "red"}, 0, "OD-CONFIG"),
        ({"domain": "rides"}, 0, "there is no privacy domain"),
        ({"domain_section": {"unit": "household"}}, 0, "OD-UNIT-UNKNOWN"),
        ({"geography": {"file": "zones.csv", "levels": ["country", "zone"]}}, 3, "OD-GEOGRAPHY-COLUMN"),
        ({"geography": {"file": "none.csv", "levels": ["region", "zone"]}}, 3, "OD-FILE-MISSING"),
        ({"privacy": {"epsilon": "9", "delta": "1e-8"}}, 4, "OD-LEDGER-CAP"),
        ({"owners": ["me"]}, 4, "Invalid owner"),
        ({"schedule": "every monday"}, 0, "no cron line"),
        ({"freshness": {"deadline": "0 12 * * 5", "within_days": 8}}, 0, "OD-FRESHNESS"),
    ],
)
def test_a_fault_of_a_declaration_is_found(declared, changes, others, fault):
    """What does not depend on it is looked at all the same."""
    declared(**changes)
    findings = inspect_declaration("trips")
    (faulty,) = (one for one in findings if not one.ok)
    assert fault in str(faulty.fault)
    assert "\n" not in str(faulty.fault)
    assert len(findings) == others + 1


# The command


def test_no_value_leaves_the_confidential_folder(declared, capfd, monkeypatch):
    """A planted zone, user and count: counted as unlisted and too large, then in a file that cannot be read."""
    project = declared(trips={"files": "{period}.csv", "columns": {"date": "date", "trips": "trips"}})
    monkeypatch.setattr(installation, "load_definitions", dg.Definitions)  # those of this project are tested elsewhere
    project.write_records(pd.concat([planted(), planted()[:1].assign(trips=-COUNT)]))
    said = ""
    for arguments in (["doctor", "trips", "--period", "2001-01"], ["doctor", "--period", "2001-01", "--json"]):
        result = command(*arguments)
        assert result.exit_code == 1
        said += result.output
        with (project.root / "2001-01.csv").open("a") as file:
            file.write(f"{ZONE},{USER}\n")
    facts = {one["what"]: one for one in json.loads(result.stdout)}
    fault = facts["input of trips/2001-01/r1"]["fault"]
    assert fault.startswith("the input would be refused. OD-FILE-UNREADABLE: 2001-01.csv")
    what = "declaration trips, data set trips: column 'trips' holds the number of trips"
    assert facts[what] == {"what": what, "ok": True, "fault": None, "next_step": None}
    details = [path.read_text() for path in (project.var / "confidential" / "errors").iterdir()]
    assert any(ZONE in detail for detail in details)
    assert leaks(project.root, "\n".join([said, *capfd.readouterr()])) == []
    assert not (project.var / "ledger.sqlite").exists()


def test_zones_that_are_the_records_are_refused_without_a_word_of_them(declared, monkeypatch, capfd):
    """Their path is wrong. By doctor and by the command, which keep what they quote in the confidential folder."""
    monkeypatch.setattr(installation, "load_definitions", dg.Definitions)
    project = declared(geography={"file": "2001-01.csv", "levels": ["date", "origin"]})
    for number, header in enumerate((True, False), start=1):
        planted()[::-1].to_csv(project.root / "2001-01.csv", index=False, header=header)
        result = command("doctor", "trips")
        assert "WRONG  geography of trips: OD-GEOGRAPHY-" in result.output
        assert f"read {project.var}/confidential/errors/" in result.output
        monkeypatch.setattr("sys.argv", ["od-release", "plan", "trips"])
        with pytest.raises(SystemExit):
            main()
        said = "".join([result.output, *capfd.readouterr()])
        assert said.count(f"read {project.var}/confidential/errors/") == 2
        assert leaks(project.root, said) == []
        details = list((project.var / "confidential" / "errors").iterdir())
        assert len(details) == 2 * number
    assert any(USER in detail.read_text() for detail in details)  # the first line, which is no header


def test_the_command_says_a_line_a_finding_and_exits_with_1_where_one_is_wrong(declared, monkeypatch):
    left_out = make_faults_sensor(BROKEN, {"trips": OdError("OD-CONFIG", "it is broken", next_step="correct it")})
    monkeypatch.setattr(installation, "load_definitions", lambda: dg.Definitions(sensors=[left_out]))
    monkeypatch.setattr(installation, "LEAST_FREE", 1)
    declared(owners=["me"])
    result = command("doctor", "trips")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert sum(line.startswith("WRONG  assets and schedules of trips: OD-CONFIG") for line in lines) == 1
    assert all(line.startswith(("ok     ", "WRONG  ")) for line in lines[:-1])
    faults = sum(line.startswith("WRONG") for line in lines)
    assert lines[-1] == f"{faults} of {len(lines) - 1} checks found a fault."
    assert "[next: correct the declaration]" in result.stdout
    assert sum(line.startswith("WRONG  code location: OD-CONFIG") for line in lines) == 1
