"""The project as Dagster loads it: lineage, checks, groups, schedule, scaffold."""

import datetime
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.utils import make_new_run_id

from od_assets.components import OdSite, OdWarehouse
from od_assets.components.series import build_series_definitions
from od_assets.definitions import defs
from od_assets.resources.dead_runs import HOST_TAG, PROCESS_TAG, SITE_TAG, mark_charge, mark_process, sweep_dead_runs
from od_assets.series.reading import read_declared_series

from .conftest import Project, draw_by_hand

ROOT = Path(__file__).resolve().parents[2]


SITE = dg.AssetKey(["od", "site"])
SERIES = ("us_departures", "us_flight_paths", "us_flights", "us_flights_by_day")


@pytest.fixture(scope="module")
def project_definitions() -> dg.Definitions:
    return defs()


def test_the_lineage_is_one_chain_of_measurements_and_estimates(project_definitions):
    graph = project_definitions.resolve_asset_graph()
    name = "us_flights"
    parents = {
        key.to_user_string(): {p.to_user_string() for p in graph.get(key).parent_keys}
        for key in graph.get_all_asset_keys()
        if key.path[0] == name
    }
    area_totals = {f"{name}/area_totals_{side}" for side in ("origin", "destination")}
    levels = {f"{name}/levels/{kind}_{level}" for kind in ("noisy_measurement", "estimate") for level in range(1, 9)}
    expected = {
        f"{name}/geography": set(),
        f"{name}/raw_trips": set(),
        f"{name}/trip_counts": {f"{name}/geography", f"{name}/raw_trips"},
        **{totals: {f"{name}/trip_counts"} for totals in area_totals},
        f"{name}/refined_flows": levels | area_totals,
        f"{name}/flows": {f"{name}/refined_flows"},
        f"{name}/bundle": {f"{name}/flows"},
    }
    for level in range(1, 9):
        above = set() if level == 1 else {f"{name}/levels/estimate_{level - 1}"}
        expected[f"{name}/levels/noisy_measurement_{level}"] = {f"{name}/trip_counts"} | above
        expected[f"{name}/levels/estimate_{level}"] = {f"{name}/levels/noisy_measurement_{level}"}
    assert parents == expected


@pytest.mark.parametrize(
    ("changes", "sides"),
    [({}, ("origin", "destination")), ({"geography__levels": ["zone"], "tree": "origin"}, ("destination",))],
    ids=str,
)
def test_area_totals_are_measured_beside_the_tree_but_for_the_side_that_it_measures(project, changes, sides):
    component = project.component(area_totals={"share": "1/10"}, **changes)
    graph = project.definitions(component).resolve_asset_graph()
    counted, refined = dg.AssetKey(["trips", "trip_counts"]), graph.get(dg.AssetKey(["trips", "refined_flows"]))
    found = {key for key in graph.get_all_asset_keys() if key.path[-1].startswith("area_totals")}
    assert found == {dg.AssetKey(["trips", f"area_totals_{side}"]) for side in sides}
    assert found <= refined.parent_keys
    for key in found:
        assert graph.get(key).parent_keys == {counted}
        assert graph.get(key).group_name == "trips/levels"


def test_every_asset_is_owned_tagged_and_versioned(project_definitions):
    graph = project_definitions.resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.owners
        assert node.kinds
        assert node.code_version
        assert node.tags.get("od/unit") == ("trip" if key.path[0].startswith(SERIES) else None)
        assert (node.automation_condition is None) == (key != SITE)


