"""The examples of what teams build on published releases: on a correction, a missing month and a withdrawal."""

import os
import re
import runpy
import subprocess
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pandas as pd
import pytest
import yaml

from od_assets.resources.folders import Folders
from od_assets.resources.withdrawal import withdraw
from od_core import ReleaseKey
from tests.od_assets.conftest import Project, records
from tests.wheels import ROOT

EXAMPLE = ROOT / "examples" / "downstream"
DBT = ("dbt-core>=1.9,<1.11", "dbt-duckdb>=1.9,<1.11")


@pytest.fixture
def publish(project, monkeypatch) -> Callable[..., Path]:
    """Publishes a revision of a month of my_city, with as many trips as asked, and returns its table of flows."""
    monkeypatch.setenv("RELEASES", str(project.var / "releases"))
    monkeypatch.setenv("WAREHOUSE", str(project.root / "warehouse.duckdb"))

    def run(month: str, trips: int, revision: int = 1) -> Path:
        project.write_records(records(trips).assign(date=f"{month}-15"), month)
        months = {"periods__first": "2026-01", "periods__last": "2026-03"}
        project.publish(project.component(name="my_city", revision=revision, domain__cap__rho="1", **months), month)
        return locate(project, month, revision)

    return run


def locate(project: Project, month: str, revision: int) -> Path:
    return project.var / "releases" / "my_city" / month / f"r{revision}" / "tables" / "flows.parquet"


def materialize(name: str, **options: Any) -> dg.ExecuteInProcessResult:
    """Materialize an asset of the example, which another code location would load so."""
    module = runpy.run_path(str(EXAMPLE / "assets.py"))
    assets = [module["my_city_flows"], module["busiest_of_quarter"], module["flows_in_warehouse"]]
    dg.Definitions.validate_loadable(module["defs"])
    resources = module["defs"].resources
    return dg.materialize(assets, selection=[name], resources=resources, raise_on_error=False, **options)


def zones(file: Path) -> pd.DataFrame:
    rows = pd.read_parquet(file).query("origin_level == 'zone' and destination_level == 'zone'")
    return rows[["origin", "destination", "trips", "lower", "upper"]].reset_index(drop=True)


def select(project: Project, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(project.root / "warehouse.duckdb"), read_only=True) as database:
        return database.execute(query).fetchall()


def test_an_asset_loads_the_months_of_its_quarter(project, publish):
    """As the sum of three files; not of two, if a month is not published."""
    files = [publish(f"2026-0{month}", 500 * month) for month in (1, 2)]
    refused = materialize("busiest_of_quarter", partition_key="2026-01")
    [failure] = refused.get_step_failure_events()
    assert "not published: 2026-03" in str(failure.step_failure_data.error)
    files.append(publish("2026-03", 1500))
    made = materialize("busiest_of_quarter", partition_key="2026-01").output_for_node("busiest_of_quarter")
    total = pd.concat(map(zones, files)).groupby(["origin", "destination"], as_index=False)["trips"].sum()
    pd.testing.assert_frame_equal(made, total.nlargest(10, "trips"))


def test_a_table_follows_corrections_and_withdrawals(project, publish):
    """The rows are those of the published files, whatever there was before; a second run changes nothing."""

    def changed() -> object:
        result = materialize("flows_in_warehouse")
        assert result.success
        [made] = result.asset_materializations_for_node("flows_in_warehouse")
        return made.metadata["changed_periods"].value

    assert changed() == []
    first, second = publish("2026-01", 500), publish("2026-02", 700)
    assert changed() == ["2026-01", "2026-02"]
    assert changed() == []
    rows = sum(len(pd.read_parquet(file)) for file in (first, second))
    assert select(project, "SELECT count(*), count(DISTINCT period) FROM flows") == [(rows, 2)]
    corrected = publish("2026-01", 900, revision=2)
    assert changed() == ["2026-01"]
    trips = (
        "SELECT sum(trips)::INT FROM flows WHERE period = '{}' AND origin_level = 'zone' AND destination_level = 'zone'"
    )
    assert select(project, trips.format("2026-01")) == [(zones(corrected)["trips"].sum(),)]
    pages(project)
    withdraw(Folders(), ReleaseKey("my_city", "2026-02"), "wrong records")
    withdraw(Folders(), ReleaseKey("my_city", "2026-01", 2), "wrong records")
    assert changed() == ["2026-01", "2026-02"]
    assert select(project, "SELECT DISTINCT period, revision FROM flows") == [("2026-01", 1)]
    assert select(project, trips.format("2026-01")) == [(zones(first)["trips"].sum(),)]


