"""The job of a release that measures area totals: what it draws, how it continues after a failure, what it replays."""

from typing import Any

import dagster as dg
import numpy as np
import pytest

import od_assets.assets.flows
from od_assets.resources.release_work import FlowWork
from od_assets.resources.warehouse import Warehouse
from od_assets.runs.period_status import list_release_statuses
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from tests.od_assets.conftest import SEGMENTS, ZONES, Project, failure_text, public_bytes, records, records_by_mode

KEY = ReleaseKey("trips", "2001-01", 1)
DECLARED: dict[str, Any] = {"area_totals": {"share": "1/10"}}


def metadata(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, Any]:
    (event,) = (one for one in result.get_asset_materialization_events() if one.asset_key.path[-1] == asset)
    return {name: value.value for name, value in event.materialization.metadata.items()}


def drawn(project: Project) -> dict[str, bytes]:
    confidential = project.var / "confidential" / str(KEY)
    return {path.name: path.read_bytes() for path in confidential.glob("noisy_measurement_*")}


def test_area_totals_are_drawn_once_also_after_a_failure_and_used(project, monkeypatch):
    """A run that fails after all draws, a run that publishes, and one that replays; the trips also have a mode."""
    project.write_records(records_by_mode())
    declared = {"segments": {"mode": SEGMENTS["mode"]}, "estimate": "auto"}
    component = project.component(**declared, **DECLARED)
    seen: list[int] = []

    def fail(_plan, _root, measured):
        seen.append(len(measured))
        raise RuntimeError("no such luck")

    with monkeypatch.context() as patch:
        patch.setattr(od_assets.assets.flows, "refine", fail)
        assert not project.run(component).success
    first, ledger = drawn(project), Ledger(project.var / "ledger.sqlite")
    assert (len(first), seen) == (11, [11])  # the root by mode, four levels in total and by mode, and area totals

    result = project.publish(component)
    assert all(check.passed for check in result.get_asset_check_evaluations())
    published, spent = public_bytes(project.var), ledger.balance("trips", "2001-01").spent
    assert project.run(component).success
    assert (public_bytes(project.var), drawn(project)) == (published, first)
    plan = component.plan(component.read_geography(), "2001-01")
    assert [ledger.count_draws(KEY, step.number) for step in plan.charged_steps] == [1] * 11
    assert ledger.balance("trips", "2001-01").spent == spent == plan.spent.rho

    for changes in ({}, {"area_totals": {"share": "1/5"}}):
        changed = project.component(**declared, **changes)
        row, _ = list_release_statuses([changed], ledger, ledger.read_states())
        assert row["settings_changed"] == ["area_totals", "steps"]
    assert project.run(changed).success  # with the settings of the certificate
    assert (public_bytes(project.var), drawn(project)) == (published, first)

    *_, origins, destinations = FlowWork(Warehouse.from_project(component.project), component, KEY).read_measurements()
    for measured, side, levels in (
        (origins, "origin", ("zone", "all")),
        (destinations, "destination", ("all", "zone")),
    ):
        true = records()[side].value_counts()[ZONES["zone"]].to_numpy()
        deviation = float(measured.step.variance) ** 0.5
        assert measured.parents is None
        assert np.abs(measured.noisy.read_values() - true).max() < 10 * deviation  # a chance below 1e-21
        shown = metadata(result, f"area_totals_{side}")
        assert (shown["origin_level"], shown["destination_level"]) == levels
        assert (shown["public_cells"], shown["measured_cells"]) == (6, 6)
        assert shown["standard_deviation"] == pytest.approx(deviation)
        assert shown["rho"] == pytest.approx(float(plan.spent.rho) / 20)


def test_a_side_that_the_tree_measures_itself_has_an_empty_asset(project):
    """All zones are in one region, so the trips from all zones to each one are those from the region."""
    ZONES.assign(region="R").to_csv(project.root / "zones.csv", index=False)
    component = project.component(**DECLARED)
    assets = ("geography", "raw_trips", "trip_counts", "area_totals_origin", "area_totals_destination")
    result = project.materialize(*assets, component=component)
    assert result.success, failure_text(result)
    assert metadata(result, "area_totals_origin")["measured_cells"] == 6
    assert metadata(result, "area_totals_destination") == {"measured_cells": 0}
    assert len(drawn(project)) == 1