def test_every_definition_says_what_it_is_and_where_its_source_is(project_definitions):
    """As far as Dagster has fields for it; a first sentence fits the 100 characters of ``dg list defs``."""
    repository, graph = project_definitions.get_repository_def(), project_definitions.resolve_asset_graph()
    jobs = [job for job in repository.get_all_jobs() if not job.name.startswith("__")]
    specs = list(project_definitions.resolve_all_asset_specs())
    checks = [graph.get_check_spec(key) for key in graph.asset_check_keys]
    for definition in [*specs, *checks, *jobs, *repository.schedule_defs, *repository.sensor_defs]:
        assert definition.description
        assert len(definition.description.split(". ")[0]) < 100
        for reference in definition.metadata["dagster/code_references"].code_references:
            assert Path(reference.file_path).is_file()
    for spec in specs:
        made_by, declared_in = spec.metadata["dagster/code_references"].code_references
        assert "@dg.asset" in Path(made_by.file_path).read_text(encoding="utf-8").splitlines()[made_by.line_number - 1]
        assert declared_in.file_path.endswith("defs.yaml")
        if spec.key.to_user_string() not in ("comparison/runs", "comparison/figures", "od/site"):  # files
            columns = spec.metadata["dagster/column_schema"].columns
            assert columns
            assert all(column.description for column in columns)
    for job in jobs:
        if job.name == "od_verification":  # of all series, whose owners differ
            continue
        assert job.owners == ["team:statistics"]
        assert job.tags.get("od/release", "comparison") == job.name.rsplit("_", 1)[0]


def test_steps_run_in_one_process_unless_the_project_declares_an_executor(project):
    component = project.component()
    for declared in (None, dg.multiprocess_executor):
        found = dg.Definitions.merge(
            build_series_definitions(component), OdWarehouse().build_defs(None), dg.Definitions(executor=declared)
        )
        executor = found.resolve_job_def("trips_release").executor_def
        assert executor.name == (declared or dg.in_process_executor).name


def test_every_check_blocks_and_no_step_retries(project_definitions):
    graph = project_definitions.resolve_asset_graph()
    specs = [graph.get_check_spec(key) for key in graph.asset_check_keys]
    by_series = {name: [spec for spec in specs if spec.key.asset_key.path[0] == name] for name in SERIES}
    # Geography, records, two of the refined flows, four of the flows, and the daily one.
    assert len(by_series["us_flights"]) == 9
    assert len(by_series["us_flights_by_day"]) == 11  # the same, and two of the flights by the type of their day
    assert len(by_series["us_departures"]) == 7  # geography, records, four of the histograms, and the daily one
    assert len(by_series["us_flight_paths"]) == 7
    for name, mine in by_series.items():
        assert all(spec.blocking for spec in mine)
        job = project_definitions.resolve_job_def(f"{name}_release")
        assert job.asset_layer.asset_graph.asset_check_keys == {spec.key for spec in mine}  # none is left unevaluated
        assert "od__site" not in {node.name for node in job.nodes}  # no release is slower, or fails, for it
        settings = job.run_config_schema.config_type.fields["resources"].default_value
        assert settings["od_warehouse"] == settings["od_tables"] == {"config": {}}  # the launchpad shows none
        assert all(node.definition.retry_policy is None for node in job.nodes)


@pytest.mark.parametrize(
    ("declared", "status"),
    [({}, "STOPPED"), ({"automation": "stopped"}, "STOPPED"), ({"automation": "running"}, "RUNNING")],
)
def test_what_starts_by_itself_is_declared(project, declared, status):
    """Of a series its schedule and its sensor of arrivals; of the site its sensor."""
    found = project.definitions(project.component(arrivals={}, **declared)).get_repository_def()
    site = OdSite.model_validate({"owners": ["team:statistics"]} | declared).build_defs()
    [of_site] = site.sensors
    schedule, sensor = found.get_schedule_def("trips_schedule"), found.get_sensor_def("trips_arrivals")
    assert {one.default_status.value for one in (schedule, sensor, of_site)} == {status}


