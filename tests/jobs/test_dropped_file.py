"""For real: ``od-release ui`` runs, the file of a month is dropped in, and its release appears without a hand on it."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from od_assets.components import OdRelease
from od_assets.project import Project
from tests.od_assets.conftest import ATTRIBUTES, DOMAIN, ZONES, draw_by_hand, records
from tests.projects import declare, declare_domain
from tests.servers import UI, serving, wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path) -> Path:
    """A project of one release whose files are taken as they arrive, one second after their last change.

    Its sensor looks every second, and not every thirty as ours does: how long that is makes no difference here.
    """
    shutil.copytree(ROOT / "od_assets", tmp_path / "od_assets", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "workspace.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    sensor = tmp_path / "od_assets" / "sensors" / "automation.py"
    text = sensor.read_text(encoding="utf-8")
    assert text.count("minimum_interval_seconds=30,") == 1
    sensor.write_text(text.replace("minimum_interval_seconds=30,", "minimum_interval_seconds=1,"), encoding="utf-8")
    defs = tmp_path / "od_assets" / "defs"
    for old in [*defs.glob("*/defs.yaml"), *defs.glob("domains/*.yaml")]:
        if old.parent.name != "warehouse":
            old.unlink()
    attributes = {name: fact for name, fact in ATTRIBUTES.items() if name != "schedule"}
    attributes |= {"arrivals": {"settled_seconds": 1}, "periods": {"first": "2001-01", "last": "2001-01"}}
    attributes |= {"automation": "running"}
    declare(defs, "trips", "OdRelease", attributes)
    declare_domain(defs, DOMAIN)
    ZONES.to_csv(tmp_path / "zones.csv", index=False)
    series = OdRelease.model_validate(attributes).with_project(Project(tmp_path, defs, "od_assets.definitions"))
    draw_by_hand(series, tmp_path / "var")
    return tmp_path


@pytest.fixture
def log(project) -> Iterator[Path]:
    """What ``od-release ui`` says, while it runs."""
    home, said = project / "var" / "dagster", project / "log"
    home.mkdir(parents=True)
    shutil.copy(ROOT / "od_assets" / "dagster.yaml", home)
    given = os.environ | {
        "OD_PROJECT": str(project),
        "OD_VAR": str(project / "var"),
        "DAGSTER_HOME": str(home),
        "PYTHONPATH": f"{project}:{ROOT}",
    }
    with serving(UI, project, given, said):
        yield said


def said_by_sensors(home: Path) -> set[str | None]:
    """Why sensors released nothing, as the page of each says it."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        ticks = [
            instance.get_ticks(one.instigator_origin_id, one.selector_id) for one in instance.all_instigator_state()
        ]
    return {tick.skip_reason for of_one in ticks for tick in of_one}


def test_a_month_is_waited_for_and_released_once_its_file_is_there(project, log):
    """What waits is said on the sensor's page; the terminal shows the address, and nothing of idle sensors."""
    waits = "trips/2001-01/r1 is waiting: there is no file 2001-01.csv"
    wait_until(lambda: waits in said_by_sensors(project / "var" / "dagster"), log)
    address = r"The Dagster UI runs until this command ends: http://localhost:\d+/\?token=\S+\n"
    assert re.fullmatch(address, log.read_text(encoding="utf-8"))
    records().to_csv(project / "2001-01.csv", index=False)
    certificate = project / "var" / "releases" / "trips" / "2001-01" / "r1" / "certificate.json"
    wait_until(certificate.exists, log)
    assert json.loads(certificate.read_text(encoding="utf-8"))["release"] == "trips/2001-01/r1"
