"""The asset of the web site: what it writes, after what, and that no publication depends on it."""

import json

import dagster as dg

from od_assets.components import OdSite
from od_assets.metadata import ALLOWED
from od_assets.resources.dead_runs import PROCESS_TAG
from od_core.ledger.ledger import Ledger
from tests.od_assets.cli.commands import command
from tests.od_assets.conftest import Project, failure_text, public_bytes
from tests.projects import declare

SITE = dg.AssetKey(["od", "site"])
URL = "https://statistics.example/od"
DECLARED = {"owners": ["team:statistics"], "title": "Our trips", "url": URL, "publisher": "Office of Statistics"}


def definitions(project: Project) -> dg.Definitions:
    """The release and the site, as a code location has them."""
    project.declare()
    site = OdSite.model_validate(DECLARED).build_defs(None)
    return dg.Definitions.merge(project.definitions(project.component()), site)


def written(project: Project, definitions: dg.Definitions) -> dg.ExecuteInProcessResult:
    return project.execute(definitions.resolve_implicit_global_asset_job_def(), SITE)


def test_it_is_what_the_command_writes_and_says_what_it_wrote(released):
    found = definitions(released)
    result = written(released, found)
    assert result.success, failure_text(result)
    (event,) = result.asset_materializations_for_node("od__site")
    own = {name: value.value for name, value in event.metadata.items() if not name.startswith("dagster/")}
    assert own.keys() <= ALLOWED
    files = [path for path in (released.var / "site").rglob("*") if path.is_file()]
    assert own == {
        "series": 1,
        "releases": 1,
        "files_written": len(files),
        "first_page": str(released.var / "site" / "index.html"),
        "address": f"{URL}/",
    }
    assert PROCESS_TAG in released.instance.get_run_by_id(result.run_id).tags  # a killed run frees the queue
    declare(released.defs, "site", "OdSite", DECLARED)
    assert json.loads(command("site", "--json").stdout)["changed"] == []
    assert json.loads(command("site", "--title", "Mine", "--json").stdout)["changed"]
    again = written(released, found)
    (event,) = again.asset_materializations_for_node("od__site")
    assert 0 < event.metadata["files_written"].value < len(files)


def test_a_release_stays_published_where_the_site_fails(released):
    found = definitions(released)
    with (released.var / "releases" / "trips" / "2001-01" / "r1" / "tables/flows.parquet").open("ab") as file:
        file.write(b"x")
    before = public_bytes(released.var)
    result = written(released, found)
    assert not result.success
    assert "OD-BUNDLE-DAMAGED" in failure_text(result)
    assert public_bytes(released.var) == before
    ledger = Ledger(released.var / "ledger.sqlite")
    assert [key.release for key in ledger.list_published_releases()] == ["trips"]


def test_it_comes_after_the_bundles_of_all_declared_series(project):
    declare(project.defs, "trips", "OdRelease", {"assisted": True})
    declare(project.defs, "departures", "OdGroupSizes", {})
    declare(project.defs, "broken", "OdRelease", {}).write_text("attributes: [", encoding="utf-8")
    declare(project.defs, "warehouse", "OdWarehouse", {})
    graph = OdSite.model_validate(DECLARED).build_defs(None).resolve_asset_graph()
    parents = {key.to_user_string() for key in graph.get(SITE).parent_keys}
    assert parents == {"trips/bundle", "trips/assisted", "departures/bundle", "broken/bundle"}


def test_what_is_published_while_it_is_written_is_written_next(project):
    found, cursor = definitions(project), None

    def requested():
        nonlocal cursor
        tick = dg.evaluate_automation_conditions(
            found, project.instance, asset_selection=dg.AssetSelection.assets(SITE), cursor=cursor
        )
        cursor = tick.cursor
        return tick.total_requested

    job = found.resolve_implicit_global_asset_job_def()
    requested()
    started = dg.DagsterRunStatus.STARTED
    run = project.instance.create_run_for_job(job, asset_selection=frozenset({SITE}), status=started)
    project.instance.report_runless_asset_event(dg.AssetMaterialization(["trips", "bundle"], partition="2001-01"))
    assert requested() == 0
    project.instance.report_run_failed(run)
    assert requested() == 1
    assert requested() == 0
