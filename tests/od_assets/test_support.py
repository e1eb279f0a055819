"""The table of what can be combined: each of its rows is refused before a charge, and everything else is accepted."""

from itertools import chain, combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import od_core
from od_assets.series.series import Series
from od_core.flows.planning_page import render_planning_page
from od_core.meaning.features import Refusal, list_usual_formats, read_support, refuse_unsupported
from od_core.privacy.budget import Cap
from tests.od_assets.conftest import ZONES, Project

PLACED = ZONES.assign(longitude=[0, 1, 2, 3, 4, 8], latitude=[50, 51, 55, 53, 57, 58])
GEOGRAPHY = od_core.Geography.from_frame(ZONES, ["region", "zone"])
GATES = pd.DataFrame({"area": ZONES["zone"], "trips": 150})
USERS = ("user", "user_period", "user_year")
DECLARED = {*read_support().groups["records"], *read_support().groups["formats"], "mechanism_options"}
"""Features that only a declaration has."""

EXCLUSIVE = [
    {"trip", *USERS},
    {"bounded", "unbounded"},
    {"epsilon", "rho"},
    {"delta", "no_delta"},
    {"trip", "max_trips_pair"},
    {"minimise", "max_weight", "no_delta"},
    *({user, "max_weight"} for user in USERS),
    {"max_trips_pair", "max_weight"},
    {"inftda_refined", "vanilla_gauss", "stability_histogram", "inftda_stability"},
    *map(set, product(("vanilla_gauss", "stability_histogram"), read_support().groups["mechanism"])),
]
"""Features that no value has together: the type of a unit, budget or mechanism leaves no such choice."""


def identified(row: Refusal) -> str:
    return f"{row.kind} {'+'.join(sorted(row.features))}{' without ' if row.needs else ''}{'/'.join(sorted(row.needs))}"


# The library


def unit_of(features: set[str]) -> od_core.PrivacyUnit:
    neighbours = "unbounded" if "unbounded" in features else "bounded"
    kind = next((kind for kind in USERS if kind in features), "user" if "max_trips_pair" in features else "trip")
    if kind == "trip":
        return od_core.PrivacyUnit("trip", neighbours, max_weight=3 if "max_weight" in features else None)
    year: dict[str, Any] = {"max_trips_year": 8, "id_pattern": ".+"} if kind == "user_year" else {}
    pair = 1 if "max_trips_pair" in features else None
    return od_core.PrivacyUnit(kind, neighbours, "user", 4, max_trips_pair=pair, **year)  # type: ignore[arg-type]


def budget_of(features: set[str], *, pure: bool) -> od_core.Budget:
    if "rho" in features:
        return od_core.Budget(rho="1/10", delta="1e-8")
    shares = {"minimise": ["region x all"]} if "minimise" in features else None
    conversion = "tight" if "conversion" in features else None
    if "no_delta" in features or ((pure or "laplace" in features) and "delta" not in features):
        return od_core.Budget(epsilon=1, shares=shares, conversion=conversion)
    return od_core.Budget(epsilon=1, delta="1e-8", shares=shares, conversion=conversion)


def mechanism_of(features: set[str]) -> od_core.Mechanism:
    if "stability_histogram" in features:
        return od_core.StabilityHistogram()
    if "vanilla_gauss" in features:
        return od_core.VanillaGauss()
    if "inftda_stability" in features:
        return od_core.InfTDAStability()
    options = {"empirical_bayes": {"leaves": "empirical_bayes"}, "shrunk": {"estimate": "shrunk"}, "u": {"u": 2}}
    options |= {"segment_profile": {"segment_profile": 1}, "laplace": {"noise_distribution": "laplace"}}
    stated = {name: value for feature in features & {*options} for name, value in options[feature].items()}
    keeps_all = features & {"inftda_refined", "possible"}
    return od_core.InfTDARefined(**stated) if stated or keeps_all else od_core.InfTDA()  # type: ignore[arg-type]


