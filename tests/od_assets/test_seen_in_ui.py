"""What Dagster's UI shows: runs of the command line, by the UI's own queries, and runs of the site that are useful."""

import uuid
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import EmptyWorkspaceTarget
from dagster_dg_core.context import DgContext
from dagster_graphql.schema import create_schema

from od_assets.components.project import AFTER_PUBLICATION
from od_assets.project import find_current_project
from od_assets.runs.jobs import execute_job
from tests.projects import make_dg_project

OF_A_JOB = """query ($job: String!, $location: String!) { runsOrError(filter: {
    pipelineName: $job, tags: [{key: ".dagster/repository", value: $location}]
}) { ... on Runs { results { runId } } } }"""
TIMELINE = """{ runsOrError(filter: {}) { ... on Runs { results {
    runId jobName status repositoryOrigin { repositoryName repositoryLocationName }
} } } }"""


@dg.op
def step() -> None:
    """Do nothing."""


@dg.job
def trips_release() -> None:
    step()


def named(root: Path) -> None:
    path, section = root / "pyproject.toml", "[tool.dg.project]"
    path.write_text(path.read_text("utf-8").replace(section, f'{section}\ncode_location_name = "of the team"'), "utf-8")


@pytest.mark.parametrize("change", [named, lambda root: None], ids=["a stated name", "the folder's name"])
def test_the_pages_of_a_job_and_of_the_timeline_find_a_run_of_the_command(tmp_path, monkeypatch, change):
    """The name of the code location is that of ``dg``; another location with a job of the same name has no such run."""
    make_dg_project(tmp_path)
    change(tmp_path)
    monkeypatch.setenv("OD_PROJECT", str(tmp_path))
    location = DgContext.for_project_environment(tmp_path, {}).code_location_name
    assert find_current_project().location == location
    run_id = str(uuid.uuid4())
    with dg.instance_for_test() as instance, WorkspaceProcessContext(instance, EmptyWorkspaceTarget()) as process:
        assert execute_job(trips_release, instance, run_id, None).success

        def asked(query, **variables):
            context = process.create_request_context()
            answer = create_schema().execute(query, context_value=context, variable_values=variables)
            assert answer.errors is None
            return answer.data["runsOrError"]["results"]

        assert asked(OF_A_JOB, job="trips_release", location=f"__repository__@{location}") == [{"runId": run_id}]
        assert asked(OF_A_JOB, job="trips_release", location="__repository__@another") == []
        origin = {"repositoryName": "__repository__", "repositoryLocationName": location}
        expected = {"runId": run_id, "jobName": "trips_release", "status": "SUCCESS", "repositoryOrigin": origin}
        assert asked(TIMELINE) == [expected]
        assert instance.get_run_by_id(run_id).tags["dagster/max_retries"] == "0"


def test_the_site_is_written_after_what_is_new_and_after_a_repair():
    """A bundle that is only read back has the data version that it had."""
    months = dg.MonthlyPartitionsDefinition(start_date="2001-01", end_date="2001-03", fmt="%Y-%m")
    state: dict[str, Any] = {"version": "1", "fails": False, "cursor": None}

    @dg.asset(partitions_def=months)
    def bundle() -> dg.MaterializeResult:
        return dg.MaterializeResult(data_version=dg.DataVersion(state["version"]))

    @dg.asset(deps=[bundle], automation_condition=AFTER_PUBLICATION)
    def site() -> None:
        if state["fails"]:
            raise ValueError

    defs, only = dg.Definitions(assets=[bundle, site]), dg.AssetSelection.assets(site.key)

    def requested(instance):
        tick = dg.evaluate_automation_conditions(defs, instance, asset_selection=only, cursor=state["cursor"])
        state["cursor"] = tick.cursor
        return tick.total_requested

    def published(instance, version, month="2001-01"):
        state["version"] = version
        dg.materialize([bundle], instance=instance, partition_key=month)
        return requested(instance)

    def written(instance, *, fails=False):
        state["fails"] = fails
        dg.materialize([bundle, site], instance=instance, selection=[site], raise_on_error=False)
        return requested(instance)

    with dg.DagsterInstance.ephemeral() as instance:
        assert [requested(instance), published(instance, "1"), written(instance)] == [0, 1, 0]
        assert published(instance, "1") == 0
        assert [published(instance, "2"), written(instance)] == [1, 0]
        assert [published(instance, "1", "2001-02"), written(instance, fails=True), requested(instance)] == [1, 0, 0]
        assert [published(instance, "1", "2001-02"), written(instance)] == [1, 0]
    state["cursor"] = None
    with dg.DagsterInstance.ephemeral() as instance:  # of which the command line released before its first UI
        dg.materialize([bundle], instance=instance, partition_key="2001-01")
        assert [requested(instance), written(instance), requested(instance)] == [1, 0, 0]
