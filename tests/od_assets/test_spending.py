"""The check that the ledger charged what was planned."""

import pytest

from od_assets.checks.release_checks import count_spend_violations
from od_assets.resources.warehouse import Warehouse

from .conftest import ZONES


@pytest.mark.parametrize("kind", ["component", "group_sizes", "stops"])
def test_spending_is_held_to_the_plan_and_its_draws(project, kind):
    """Each level once, then one of them twice, since its draw was lost; not by a plan of half the budget."""
    ZONES.assign(longitude=range(6), latitude=range(6)).to_csv(project.root / "zones.csv", index=False)
    settings, other = (
        getattr(project, kind)(privacy__epsilon=epsilon, domain__cap__rho="9").require_valid()
        for epsilon in ("0.1", "0.05")
    )
    key, geography, warehouse = settings.key("2001-01"), settings.read_geography(), Warehouse()
    plan, ledger = settings.plan(geography, key.period), warehouse.ledger
    ledger.declare(settings.domain)
    ledger.reserve(key, settings.domain.name, plan)
    assert count_spend_violations(warehouse, plan, key) == 0
    for _ in range(2):
        ledger.start_draw(key, plan.steps[-1].level)
    assert ledger.count_draws(key, plan.steps[-1].level) == 2
    assert count_spend_violations(warehouse, plan, key) == 0
    assert count_spend_violations(warehouse, other.plan(geography, key.period), key) == 1