def plan_of_flows(kind: str, features: set[str]) -> od_core.ReleasePlan:
    geography = od_core.Geography.from_frame(PLACED, ["region", "zone"], coordinates=("latitude", "longitude"))
    counts = {"destination_geography": od_core.Geography.whole()} if kind == "counts" else {}
    return od_core.plan_release(
        geography if "coordinates" in features else GEOGRAPHY,
        **counts,
        unit=unit_of(features),
        budget=budget_of(features, pure=False),
        mechanism=mechanism_of(features),
        segments={"mode": ["car", "bus"]} if "segments" in features else None,
        area_totals="1/10" if "area_totals" in features else None,
        bands=od_core.Bands((1,)) if "bands" in features else None,
        uncounted=od_core.Uncounted("1/4", 9) if "uncounted" in features else None,
        tree="both" if "both_sides" in features else "destination",
        possible=od_core.PossiblePairs.from_rule(GEOGRAPHY, GEOGRAPHY, within_zone=False)
        if "possible" in features
        else None,
        known=od_core.KnownTotals.from_frame(GATES, GEOGRAPHY, side="origin", error="1/50")
        if "known" in features
        else None,
        found={"door": None} if "found" in features else None,
    )


def group_size_mechanism(features: set[str]) -> str | None:
    """Return the name of a mechanism with some features; None if a rule chooses it."""
    if "sorted_sizes" in features:
        return "sizes"
    return "cumulative" if "named_mechanism" in features else None


def made_by_the_library(kind: str, features: set[str], root: Path) -> None:
    """Plan, and do with the plan what the features say: release it, and read, sum or assist the release."""
    pure = {"unit": unit_of(features), "budget": budget_of(features, pure=True)}
    if kind == "boxes":
        od_core.plan_stops((4, 4), **pure)  # type: ignore[arg-type]
    elif kind == "group sizes":
        sizes: dict[str, Any] = {"mechanism": group_size_mechanism(features), "top_code": 5}
        if "brackets" in features:
            sizes |= {"brackets": [1, 3], "top_code": 3 if "top_code" in features else None}
        if "estimated_top_code" in features:
            sizes["top_code"] = od_core.TopCodeEstimate("1/20", 10)
        if "groups_share" in features:
            plan = od_core.plan_group_sizes(GEOGRAPHY, groups_share="1/5", **sizes, **pure)  # type: ignore[arg-type]
            if "intervals" in features:
                _read_intervals_of_sizes(plan)
            return
        od_core.plan_group_sizes(GEOGRAPHY, np.full(len(ZONES), 3), **sizes, **pure)  # type: ignore[arg-type]
    else:
        plan = plan_of_flows(kind, features)
        if "planning_page" in features:
            render_planning_page(plan, "trips")
        if features & {"ledger", "no_ledger", "intervals", "assisted", "sum"}:
            _release_flows(plan, features, root)


def _read_intervals_of_sizes(plan: od_core.GroupSizePlan) -> None:
    given: dict[str, Any] = {"unit": plan.unit, "budget": plan.budget, "mechanism": plan.mechanism, "top_code": 5}
    table = pd.DataFrame({"area": ["Z00"], "size": [3], "groups": [9]})
    od_core.release_group_sizes(table, GEOGRAPHY, groups_share="1/5", noise="table", **given).at_most()


def _release_flows(plan: od_core.ReleasePlan, features: set[str], root: Path) -> None:
    given: dict[str, Any] = {"unit": plan.unit, "budget": plan.budget, "mechanism": plan.mechanism, "noise": "table"}
    given |= {"destination_geography": plan.tree.destination, "uncounted": plan.uncounted, "fault_threshold": 0}
    given |= {"tree": plan.tree.order, "possible": plan.tree.possible, "known": plan.known}
    given |= {"found": plan.tree.found}
    if "ledger" in features:
        ledger = od_core.Ledger(root / "ledger.sqlite")
        ledger.declare(od_core.PrivacyDomain("trips", plan.unit, Cap(epsilon=9, delta="1e-6"), "a test"))
        given |= {"ledger": ledger, "release_id": "trips/2001-01/r1"}
    origin, destination = ("Z00", "Z11") if plan.tree.found is None else ("Z00a", "Z11b")
    flow = {"origin": [origin], "destination": [destination], "trips": [900]}
    table = pd.DataFrame({"area": [origin], "count": [900]} if plan.table == "counts" else flow)
    releases = [od_core.release_flows(table, plan.tree.origin, **given) for _ in range(1 + ("sum" in features))]
    if "intervals" in features:
        releases[0].flows_at(*releases[0].levels[-1], interval=True)
    if "assisted" in features:
        od_core.assist_release(releases)
    if "sum" in features:
        od_core.sum_releases(releases)


# Declarations