@pytest.mark.parametrize(("tick", "month"), [("2001-07-02", "2001-06"), ("2001-01-02", None)])
def test_each_tick_releases_the_month_before_it(project_definitions, tick, month, tmp_path, monkeypatch):
    monkeypatch.setenv("OD_VAR", str(tmp_path))
    draw_by_hand(read_declared_series("us_flights"), tmp_path)
    repository = project_definitions.get_repository_def()
    schedule = repository.get_schedule_def("us_flights_schedule")
    time = datetime.datetime.fromisoformat(f"{tick}T06:00:00+00:00")
    with dg.build_schedule_context(scheduled_execution_time=time, repository_def=repository) as context:
        outcome = schedule.evaluate_tick(context)
    assert [request.partition_key for request in outcome.run_requests or []] == ([] if month is None else [month])


def test_levels_sort_as_text_where_there_are_ten_or_more(project):
    component = project.component(geography__levels=["a", "b", "c", "d", "e"])
    keys = {spec.key.path[-1] for spec in project.definitions(component).resolve_all_asset_specs()}
    assert {"noisy_measurement_01", "estimate_10"} <= keys


def test_runs_of_a_dead_process_are_reported_and_others_left(project):
    instance = project.instance
    job = project.definitions(project.component()).resolve_job_def("trips_release")
    runs = [instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED) for _ in range(3)]
    mark_process(instance, runs[0].run_id)  # this very process lives
    mark_process(instance, runs[1].run_id)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    instance.add_run_tags(runs[1].run_id, {PROCESS_TAG: f"{ended.pid}-1"})
    instance.add_run_tags(runs[2].run_id, {PROCESS_TAG: f"{ended.pid}-1", HOST_TAG: "another.host"})
    assert sweep_dead_runs(instance) == [runs[1].run_id]
    statuses = [instance.get_run_by_id(run.run_id).status for run in runs]
    assert statuses == [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.STARTED]


def test_a_run_that_is_executed_again_has_no_process_and_no_charge_of_the_first_one(project):
    """Dagster gives it all tags of the first run, whose process has ended meanwhile."""
    instance = project.instance
    job = project.definitions(project.component()).resolve_job_def("trips_release")
    first = instance.create_run_for_job(job, tags=dict(job.tags))
    mark_process(instance, first.run_id)
    mark_charge(instance, first.run_id, [Fraction(1, 4)])
    inherited = {**instance.get_run_by_id(first.run_id).tags, PROCESS_TAG: "999999-1"}
    again = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, tags=inherited)
    killed = instance.create_run_for_job(job, tags=inherited)
    last_heard_of(project, killed, "STARTING")
    assert sweep_dead_runs(instance) == [killed.run_id]  # and not the one that has just begun
    mark_process(instance, again.run_id)
    assert instance.get_run_by_id(again.run_id).tags["od/rho"] == "0"
    mark_charge(instance, again.run_id, [Fraction(1, 8)])
    mark_process(instance, again.run_id)  # in the process of another step
    assert instance.get_run_by_id(again.run_id).tags["od/rho"] == "0.125"
    instance.add_run_tags(again.run_id, {PROCESS_TAG: "999999-1"})
    assert sweep_dead_runs(instance) == [again.run_id]


def left_behind(project: Project, status: str, *, of_ours: bool = True, minutes: int = 60) -> str:
    """A run that was last heard of so long ago, as a kill leaves it before it says which process it is."""
    job = project.definitions(project.component()).resolve_job_def("trips_release")
    run = project.instance.create_run_for_job(job, tags=dict(job.tags) if of_ours else {})
    return last_heard_of(project, run, status, minutes)


def last_heard_of(project: Project, run: dg.DagsterRun, status: str, minutes: int = 60) -> str:
    kind = dg.DagsterEventType[f"PIPELINE_{status}"].value
    heard = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=minutes)
    event = dg.DagsterEvent(event_type_value=kind, job_name=run.job_name)
    project.instance.run_storage.handle_run_event(run.run_id, event, heard)
    return run.run_id


