"""The job of one release: what it publishes, replays and refuses."""

import dataclasses
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pandas as pd
import pytest

import od_assets.assets.flows
from od_assets.metadata import ALLOWED
from od_core import open_release
from od_core.errors import OdError
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.accounting import format_rounded_up
from tests.od_assets.conftest import ZONES, Project, doctors_faults, failure_text, public_bytes, records

KEY = ReleaseKey("trips", "2001-01", 1)


def database_content(var: Path) -> dict[str, list[tuple[Any, ...]]]:
    with duckdb.connect(str(var / "release.duckdb"), read_only=True) as connection:
        tables = ("releases", "areas", "flows", "measurements", "checks", "flows_by_level")
        return {table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in tables}


def published(project: Project) -> bool:
    database = project.var / "release.duckdb"
    in_database = database.exists() and bool(database_content(project.var)["releases"])
    return in_database or (project.var / "releases" / str(KEY)).exists()


def test_a_month_is_published_and_a_second_run_changes_nothing(project):
    first = project.run()
    assert first.success
    assert len(first.get_asset_check_evaluations()) == 2 + 2 + 4 + 1
    assert all(check.passed for check in first.get_asset_check_evaluations())
    release = open_release(project.var / "releases" / str(KEY))
    assert int(release.flows["trips"].sum()) == len(records())
    levels = ["all all", "all region", "region region", "region zone", "zone zone"]
    assert [" ".join(pair) for pair in release.levels] == levels
    ledger = Ledger(project.var / "ledger.sqlite")
    assert ledger.compute_spent_budget(KEY, release.plan) == release.plan.spent
    files, content = public_bytes(project.var), database_content(project.var)

    second = project.run()
    assert second.success
    assert public_bytes(project.var) == files
    assert database_content(project.var) == content
    assert ledger.balance("trips", "2001-01").spent == release.plan.spent.rho
    bundles = [result.asset_materializations_for_node("trips__bundle")[0] for result in (first, second)]
    assert len({bundle.tags["dagster/data_version"] for bundle in bundles}) == 1  # so nothing below is made again
    runs = [project.instance.get_run_by_id(result.run_id) for result in (first, second)]
    shown = [run.tags.get("od/rho") for run in runs]
    assert shown == [format_rounded_up(release.plan.spent.rho), None]  # what the run charged, not what the release cost


def test_metadata_is_of_the_allowed_names_and_confidential_assets_have_none(first_run):
    result = first_run[1]
    assert result.success
    for event in result.get_asset_materialization_events():
        materialization = event.step_materialization_data.materialization
        own = {name for name in materialization.metadata if not name.startswith("dagster/") or name in ALLOWED}
        assert own <= ALLOWED
        if materialization.asset_key.path[-1] in ("raw_trips", "trip_counts"):
            assert not own
            assert materialization.tags["dagster/data_version"] == str(KEY)
    for check in result.get_asset_check_evaluations():
        assert set(check.metadata) <= ALLOWED
    assert not [event for event in result.all_events if event.event_type == dg.DagsterEventType.HANDLED_OUTPUT]


SUMS = "children_sum_to_parents"
DEFECTS = {"negative flow": {SUMS, "non_negative_integers"}, "lost trip": {SUMS}}
"""Defects of one flow, and the checks that find them."""


def spoil(nodes: Any, defect: str) -> Any:
    """The nodes of a level, of which the first has a defect."""
    trips = nodes.trips.copy()
    trips[0] -= 1 if defect == "lost trip" else 2 * trips[0]
    return dataclasses.replace(nodes, trips=trips)


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_in_one_estimate_blocks_publication_also_of_the_bundle_alone(project, monkeypatch, defect):
    project.mechanism = "inftda"
    sound = od_assets.assets.flows.estimate_pieces

    def defective(plan, step, parents, noisy):
        for nodes in sound(plan, step, parents, noisy):
            yield spoil(nodes, defect) if step.level == 3 else nodes

    monkeypatch.setattr(od_assets.assets.flows, "estimate_pieces", defective)
    result = project.run()
    failed = {(c.asset_key.path[-1], c.check_name) for c in result.get_asset_check_evaluations() if not c.passed}
    assert failed == {("estimate_3", check) for check in DEFECTS[defect]}
    assert not result.success
    assert not published(project)

    # Dagster lets assets below a failed check be materialised one by one; publication looks for itself.
    monkeypatch.setattr(od_assets.assets.flows, "estimate_pieces", sound)
    project.materialize("levels/noisy_measurement_4", "levels/estimate_4", "flows")
    # Below a negative flow nothing can be made; below a lost trip it can.
    assert (project.var / "confidential" / str(KEY) / "flows.parquet").exists() == (defect == "lost trip")
    alone = project.materialize("bundle")
    assert not alone.success
    if defect == "lost trip":
        assert "OD-PUBLICATION-REFUSED" in failure_text(alone)
        assert "levels/estimate_3: children_sum_to_parents" in failure_text(alone)
    assert not published(project)

    spent = Ledger(project.var / "ledger.sqlite").balance("trips", "2001-01").spent
    assert project.run().success
    assert published(project)
    assert Ledger(project.var / "ledger.sqlite").balance("trips", "2001-01").spent == spent