def declared(project: Project, kind: str, features: set[str]) -> Series:
    """Return the declaration with some features, and no other that has a choice."""
    unit, flows = unit_of(features), kind in ("flows", "counts")
    changes: dict[str, Any] = {"schedule": None, "domain__unit": unit.kind, "domain__neighbours": unit.neighbours}
    if unit.kind != "trip":
        changes["domain__column"] = "user"
        place = "domain__" if unit.kind == "user_year" else ""
        if flows:
            changes |= {f"{place}bounds": {"max_trips": unit.max_trips, "max_trips_pair": unit.max_trips_pair}}
        if unit.is_of_year:
            changes |= {"domain__id_pattern": unit.id_pattern, "domain__bounds__max_trips_year": unit.max_trips_year}
    if flows:
        budget = budget_of(features, pure=False)
        amount = {"rho": "0.05"} if "rho" in features else {"epsilon": "1"}
        changes["privacy"] = amount | ({"delta": str(budget.delta)} if budget.delta else {})
        changes["privacy"] |= {"shares": {"minimise": ["region x all"]}} if "minimise" in features else {}
        changes["privacy"] |= {"conversion": "tight"} if "conversion" in features else {}
        mechanism = mechanism_of(features)
        options = {"segment_profile": ("segment_profile", 1), "laplace": ("noise_distribution", "laplace")}
        changes |= {
            "mechanism": mechanism.name,
            "mechanism_options": dict(options[name] for name in features & {*options}),
            "estimate": "auto" if "shrunk" in features else None,
        }
        changes["intervals"] = "intervals" in features
        if unit.max_weight is not None:
            changes |= {"bounds__max_weight": 3, "trips__columns__weight": "w", "trips__one_row_a_trip": False}
    if kind == "group sizes":
        changes["mechanism"] = group_size_mechanism(features)
        if "brackets" in features and "top_code" not in features:
            changes["top_code"] = None
    sections: dict[str, dict[str, Any]] = {
        "segments": {"segments": {"mode": {"categories": ["car", "bus"]}}},
        "area_totals": {"area_totals": {"share": "1/10"}},
        "both_sides": {"tree": "both"},
        "possible": {"possible": {"within_zone": False}},
        "known": {"known": {"file": "gates.csv", "level": "zone", "side": "origin", "error": "1/50"}},
        "bands": {"bands": {"cuts": [1]}},
        "uncounted": {"uncounted": {"share": "1/4", "max_trips": 9}},
        "coordinates": {"geography__coordinates": ["latitude", "longitude"]},
        "assisted": {"assisted": True},
        "mechanism_options": {"mechanism_options": {"regression": "least_squares"}},
        "brackets": {"brackets": [1, 3]},
        "estimated_top_code": {"top_code": {"most": 10}},
        "groups_share": {"groups_share": "1/5", "trips__columns": {"area": "zone", "group": "taxi"}},
        "group_list": {"groups": {"file": "taxis.csv"}, "trips__columns": {"group": "taxi"}},
        "many_trips_a_row": {"trips__reader": "lodes"},
        "points": {"trips__reader": "mds"},
        "trips_asset": {"trips__asset": "raw"},
        "stored_table": {"trips__files": "", "trips__delta": {"path": "trips"}, "trips__columns__date": "date"},
        "arrivals": {"arrivals": {}},
        "schedule": {"schedule": "0 6 2 * *"},
        "running": {"automation": "running"},
        "spark": {"engine": "spark", "spark": {"address": "local[2]"}},
    }
    for name in features & {*sections}:
        changes |= sections[name]
    if chosen := [form for form in read_support().groups["formats"] if form in features]:
        changes["formats"] = chosen
    made = {"flows": project.component, "counts": project.counts, "boxes": project.stops}
    return made.get(kind, project.group_sizes)(**changes).require_valid()


def asked(project: Project, kind: str, features: set[str]) -> None:
    """Do what has some features, where such a thing is done: in the library, in a declaration, or in a bundle."""
    if kind == "boxes" and features == {"gis"}:  # a declaration always has a map
        plan = od_core.plan_stops((4, 4), unit=od_core.PrivacyUnit("trip"), budget=od_core.Budget(1))
        assert "gis" not in list_usual_formats(plan.table, plan.features)
        refuse_unsupported(plan.table, plan.features | features)
    elif features & DECLARED:
        declared(project, kind, features)
    else:
        made_by_the_library(kind, features, project.root)


