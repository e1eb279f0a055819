"""The job of a release by segment: what it publishes, replays, refuses, and blocks."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest

import od_assets.assets.flows
from od_assets.components import OdRelease
from od_assets.resources.warehouse import verify_published_releases
from od_core import open_release
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from tests.od_assets import conftest

KEY = ReleaseKey("trips", "2001-01", 1)
FLOW_CHECKS = {
    "meets_expectations",
    "same_at_every_level",
    "total_is_n",
    "spend_is_plan",
    "segments_are_counts",
    "segments_sum_to_totals",
}


def by_segment(project: conftest.Project, **changes: Any) -> OdRelease:
    return project.component(**{"segments": conftest.SEGMENTS} | changes)


@pytest.fixture(scope="module")
def first_run(tmp_path_factory) -> Iterator[tuple[Path, dg.ExecuteInProcessResult]]:
    """A month by segment that was published: the folder ``var``, and the run. Not to be changed."""
    with conftest.projects_in(tmp_path_factory.mktemp("by_segment")) as make:
        made = make()
        made.write_records(conftest.records_by_mode())
        result = made.publish(by_segment(made))
        yield made.var, result


@pytest.fixture
def released(project, first_run) -> conftest.Project:
    """The project where that month is published, in a folder of the test."""
    shutil.copytree(first_run[0], project.var, dirs_exist_ok=True)
    project.write_records(conftest.records_by_mode())
    return project


def ledger_of(project: conftest.Project) -> Ledger:
    return Ledger(project.var / "ledger.sqlite")


def test_each_level_draws_its_queries_once_and_all_checks_pass(first_run):
    """A measurement asset draws the totals and all breakdowns of its level; the root has breakdowns alone."""
    var, result = first_run
    evaluations = result.get_asset_check_evaluations()
    assert all(check.passed for check in evaluations)
    assert {check.check_name for check in evaluations if check.asset_key.path[-1] == "flows"} == FLOW_CHECKS
    assert len(evaluations) == 2 + 2 + 6 + 1
    versions = {
        event.asset_key.path[-1]: event.step_materialization_data.materialization.tags["dagster/data_version"]
        for event in result.get_asset_materialization_events()
        if event.asset_key.path[-1].startswith("noisy_measurement")
    }
    assert {name: version.count(".") + 1 for name, version in versions.items()} == {
        f"noisy_measurement_{level}": 2 if level == 0 else 3 for level in range(5)
    }
    ledger, release = Ledger(var / "ledger.sqlite"), open_release(var / "releases" / str(KEY))
    assert [ledger.count_draws(KEY, step.number) for step in release.plan.steps] == [1] * 14
    assert ledger.compute_spent_budget(KEY, release.plan) == release.plan.spent


def test_a_second_run_reads_back_and_publishes_the_same_bytes(released):
    """Also where the estimates are gone, and the bundle and the database have to be made anew."""
    files, spent = conftest.public_bytes(released.var), ledger_of(released).balance("trips", "2001-01").spent
    confidential = released.var / "confidential" / str(KEY)
    drawn = {path.name: path.read_bytes() for path in confidential.glob("noisy_*.parquet")}
    assert len(drawn) == 14
    made = [*confidential.glob("segments_*"), *confidential.glob("refined_*"), *confidential.glob("estimate_*")]
    for path in made:
        path.unlink()
    shutil.rmtree(released.var / "releases")
    assert released.run(by_segment(released)).success
    assert conftest.public_bytes(released.var) == files
    assert all(path.exists() for path in made)
    assert {path.name: path.read_bytes() for path in confidential.glob("noisy_*.parquet")} == drawn
    assert ledger_of(released).balance("trips", "2001-01").spent == spent
    assert verify_published_releases() == [{"release": str(KEY), "verified": True, "faults": {}}]


def test_changed_breakdowns_and_changed_categories_are_refused(released):
    files, spent = conftest.public_bytes(released.var), ledger_of(released).balance("trips", "2001-01").spent
    other_order, other_unknown = (
        {"segments": conftest.SEGMENTS | {"mode": conftest.SEGMENTS["mode"] | mode}}
        for mode in ({"categories": ["bus", "car", "other"]}, {"unknown": "bus"})
    )
    for changes in (other_order, other_unknown, {"segment_share": "1/2"}):
        changed = by_segment(released, **changes)
        assert released.run(changed).success  # what is published stays
        said = conftest.failure_text(released.materialize("trip_counts", component=changed))
        assert "OD-REPLAY-PLAN-CHANGED" in said, changes
        assert "changed: segments" in said, changes
    assert conftest.doctors_faults(released, by_segment(released)) == []
    other = conftest.records_by_mode()
    other.loc[0, "mode"] = "bus"
    for changed in (other, conftest.records_by_mode().assign(date="2001-01-15")):
        released.write_records(changed)
        (finding,) = conftest.doctors_faults(released, by_segment(released))
        assert "OD-REPLAY-INPUT-CHANGED" in str(finding.fault)
        assert "OD-REPLAY-INPUT-CHANGED" in conftest.failure_text(released.run(by_segment(released)))
    assert conftest.public_bytes(released.var) == files
    assert ledger_of(released).balance("trips", "2001-01").spent == spent


def test_a_defect_in_the_segments_blocks_publication_also_of_the_bundle_alone(project, monkeypatch):
    """In the last breakdown alone: a trip in no category; then one less than none, which the next category makes up."""
    project.write_records(conftest.records_by_mode())
    sound = od_assets.assets.flows.refine

    def planted(defect):
        def defective(*arguments):
            levels, segments = sound(*arguments)
            trips = segments["day_type"].copy()
            if defect == "lost trip":
                trips[0, np.argmax(trips[0])] -= 1
            else:
                trips[0] = [-1, 0, trips[0].sum() + 1]
            return levels, segments | {"day_type": trips}

        return defective

    for defect, check in (("lost trip", "segments_sum_to_totals"), ("negative flow", "segments_are_counts")):
        monkeypatch.setattr(od_assets.assets.flows, "refine", planted(defect))
        result = project.run(by_segment(project))
        assert not result.success
        failed = [(c.asset_key.path[-1], c.check_name) for c in result.get_asset_check_evaluations() if not c.passed]
        assert failed == [("flows", check)]
    # Dagster lets assets below a failed check be materialised one by one; publication looks for itself.
    alone = project.materialize("bundle", component=by_segment(project))
    assert "OD-PUBLICATION-REFUSED" in conftest.failure_text(alone)
    assert "flows: segments_are_counts" in conftest.failure_text(alone)
    assert not (project.var / "releases" / str(KEY)).exists()
    assert not (project.var / "release.duckdb").exists()
    monkeypatch.setattr(od_assets.assets.flows, "refine", sound)
    assert project.run(by_segment(project)).success
    facts = json.loads((project.var / "releases" / str(KEY) / "certificate.json").read_text(encoding="utf-8"))
    assert {check["check"] for check in facts["checks"] if check["subject"] == "flows"} == FLOW_CHECKS