def test_no_trips_at_all_are_refused_before_any_draw_unless_the_month_may_be_empty(project):
    project.write_records(records().head(0))
    assert "OD-TRIPS-NONE" in failure_text(project.run())
    assert _spent(project) == 0
    assert project.run(project.component(trips__accept_empty=True)).success
    release = open_release(project.var / "release.duckdb")
    assert release.flows.empty
    assert _spent(project) == release.plan.spent.rho


def test_changed_settings_leave_what_is_published_and_changed_records_are_refused(released):
    files = public_bytes(released.var)
    assert doctors_faults(released, released.component()) == []
    assert released.run(released.component(privacy__epsilon="2")).success  # with the settings of the certificate
    assert public_bytes(released.var) == files
    released.write_records(records().iloc[1:])
    (finding,) = doctors_faults(released, released.component())
    assert str(finding.fault).startswith("the input would be refused. OD-REPLAY-INPUT-CHANGED: ")
    assert "OD-REPLAY-INPUT-CHANGED" in failure_text(released.run())
    assert public_bytes(released.var) == files


def test_a_revision_is_a_new_release_and_is_charged(released):
    once = _spent(released)
    released.write_records(records().iloc[1:])
    assert released.run(released.component(revision=2)).success
    assert _spent(released) == 2 * once
    newest = open_release(released.var / "release.duckdb")
    assert int(newest.flows["trips"].sum()) == len(records()) - 1


def test_a_lost_ledger_never_begins_anew(released):
    """Without its ledger nothing is drawn: it alone knows what was spent."""
    files = public_bytes(released.var)
    for path in released.var.glob("ledger.sqlite*"):
        path.unlink()
    for component in (released.component(), released.component(revision=2)):
        assert "OD-LEDGER-ROLLED-BACK" in failure_text(released.run(component))
    assert public_bytes(released.var) == files
    shutil.rmtree(released.var / "confidential")
    assert "OD-LEDGER-ROLLED-BACK" in failure_text(released.run())
    shutil.rmtree(released.var / "releases")
    assert "OD-LEDGER-ROLLED-BACK" in failure_text(released.run())  # the database still has it


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_in_the_refined_flows_blocks_publication(project, monkeypatch, defect):
    sound = od_assets.assets.flows.refine

    def defective(*arguments):
        levels, segments = sound(*arguments)
        levels[3] = spoil(levels[3], defect)
        return levels, segments

    monkeypatch.setattr(od_assets.assets.flows, "refine", defective)
    result = project.run()
    failed = {(c.asset_key.path[-1], c.check_name) for c in result.get_asset_check_evaluations() if not c.passed}
    assert failed == {("refined_flows", check) for check in DEFECTS[defect]}
    assert not result.success
    assert not published(project)
    monkeypatch.setattr(od_assets.assets.flows, "refine", sound)
    assert project.run().success
    assert published(project)


def test_assets_alone_are_held_to_the_geography_of_their_release(project):
    """Two zones change their region between the measurements and the publication."""
    assert project.materialize(*all_but_the_bundle()).success
    swapped = ZONES.assign(region=ZONES["region"].replace({"R0": "R1", "R1": "R0"}))
    swapped.to_csv(project.root / "zones.csv", index=False)
    job = project.definitions(project.component()).resolve_implicit_global_asset_job_def()
    assert project.execute(job, ["trips", "geography"]).success
    for key in ("flows", "bundle"):
        assert "OD-REPLAY-PLAN-CHANGED" in failure_text(project.materialize(key))
    assert not published(project)


def test_assets_alone_are_held_to_the_records_of_their_release(project):
    assert project.materialize(*all_but_the_bundle()).success
    project.write_records(pd.concat([records(), records(300)]))
    assert project.materialize("raw_trips").success
    assert "OD-REPLAY-INPUT-CHANGED" in failure_text(project.materialize("trip_counts"))
    assert project.materialize("levels/estimate_1", "refined_flows", "flows", "bundle").success
    assert int(open_release(project.var / "release.duckdb").flows["trips"].sum()) == len(records())


def all_but_the_bundle() -> list[str]:
    levels = [f"levels/{kind}_{level}" for level in range(1, 5) for kind in ("noisy_measurement", "estimate")]
    return ["geography", "raw_trips", "trip_counts", *levels, "refined_flows", "flows"]


def _spent(project: Project) -> Fraction:
    """Rho charged to the month; nothing where not even the domain is declared."""
    ledger = Ledger(project.var / "ledger.sqlite")
    try:
        return ledger.balance("trips", "2001-01").spent
    except OdError as error:
        if error.code != "OD-DOMAIN-UNDECLARED":
            raise
        return Fraction(0)
