"""A series declares how many trips begin, or end, in each zone."""

import datetime
from typing import Any

import pandas as pd
import pytest

from od_assets.resources.warehouse import Warehouse
from od_assets.runs.period_status import list_release_statuses
from od_core import OdError, ReleaseKey, open_release
from od_core.published.publishing import Published
from od_core.published.verification import verify_release
from tests.od_assets.conftest import Project, charge, records

GATES: dict[str, Any] = {"file": "gates-{period}.csv", "level": "zone", "side": "origin", "error": 0}


def write_gates(project: Project, trips: pd.Series | None = None) -> pd.DataFrame:
    """Write the true number of trips from each zone."""
    zones = project.component().read_geography().origin.zones
    true = records()["origin"].value_counts() if trips is None else trips
    gates = pd.DataFrame({"area": zones, "trips": true.reindex(list(zones), fill_value=0).to_numpy()})
    gates.to_csv(project.root / "gates-2001-01.csv", index=False)
    return gates


@pytest.mark.slow
def test_a_month_keeps_exact_totals_and_a_second_run_changes_nothing(project: Project) -> None:
    gates = write_gates(project)
    component = project.component(known=GATES | {"level": project.component().geography.levels[-1]})
    project.publish(component)
    place = Published.from_folder(project.var, ReleaseKey(component.name, "2001-01"))
    bundle = open_release(place.bundle)
    assert bundle.flows.groupby("origin")["trips"].sum().to_dict() == {
        area: trips for area, trips in zip(gates["area"], gates["trips"], strict=True) if trips
    }
    assert bundle.plan.facts()["known"][0]["source"] == "gates-2001-01.csv"
    assert {finding.fault for finding in verify_release(place)} == {None}
    certificate = (place.bundle / "certificate.json").read_bytes()
    project.publish(component)
    assert (place.bundle / "certificate.json").read_bytes() == certificate


@pytest.mark.parametrize(
    ("known", "code"),
    [
        ({"file": "missing.csv"}, "OD-FILE-MISSING"),
        ({"file": "few.csv"}, "OD-KNOWN-TOTALS"),
        ({"level": "county"}, "OD-KNOWN-TOTALS"),
        ({"error": "-1"}, "OD-KNOWN-TOTALS"),
    ],
)
def test_wrong_totals_are_refused_when_they_are_planned(project: Project, known: dict[str, Any], code: str) -> None:
    write_gates(project).iloc[1:].to_csv(project.root / "few.csv", index=False)
    level = project.component().geography.levels[-1]
    component = project.component(known=GATES | {"level": level} | known)
    with pytest.raises(OdError, match=f"{code}:") as refused:
        component.plan(component.read_geography(), "2001-01")
    assert refused.value.spent == "nothing was spent"


def test_both_sides_are_declared_as_a_list_and_options_beside_them_are_refused(project: Project) -> None:
    write_gates(project)
    given = GATES | {
        "level": project.component().geography.levels[-1],
        "error": "1/50",
        "source": "gates",
        "date": datetime.date(2001, 6, 30),
    }
    component = project.component(known=[given, given | {"side": "destination"}])
    plan = component.plan(component.read_geography(), "2001-01")
    assert [totals.side for totals in plan.known] == ["origin", "destination"]
    assert [(totals.source, totals.date) for totals in plan.known] == [("gates", "2001-06-30")] * 2
    with pytest.raises(OdError, match="OD-KNOWN-TOTALS"):
        project.component(known=given, area_totals={"share": "1/10"}).require_valid()


def test_the_totals_of_another_period_are_no_changed_setting(project: Project) -> None:
    """May has as many days as January, and other totals."""
    gates = write_gates(project)
    gates.assign(trips=gates["trips"] + 1).to_csv(project.root / "gates-2001-05.csv", index=False)
    level = project.component().geography.levels[-1]
    changes: dict[str, Any] = {"domain__cap__rho": "1", "periods__last": "2001-05"}
    component = project.component(known=GATES | {"level": level}, **changes)
    for period in ("2001-01", "2001-05"):
        charge(component, period)
    rows = list_release_statuses([component], Warehouse().ledger, Warehouse().ledger.read_states())
    begun = {row["release"].split("/")[1]: row["settings_changed"] for row in rows if row["state"] == "begun"}
    assert begun == {"2001-01": [], "2001-05": []}
