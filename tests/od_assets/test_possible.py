"""A series declares which pairs of zones can have trips."""

from typing import Any

import pandas as pd
import pytest

from od_core import OdError, ReleaseKey, open_release
from od_core.published.publishing import Published
from od_core.published.verification import verify_release
from tests.od_assets.conftest import Project, failure_text, records


@pytest.mark.slow
@pytest.mark.parametrize("option", [{"area_totals": {"share": "1/10"}}, {"bands": {"cuts": [1], "part_trips": 100}}])
def test_a_month_has_no_other_flow_and_a_second_run_changes_nothing(project: Project, option: dict[str, Any]) -> None:
    every = records()
    others = every[every["origin"] != every["destination"]]
    project.write_records(others)
    others[["origin", "destination"]].drop_duplicates().iloc[:20].to_csv(project.root / "routes.csv", index=False)
    listed = {"pairs": "routes.csv", "within_zone": False}
    refused = project.run(project.component(possible=listed))
    assert "OD-TRIPS-FAULTS" in failure_text(refused)  # some trips are of pairs that are not listed
    component = project.component(possible={"within_zone": False}, **option)
    project.publish(component)
    place = Published.from_folder(project.var, ReleaseKey(component.name, "2001-01"))
    bundle = open_release(place.bundle)
    assert (bundle.flows["origin"] != bundle.flows["destination"]).all()
    assert bundle.plan.facts()["possible"]["pairs"] == len(bundle.tree.origin.zones) * (
        len(bundle.tree.origin.zones) - 1
    )
    assert {finding.fault for finding in verify_release(place)} == {None}
    certificate = (place.bundle / "certificate.json").read_bytes()
    project.publish(component)
    assert (place.bundle / "certificate.json").read_bytes() == certificate


@pytest.mark.parametrize(
    ("possible", "code"),
    [
        ({"pairs": "missing.csv"}, "OD-FILE-MISSING"),
        ({"pairs": "unlisted.csv"}, "OD-POSSIBLE-PAIRS"),
        ({"distance_km": [1]}, "OD-POSSIBLE-PAIRS"),
        ({"distance_km": [300, 1]}, "OD-POSSIBLE-PAIRS"),
        ({"distance_km": [1, 300]}, "OD-POSSIBLE-PAIRS"),  # the zones have no coordinates
        ({"pairs": "one.csv", "within_zone": False}, "OD-POSSIBLE-PAIRS"),  # none is left
    ],
)
def test_a_wrong_list_or_rule_is_refused_when_it_is_planned(
    project: Project, possible: dict[str, Any], code: str
) -> None:
    zones = project.component().read_geography().origin.zones
    pd.DataFrame({"origin": ["elsewhere"], "destination": zones[:1]}).to_csv(project.root / "unlisted.csv", index=False)
    pd.DataFrame({"origin": zones[:1], "destination": zones[:1]}).to_csv(project.root / "one.csv", index=False)
    component = project.component(possible=possible)
    with pytest.raises(OdError, match=f"{code}:") as refused:
        component.plan(component.read_geography(), "2001-01")
    assert refused.value.spent == "nothing was spent"


def test_options_beside_it_are_refused_as_in_the_table(project: Project) -> None:
    with pytest.raises(OdError, match="OD-POSSIBLE-PAIRS"):
        project.component(possible={"within_zone": False}, assisted=True).require_valid()