def pages(project: Project) -> None:
    """Run the queries of the pages of Evidence on what its source selects from the table."""
    source = EXAMPLE / "evidence" / "sources" / "od"
    assert yaml.safe_load((source / "connection.yaml").read_text())["type"] == "duckdb"
    with duckdb.connect() as database:
        database.execute(f"ATTACH '{project.root}/warehouse.duckdb' AS kept (READ_ONLY); CREATE SCHEMA od; USE kept")
        selected = (source / "flows.sql").read_text()
        database.execute(f"CREATE TABLE memory.od.flows AS {selected}; USE memory")
        page = (EXAMPLE / "evidence" / "pages" / "index.md").read_text()
        queries = dict(re.findall(r"```sql (\w+)\n(.*?)```", page, re.DOTALL))
        shown = re.findall(r"data=\{(\w+)\}", page)
        assert sorted(shown) == sorted(queries)
        results = {name: database.execute(query).fetchdf() for name, query in queries.items()}
    assert results["busiest"]["trips"].is_monotonic_decreasing
    assert {"lower", "upper"} < {*results["busiest"]}
    assert results["by_month"]["period"].tolist() == ["2026-01", "2026-02"]
    assert results["by_month"]["trips"].tolist() == [
        zones(locate(project, month, revision))["trips"].sum() for month, revision in (("2026-01", 2), ("2026-02", 1))
    ]


@pytest.fixture(scope="module")
def dbt(tmp_path_factory) -> Path:
    """The program dbt with dbt-duckdb, in an environment of its own."""
    folder = tmp_path_factory.mktemp("dbt")
    venv.create(folder, with_pip=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *DBT]
    try:
        subprocess.run(pip, check=True, capture_output=True, timeout=900)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        pytest.skip("dbt-duckdb cannot be installed here")
    return folder / "bin" / "dbt"


@pytest.mark.timeout(1_800)  # it installs dbt
def test_dbt_builds_and_tests_a_model_of_the_newest_revisions(project, publish, dbt):
    publish("2026-01", 500)
    files = {"2026-01": publish("2026-01", 900, revision=2), "2026-02": publish("2026-02", 700)}

    def build() -> dict[str, pd.DataFrame]:
        command = [dbt, "build", "--project-dir", EXAMPLE / "dbt", "--profiles-dir", EXAMPLE / "dbt"]
        places = ["--target-path", str(project.root / "target"), "--log-path", str(project.root / "logs")]
        done = subprocess.run([*command, *places], cwd=project.root, env=os.environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "PASS=4" in done.stdout  # the model and its three tests
        with duckdb.connect(str(project.root / "warehouse.duckdb"), read_only=True) as database:
            rows = database.execute("FROM zone_flows ORDER BY origin, destination").fetchdf()
        return {str(period): of_period for period, of_period in rows.groupby("period")}

    built = build()
    assert {*built} == {*files}
    for period, file in files.items():
        expected = zones(file).sort_values(["origin", "destination"], ignore_index=True)
        found = built[period].reset_index(drop=True)[[*expected]]
        pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    withdraw(Folders(), ReleaseKey("my_city", "2026-02"), "wrong records")
    assert {*build()} == {"2026-01"}
