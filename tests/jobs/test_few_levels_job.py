"""The job of a release at few levels: the root is measured, charged and published, with Gaussian and Laplace noise."""

from typing import Any

import pytest

from od_assets.resources.warehouse import Warehouse
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.published.verification import verify_release
from tests.od_assets.conftest import SEGMENTS, Project, public_bytes

PURE: dict[str, Any] = {
    "privacy": {"epsilon": "3"},
    "mechanism_options": {"noise_distribution": "laplace"},
    "domain__cap": {"epsilon": "3", "reason": "one release"},
    "domain__neighbours": "unbounded",
}
GAUSSIAN: dict[str, Any] = {
    "privacy": {"epsilon": "3", "delta": "1e-6"},
    "domain__cap": {"rho": "1", "reason": "some releases"},
    "domain__neighbours": "unbounded",
}
DAY_TYPES = {"day_type": SEGMENTS["day_type"]}
FEW: dict[str, Any] = {"tree": "both", "area_totals": {"share": "1/5"}}
"""Options of flows at few levels; counts by one hierarchy have few in any case."""


@pytest.mark.parametrize(
    ("kind", "options", "levels"),
    [
        pytest.param("component", PURE | FEW, 5, id="flows with Laplace noise"),
        pytest.param("component", GAUSSIAN | FEW, 5, id="flows with Gaussian noise"),
        pytest.param("component", PURE | FEW | {"segments": DAY_TYPES}, 8, id="segments with Laplace noise"),
        pytest.param("counts", PURE, 3, id="counts with Laplace noise"),
    ],
)
def test_the_root_is_measured_once_and_the_whole_budget_is_charged(project: Project, kind, options, levels):
    """Neighbours are unbounded, so that the total is not exact. A second run publishes the same bytes."""
    component = getattr(project, kind)(**options)
    result = project.publish(component)
    assert all(check.passed for check in result.get_asset_check_evaluations())
    key = ReleaseKey(component.name, "2001-01", 1)
    ledger, plan = Ledger(project.var / "ledger.sqlite"), component.plan(component.read_geography(), "2001-01")
    assert [ledger.count_draws(key, step.number) for step in plan.charged_steps] == [1] * levels
    assert plan.steps[0].level == 0
    below_root = [step.charge.as_rho for step in plan.steps if step.level]
    assert 0 < plan.steps[0].charge.as_rho < min(below_root) / 5
    spent = ledger.balance("trips", "2001-01").spent
    assert spent == (3 if plan.budget.delta == 0 else plan.spent.rho)
    published = public_bytes(project.var)
    assert project.run(component).success
    assert public_bytes(project.var) == published
    place = Warehouse.from_project(component.project).locate_release(key)
    assert [finding.fault for finding in verify_release(place) if finding.fault] == []
