"""What the ledger would refuse is said before a run, in the words of the run, and nothing is charged or written."""

from fractions import Fraction
from typing import Any

import pytest

from od_assets.cli.diagnosis import inspect_budget, inspect_declaration
from od_assets.resources.warehouse import Warehouse
from od_core.errors import OdError
from tests.od_assets.cli.commands import refusal
from tests.od_assets.cli.test_init import init
from tests.od_assets.conftest import ATTRIBUTES, Project, charge, states

RHO = {"privacy": {"rho": "0.06", "delta": "1e-8"}}
"""A release needs more than half of the cap of 0.1."""

BEGUN = "noisy_measurement_1.draw_1.parquet"


def begun(project: Project, *levels: int, **changes: Any) -> Any:
    """Charge the month, begin the draws of some levels, and return the settings."""
    settings = project.component(**RHO | changes).require_valid()
    key = charge(settings)
    for level in levels:
        Warehouse().ledger.start_draw(key, level)
    return settings


def refused_in_run(settings: Any) -> str:
    """What the ledger says to a run of the month, which declares and reserves."""
    with pytest.raises(OdError) as refused:
        charge(settings)
    return f"{refused.value.code}: {refused.value.message}"


def test_without_a_ledger_nothing_is_asked_and_none_is_made(project):
    settings, before = project.component().require_valid(), states(project.root)
    finding = inspect_budget(settings, "2001-01")
    assert (finding.ok, finding.what) == (True, "budget of trips/2001-01/r1: nothing is spent yet")
    assert states(project.root) == before


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"revision": 2}, "OD-LEDGER-CAP"),
        ({"privacy": {"rho": "0.05", "delta": "1e-8"}}, "OD-REPLAY-PLAN-CHANGED"),
        ({"domain__cap": {"rho": "0.2", "reason": "first declaration"}}, "OD-LEDGER-CAP-REASON"),
        ({"domain__neighbours": "unbounded"}, "OD-DOMAIN-CONFLICT"),
    ],
)
def test_a_refusal_of_the_ledger_is_that_of_the_run(project, changes, code):
    begun(project)
    settings, before = project.component(**RHO | changes).require_valid(), states(project.root)
    finding = inspect_budget(settings, "2001-01")
    assert states(project.root) == before
    assert str(finding.fault).startswith(f"{code}: ")
    assert finding.fault == refused_in_run(settings)


def test_what_is_charged_is_not_charged_again_and_a_raised_cap_is_not_entered(project):
    settings = begun(project)
    assert inspect_budget(settings, "2001-01").what == "budget of trips/2001-01/r1: it is charged already"
    lowered = {"rho": "0.01", "reason": "below a single release"}
    assert inspect_budget(project.component(**RHO, domain__cap=lowered).require_valid(), "2001-01").what.endswith(
        "charged already"
    )
    raised = {"rho": "0.2", "reason": "a revision"}
    finding = inspect_budget(project.component(**RHO, revision=2, domain__cap=raised).require_valid(), "2001-01")
    assert (finding.ok, finding.what) == (True, "budget of trips/2001-01/r2: the cap allows it")
    assert Warehouse().ledger.balance("trips", "2001-01").cap == Fraction(1, 10)


def test_a_lost_draw_is_charged_once_more_if_the_cap_allows_it(project):
    """A draw whose file is whole is not lost."""
    settings = begun(project, 1, domain__cap={"rho": "0.06", "reason": "no room"})
    finding = inspect_budget(settings, "2001-01")
    assert str(finding.fault).startswith("OD-LEDGER-CAP: drawing a lost level again needs rho 0.0")
    room = project.component(**RHO, domain__cap={"rho": "0.1", "reason": "room"}).require_valid()
    assert inspect_budget(room, "2001-01").what.endswith("lost draws are charged again, which the cap allows: 1")
    folder = Warehouse().confidential.make_subfolder(settings.key("2001-01").folder)
    (folder / BEGUN).write_bytes(b"")
    assert inspect_budget(settings, "2001-01").what.endswith("it is charged already")


def test_plan_doctor_and_init_refuse_a_cap_that_a_run_would_refuse(project):
    """Its number was changed and its reason was not. The data set of ``init`` was charged before under its name."""
    begun(project)
    project.component(**RHO, domain__cap={"rho": "0.2", "reason": "first declaration"})  # writes the domain
    project.declare(ATTRIBUTES | RHO)
    expected = "OD-LEDGER-CAP-REASON: the cap of 'trips' changed from rho 1/10 to rho 1/5 without a new reason"
    for options in ([], ["--json"], ["--page", str(project.root / "page.html")]):
        assert str(refusal("plan", "trips", *options)).startswith(f"{expected} [")
    assert not (project.root / "page.html").exists()
    (faulty,) = (finding for finding in inspect_declaration("trips") if not finding.ok)
    assert (faulty.what, faulty.fault) == ("plan of trips", expected)

    for path in (project.defs / "trips" / "defs.yaml", project.defs / "domains" / "trips.yaml"):
        path.unlink()
    (project.defs / "trips").rmdir()
    assert str(init(name="trips", cap="0.2", reason="first declaration").exception).startswith(f"{expected} [")
    assert not (project.defs / "trips").exists()
