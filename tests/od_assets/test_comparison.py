"""A comparison through its assets and the command line: resumed, reported, and refused without a mark."""

import json
import uuid
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from od_assets.components import OdComparison
from od_assets.components.project import build_comparison_definitions
from od_assets.resources.dead_runs import PROCESS_TAG
from od_assets.runs.jobs import execute_job, run_comparison
from od_core.errors import OdError
from od_core.flows.mechanisms import StabilityHistogram

ZONES = pd.DataFrame({"region": ["A", "A", "B"], "zone": ["01", "02", "03"]})
FLOWS = pd.DataFrame({"origin": ["01", "03", "01"], "destination": ["02", "03", "02"], "trips": [500, 70, 200]})

COMMUTERS = {"name": "commuters", "marked": "public", "flows": "flows.csv", "columns": {"trips": "trips"}}
ATTRIBUTES: dict[str, Any] = {
    **{"name": "trial", "owners": ["team:statistics"], "synthetic": ["binary sparse"]},
    **{"mechanisms": ["inftda", "stability_histogram"], "epsilons": ["1"], "runs": 2},
    "tables": [COMMUTERS | {"zones": "zones.csv", "levels": ["region", "zone"]}],
}


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("OD_PROJECT", str(tmp_path))
    monkeypatch.setenv("OD_VAR", str(tmp_path / "var"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    FLOWS.to_csv(tmp_path / "flows.csv", index=False)
    ZONES.to_csv(tmp_path / "zones.csv", index=False)
    return tmp_path


def component(**changes: Any) -> OdComparison:
    declared: OdComparison = OdComparison.model_validate(ATTRIBUTES | changes)
    return declared


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_comparison_is_made_once_and_reported(root):
    declared = component(synthetic=[], runs=1)
    failures = run_comparison(declared, root / "docs")
    assert failures == []
    runs = {path: path.stat().st_mtime_ns for path in (root / "var").rglob("runs/*.json")}
    assert len(runs) == 4
    for path in runs:
        record = json.loads(path.read_text(encoding="utf-8"))
        assert record["levels"][0]["level"] == 0
    table = pd.read_parquet(root / "docs" / "comparison.parquet")
    assert set(table["data_set"]) == {"commuters"}
    assert {label.partition(",")[0] for label in table["contender"]} == {"inftda", "stability_histogram"}
    assert len(set(table["contender"])) == 4  # both orders of IntOpt, and both thresholds
    assert (table["runs"] == 1).all()
    text = (root / "docs" / "tables.md").read_text(encoding="utf-8")
    assert "### commuters, epsilon 1" in text
    assert "| commuters | public | 770 | 2 | 9 | 4 |" in text
    assert len(list((root / "docs").glob("*.svg"))) == len(list((root / "docs").glob("*.png"))) > 0
    with dg.DagsterInstance.get() as instance:  # else nobody would see that the process of one is gone
        assert [PROCESS_TAG in run.tags for run in instance.get_runs()] == [True, True]
        again = build_comparison_definitions(declared).resolve_job_def("trial_runs")
        assert execute_job(again, instance, str(uuid.uuid4()), "commuters").success
    assert {path: path.stat().st_mtime_ns for path in runs} == runs


@pytest.mark.parametrize("marked", [None, "", "confidential"])
def test_data_that_is_not_marked_is_refused_by_name(root, refused, marked):
    """Before an asset of it exists; nothing is read."""
    tables = [ATTRIBUTES["tables"][0] | {"marked": marked, "flows": "absent.csv"}]
    with pytest.raises(OdError, match="OD-EVALUATION-CONFIDENTIAL: data set 'commuters' is not marked"):
        component(tables=tables).build_defs()
    arguments = ["--flows", str(root / "flows.csv"), "--zones", str(root / "zones.csv"), "--levels", "region,zone"]
    marks = [] if marked is None else ["--marked", marked]
    said = refused("compare-mechanisms", *arguments, *marks)
    assert said.startswith("OD-EVALUATION-CONFIDENTIAL: data set 'flows' is not marked")
    assert not (root / "var").exists()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"synthetic": ["binary sparce"]}, "OD-EVALUATION-UNKNOWN: .*'binary sparse'"),
        ({"mechanisms": ["inftdb"]}, "OD-MECHANISM-UNKNOWN: .*'inftda'"),
        ({"mechanisms": ["inftda_stability"]}, "OD-FOUND-LEVELS"),
        ({"epsilons": ["0"]}, "OD-BUDGET-EPSILON"),
        ({"runs": 0}, "OD-EVALUATION-RUNS"),
    ],
)
def test_a_declaration_with_a_mistake_is_refused(root, changes, code):
    with pytest.raises(OdError, match=code):
        component(**changes).require_valid()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_table_with_a_fault_fails_in_one_line(root):
    (root / "flows.csv").unlink()
    failures = run_comparison(component(synthetic=[]))
    assert "OD-FILE-MISSING: there is no file flows.csv" in failures[0]


def test_one_variant_of_a_mechanism_can_be_declared(root):
    label = "stability_histogram, the paper's threshold"
    (run,) = component(mechanisms=[label], runs=1).require_valid().list_runs("commuters")
    assert (run.contender.label, run.contender.mechanism) == (label, StabilityHistogram("bun_nissim_stemmer"))