@pytest.mark.parametrize("row", read_support().refusals, ids=identified)
def test_what_the_table_refuses_is_refused_and_nothing_is_charged(row, project):
    features, ledger = {*row.features}, project.root / "ledger.sqlite"
    if "spark" in features and "bands" not in row.needs:
        features.add("bands")
    if "uncounted" in features and "user_year" not in row.needs:
        features.add("user_year")
    if "laplace" in features and row.kind == "flows" and "both_sides" not in row.needs:
        features.add("both_sides")
    if "groups_share" in features and "named_mechanism" not in row.needs:
        features.add("named_mechanism")
    if "found" in features and "inftda_stability" not in row.needs:
        features.add("inftda_stability")
    elif features & {"known", "possible"} and "inftda_refined" not in row.needs:
        features.add("inftda_refined")
    with pytest.raises(od_core.OdError) as refused:
        asked(project, row.kind, features)
    assert (refused.value.code, refused.value.next_step) == (row.code, row.next_step)
    assert row.reason in refused.value.message
    assert refused.value.spent == "nothing was spent"
    assert not ledger.exists() or not od_core.Ledger(ledger).has_drawn()
    assert not (project.var / "ledger.sqlite").exists()


def required(kind: str, features: set[str]) -> set[str] | None:
    """Return the features with all that they need; None if the table refuses them whatever else there is."""
    while True:
        refusing = [row for row in read_support().refusals if row.kind == kind and row.applies_to(features)]
        if not refusing:
            return features
        if not refusing[0].needs:
            return None
        features = {*features, min(refusing[0].needs)}


def choices(kind: str) -> list[str]:
    """Return the features that a declaration of a kind may have."""
    groups = read_support().groups
    pure = ["trip", "bounded", "unbounded", "arrivals", "schedule", "running", "trips_asset", *groups["formats"]]
    if kind == "boxes":
        return [*pure, "map"]
    if kind == "group sizes":
        sizes = ["estimated_top_code", "top_code", "brackets", "sorted_sizes", "groups_share"]
        return [*pure, "named_mechanism", "mechanism_options", *sizes]
    uses = ["ledger", "intervals", "assisted"]
    others = {
        "named_mechanism",
        "mechanism_options",
        "map",
        "many_trips_a_row",
        "points",
        "no_delta",
        "empirical_bayes",
        "u",
    }
    others |= {"found", "inftda_stability"}  # in no declaration
    others |= {"estimated_top_code", "top_code", "brackets", "sorted_sizes", "groups_share", "group_list"}
    chosen = ("unit", "budget", "mechanism", "table", "records", "formats")
    listed = chain.from_iterable(groups[name] for name in chosen)
    only_flows = {"area_totals", "both_sides", "coordinates", "possible", "known"} if kind == "counts" else set()
    return [name for name in (*listed, *uses) if name not in others | only_flows]


PAIRS = [(kind, *pair) for kind in read_support().kinds for pair in combinations(choices(kind), 2)]


@pytest.mark.slow
def test_what_the_table_does_not_refuse_is_accepted(project):
    """Each pair of features, with what they need, is declared without an error, and planned if a plan has both."""
    PLACED.to_csv(project.root / "zones.csv", index=False)
    GATES.to_csv(project.root / "gates.csv", index=False)
    geographies: dict[str, Any] = {}
    accepted, wrong = 0, []
    for kind, *pair in PAIRS:
        features = required(kind, {*pair, "ledger"})
        if features is None or any(len(features & group) > 1 for group in EXCLUSIVE):
            continue
        try:
            series = declared(project, kind, features)
            if DECLARED.isdisjoint(pair):
                lists = f"{type(series)} {series.zone_lists}"
                if lists not in geographies:
                    geographies[lists] = series.read_geography()
                plan = series.plan(geographies[lists], "2001-01", is_reserved=True)
                by_the_rule = {"named_mechanism", "sorted_sizes"}  # which a declaration does not know
                assert plan.features <= series.features | by_the_rule, (kind, features)
        except od_core.OdError as error:
            wrong.append(f"{kind} {sorted(features)}: {error}")
            continue
        missing = features - series.features - {*series.formats}
        assert not missing, (kind, features)
        accepted += 1
    assert not wrong, "\n".join(wrong)
    assert accepted > 500
