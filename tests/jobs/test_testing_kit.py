"""Dry runs of declarations of every kind, and the example of the documentation in another team's project."""

import json
import os
import re
import stat
import subprocess
import sys
from typing import Any

import jsonschema
import pandas as pd
import pytest

from od_assets.assets import release as assets
from od_assets.project import CHECKOUT
from od_assets.series.reading import RELEASES, read_declared_series
from od_assets.testing import dry_run
from od_core import OdError, Plan, explain_release, open_release
from tests.od_assets import conftest
from tests.od_assets.test_key_prefix import set_prefix
from tests.projects import declare as declare_component
from tests.projects import declare_domain, define_all

TEXTS = (".html", ".md", ".txt", ".json")
PROMISES = (
    r"learns almost nothing|-differentially private|eleased with differential privacy|right at most|is the promise"
)

FLOWS, COUNTS, GROUP_SIZES, STOPS = RELEASES

WEEKS = {"unit": "user", "column": "rider", "neighbours": "unbounded", "elementary_period": "day"}
YEARS = {
    "unit": "user_year",
    "column": "id",
    "bounds": {"max_trips": 9, "max_trips_year": 60},
    "id_pattern": "[0-9a-f]{16}",
}

Case = tuple[str, dict[str, Any], dict[str, Any]]
"""Component, attributes of the declaration, and those of the data set."""


def flows(domain: dict[str, Any] | None = None, **changes: Any) -> Case:
    """A release of flows with changes."""
    return FLOWS, conftest.ATTRIBUTES | changes, domain or {}


PARQUET_OF_ASSET = conftest.ATTRIBUTES["trips"] | {"asset": "lake/trips", "files": "s3/{period}.parquet"}
TEXT_WITH_NUMBERS = {"files": "flows.csv.gz", "delimiter": ";", "columns": {"date": "day", "trips": "n"}}
TABLE = {"files": "rides.duckdb", "table": "team.rides", "columns": {"date": "at"}, "one_row_a_trip": True}
BY_SIZE = {"files": "{period}.csv", "columns": {"area": "z", "size": "persons", "groups": "n"}}
POINTS = {"files": "{period}.csv", "columns": {"points": [["x", "y"], ["x2", "y2"]]}}
DISTANCE = {"derive": "number", "breaks": [1, 5.5], "bands": ["short", "middle", "long"]}
LATEST = {"deadline": "0 9 1 * *", "within_days": 20}

CASES: dict[str, Case] = {
    "flows of an asset": flows(trips=PARQUET_OF_ASSET, schedule=None),
    "numbers of trips": flows(trips=TEXT_WITH_NUMBERS),
    "weights": flows(trips={"files": "{period}.csv", "columns": {"weight": "w"}}, bounds={"max_weight": 3}),
    "area totals and arrivals": flows(area_totals={"share": "1/10"}, arrivals={}, freshness=LATEST),
    "segments": flows(segments=conftest.SEGMENTS | {"distance": DISTANCE}),
    "users of a week that has not ended": flows(
        WEEKS, bounds={"max_trips": 4, "max_trips_pair": 1}, periods={"first": "2100-W05", "every": "week"}, trips=TABLE
    ),
    "users of a year": flows(YEARS, uncounted={"share": "0.01", "max_trips": 50}),
    "bands": flows(bands={"cuts": [2]}, revision=3),
    "commuters": flows(trips={"files": "{period}.csv.gz", "reader": "lodes"}),
    "counts": (COUNTS, conftest.COUNT_ATTRIBUTES, {}),
    "group sizes of days": (GROUP_SIZES, conftest.GROUP_ATTRIBUTES, {}),
    "numbers of groups": (
        GROUP_SIZES,
        conftest.GROUP_ATTRIBUTES
        | {"groups": {"file": "numbers.csv", "area": "zone", "groups": "households"}, "trips": BY_SIZE},
        {},
    ),
    "points": (
        STOPS,
        conftest.STOPS_ATTRIBUTES | {"map": {"edges": [7.5, 8, 45, 45.5], "side": 16}, "trips": POINTS},
        {},
    ),
}


def declare(project: conftest.Project, case: str, **further: Any) -> str:
    """Write the declaration of a case, with the public lists that it names, and return its name."""
    component, attributes, domain = CASES[case]
    attributes = attributes | further
    project.declare(attributes, component.rpartition(".")[2])
    declare_domain(project.defs, conftest.DOMAIN | domain)
    coordinates = conftest.ZONES.assign(longitude=[7.6, 7.7, 7.8] * 2, latitude=[45.1, 45.2] * 3)
    coordinates.to_csv(project.root / "zones.csv", index=False)
    groups = pd.DataFrame({"group": [f"household {n}" for n in range(60)], "area": list(conftest.ZONES["zone"]) * 10})
    groups.to_csv(project.root / "groups.csv", index=False)
    conftest.ZONES.assign(households=5)[["zone", "households"]].to_csv(project.root / "numbers.csv", index=False)
    (project.root / "2001-01.csv").unlink()  # no record is there
    return str(attributes["name"])