@pytest.mark.slow
def test_runs_that_never_said_which_process_they_are_go_by_their_age(project, project_definitions):
    """All was killed while they started: nobody else ever frees the queue of one."""
    (project.defs / "us_flights").mkdir()
    (project.defs / "us_flights" / "defs.yaml").write_text("type: od_assets.components.OdRelease\n", encoding="utf-8")
    chosen = project.instance.create_run_for_job(
        project_definitions.resolve_implicit_global_asset_job_def(),
        asset_selection=frozenset({dg.AssetKey(["us_flights", "geography"]), dg.AssetKey("us_flights_flows")}),
    )
    keys = frozenset({dg.AssetKey(["us_flights", "geography"]), dg.AssetKey("dashboard")})
    runs = (dg.DagsterRun("some", run_id=make_new_run_id(), asset_selection=keys) for _ in range(2))
    mixed = [project.instance.add_run(run) for run in runs]
    site = project.instance.create_run_for_job(
        project_definitions.resolve_implicit_global_asset_job_def(), tags={SITE_TAG: "true"}
    )
    dead = [
        last_heard_of(project, site, "STARTING"),
        left_behind(project, "STARTING"),
        left_behind(project, "START"),
        left_behind(project, "CANCELING"),
        last_heard_of(project, chosen, "START"),
        last_heard_of(project, mixed[0], "STARTING"),
    ]
    others = [
        left_behind(project, "STARTING", of_ours=False),  # other jobs of the same Dagster are not for us to end
        left_behind(project, "STARTING", minutes=1),
        left_behind(project, "START", minutes=1),
        left_behind(project, "START", of_ours=False),  # it is not for us to say how long it takes
        last_heard_of(project, mixed[1], "START"),  # the asset of another may run first
    ]
    before = [project.instance.get_run_by_id(run).status for run in others]
    assert sorted(sweep_dead_runs(project.instance)) == sorted(dead)
    assert {project.instance.get_run_by_id(run).status for run in dead} == {dg.DagsterRunStatus.FAILURE}
    assert [project.instance.get_run_by_id(run).status for run in others] == before
    assert sweep_dead_runs(project.instance) == []


def test_workspace_and_dg_name_the_same_location():
    workspace = yaml.safe_load((ROOT / "workspace.yaml").read_text(encoding="utf-8"))
    import tomllib

    configured = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["dg"]["project"]
    module = workspace["load_from"][0]["python_module"]
    assert module["location_name"] == configured["code_location_name"]
    assert module["module_name"] == configured["code_location_target_module"]


COMMANDS = """
import sys
for arguments in (["--version"], ["ledger"], ["status"], ["plan", "us_flights"]):
    if arguments == ["status"]:
        import od_assets.series.reading
        print("loaded:", *sys.modules)
    sys.argv[1:] = arguments
    try:
        import od_assets.cli.__main__ as command
        command.main()
    except SystemExit:
        pass
    print("loaded:", *sys.modules)
"""
"""Commands one after another, and what all of them have imported until then: those that import least come first."""


@pytest.mark.slow
def test_commands_that_release_nothing_import_no_dagster_and_read_declarations_without_a_solver(tmp_path):
    """Dagster and SciPy's solvers take a second to import, Numba (which has SciPy without them) and pandas half."""
    environment = os.environ | {"OD_VAR": str(tmp_path)}
    result = subprocess.run([sys.executable, "-c", COMMANDS], capture_output=True, text=True, env=environment)
    lines = [line.split()[1:] for line in result.stdout.splitlines() if line.startswith("loaded: ")]
    version, ledger, reading, status, plan = map(set, lines)
    assert "od_assets.cli.app" in version, result.stderr
    assert "OD-LEDGER-ABSENT" in result.stderr
    assert "us_flights" in result.stdout
    assert not version & {"od_core.ledger.ledger", "od_core.ledger.chain"}
    assert not (version | ledger) & {"pandas"}
    assert "od_assets.series.reading" in reading
    assert not reading & {"scipy.optimize", "scipy.sparse", "scipy.linalg"}
    absent = ("dagster", "od_core.evaluation", "od_core.published.site")
    assert not {name for name in reading if name.startswith(absent)}
    assert not plan & {"dagster", "numba"}
    assert version < ledger < reading < status < plan