def plan_of(name: str) -> Plan:
    series = read_declared_series(name)
    return series.plan(series.read_geography(), series.periods.first.text)


@pytest.mark.parametrize("case", CASES)
def test_any_declaration_is_run_on_made_up_records(project, case, tmp_path_factory, monkeypatch):
    """No record is faulty: a single one would fail a run of a threshold of 0. A wrong ledger would be unreachable."""
    name = declare(project, case)
    if case == "counts":
        set_prefix(project, "north")
    before, elsewhere = conftest.states(project.root), tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setenv("OD_LEDGER", "postgresql://nobody@/nowhere?host=/nowhere")
    release = dry_run(name, elsewhere)
    assert conftest.states(project.root) == before
    assert release.plan.charge == plan_of(name).charge
    assert release.spent.rho == release.plan.charge.as_rho
    assert [path.name for path in elsewhere.iterdir()] == ["dry_run"]
    assert [path.name for path in (elsewhere / "dry_run").iterdir()] == ["releases"]
    [certificate] = (elsewhere / "dry_run" / "releases").glob("*/*/*/certificate.json")
    facts = json.loads(certificate.read_text(encoding="utf-8"))
    assert (facts["noise"], release.noise) == ("dry_run", "dry_run")
    assert facts["guarantee"]["protected"].startswith("This is a dry run: nothing is protected.")
    schema = json.loads((certificate.parent / "certificate.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(facts, schema)
    texts = [page.read_text(encoding="utf-8") for page in certificate.parent.iterdir() if page.suffix in TEXTS]
    assert sum("Dry run of invented records, without a guarantee" in text for text in texts) >= 4
    assert not [text for text in texts if re.search(PROMISES, text)]
    for read in (open_release, explain_release):
        with pytest.raises(OdError, match="OD-CERTIFICATE-DRY-RUN"):
            read(certificate.parent)
    if case in ("flows of an asset", "bands", "area totals and arrivals"):
        assert release.flows["trips"].sum() == 1000  # exact, because any of the made-up trips may be replaced alone


def test_given_records_are_run_again_and_nothing_confidential_is_left(project, tmp_path_factory, monkeypatch):
    """While steps run, only their owner can reach their files; whether they succeed or fail, the files are removed."""
    name, elsewhere = declare(project, "bands"), tmp_path_factory.mktemp("elsewhere")
    rows, modes, load = conftest.records(), list[tuple[str, int]](), assets.load_period

    def look(series, period, target, *given):
        [folder] = elsewhere.glob(".dry_run-*")
        held = [*folder.rglob("given/*"), *(folder / "confidential").parents]
        modes.extend((path.parent.name, path.stat().st_mode) for path in held[:2])
        return load(series, period, target, *given)

    monkeypatch.setattr(assets, "load_period", look)
    old = os.umask(0)
    try:
        with pytest.raises(OdError, match=r"OD-TESTING: .*trips/raw_trips: check meets_expectations failed") as refused:
            dry_run(name, elsewhere, "2001-01", rows.assign(origin="Zurich"))
    finally:
        os.umask(old)
    assert "Zurich" not in str(refused.value)
    assert [*elsewhere.iterdir()] == []
    assert modes == [("given", stat.S_IFREG | 0o600), (elsewhere.name, stat.S_IFDIR | 0o700)]
    rows.to_csv(project.root / "given.csv", index=False)
    first = dry_run(name, elsewhere, records=project.root / "given.csv")
    assert first.flows["trips"].sum() == len(rows)
    assert dry_run(name, elsewhere, records=rows).flows.equals(first.flows)  # the noise is the same
    assert dry_run(name, elsewhere, records=rows.iloc[1:]).flows["trips"].sum() == len(rows) - 1
    assert [path.name for path in elsewhere.rglob("*") if path.stat().st_mode & 0o077 == 0] == []
    assert {path.name for path in elsewhere.iterdir()} == {"dry_run"}


def test_the_example_of_the_documentation_passes_in_another_teams_project(project):
    page = (CHECKOUT / "docs" / "how-to" / "own-dagster-project.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```python\n(from od_assets\.testing .*?)```", page, re.DOTALL)
    declare(project, "bands", name="my_city")
    declare_component(project.defs, "warehouse", "OdWarehouse", {})
    define_all(project.root, "dagster")
    (project.root / "test_declarations.py").write_text(example, encoding="utf-8")
    own = {name: value for name, value in os.environ.items() if not name.startswith("OD_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    environment = own | {"PYTHONPATH": f"{project.root}:{CHECKOUT}"}
    done = subprocess.run(
        [*command, "-W", "error::UserWarning"], cwd=project.root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (project.root / "var").exists()
