"""Print plans, releases and their guarantees on the command line."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pandas as pd
import typer
from rich.text import Text

from od_assets.cli.tables import print_frame, print_rows
from od_assets.terminal import WRONG, console
from od_core import Plan, ReleasePlan
from od_core.flows.confidence import DEVIATIONS
from od_core.flows.publishing.chosen_rule import ESTIMATORS, declared_rule
from od_core.privacy.accounting import epsilon_tight, promise_text, text_above, text_below
from od_core.privacy.budget import Spent, SpentDirectly
from od_core.privacy.person_year import alike
from od_core.publication.bundle import REPORT
from od_core.publication.number_formats import rounded

if TYPE_CHECKING:  # importing Dagster takes half a second
    from od_assets.runs.run_period import Outcome, Released
    from od_assets.series.series import Series
    from od_core.published.derived import PublishedFlows


_FEW_PAIRS = 4_000_000
"""Largest number of pairs of zones for which ``estimate: auto`` is suggested: above it, it takes many seconds."""


def spent_text(spent: Spent) -> str:
    """Return the spent budget as text: rho with epsilon by each accounting method, or epsilon, delta and rho.

    The first epsilon is the one that the release guarantees.
    """
    rho = f"rho {text_above(spent.rho)}"
    if isinstance(spent, SpentDirectly):
        return f"{promise_text(spent.epsilon, spent.delta)} ({rho} of the cap)"
    exact = "" if spent.epsilon_exact is None else f"{text_above(spent.epsilon_exact)} (exact), "
    tight, older = text_above(spent.epsilon_tight), text_above(spent.epsilon_bun_steinke)
    return f"{rho}: epsilon {exact}{tight} (tight), {older} (Bun-Steinke) at delta {text_above(spent.delta)}"


def conversion_text(plan: Plan) -> str:
    """Return a sentence on how the rho of a release of flows was computed; empty for other kinds of releases.

    If rho was not computed by the declared or default conversion, the sentence states what the exact conversion
    requires.
    """
    if not isinstance(plan, ReleasePlan):
        return ""
    if plan.budget.rho is not None:
        return " Rho was given."
    if plan.conversion == (plan.budget.conversion or plan.mechanism.default_conversion):
        return f" Rho was found by conversion {plan.conversion!r}."
    return f" Rho was found by conversion {plan.conversion!r}; 'exact' requires unit trip and a delta from 1e-12."


def print_plan(series: Series[Any, Any], plan: Plan, *, verbose: bool) -> None:
    """Print what one period would spend, and what could be read in it.

    Args:
        plan: plan of the period.
        verbose: whether to add the exact noise and charge of each step, and the conversions between rho and epsilon.
    """
    domain = series.domain
    cap = domain.cap.allowed_rho()
    spans = {"user": "for all periods", "user_year": "per year"}
    span = spans.get(domain.unit.kind, f"per {domain.elementary_period}")
    console.print(
        f"One period of {series.name} spends {promise_text(plan.spent.epsilon, plan.spent.delta)}:"
        f" {text_above(100 * plan.charge.as_rho / cap, 3)} % of the cap of data set {domain.name!r} (rho"
        f" {text_above(cap)} {span}).\n"
    )
    if domain.unit.kind == "user_year":
        console.print(f"{year_text(series, plan)}\n", soft_wrap=True)
    for verdict in plan.verdicts():
        console.print(verdict)
    console.print()
    if isinstance(plan, ReleasePlan):
        _print_errors(plan)
    console.print(f"Meaning of a row of the records: {series.columns.row}.\n")
    if verbose:
        exact = plan.to_frame()
        bounds = {name: exact[name].map(text_above) for name in ("rho", "epsilon") if name in exact}
        print_frame(f"{series.name}: what one period measures", exact.assign(**bounds))
        console.print(f"A release spends {spent_text(plan.spent)}.{conversion_text(plan)}\n")


def year_text(series: Series[Any, Any], plan: Plan) -> str:
    """Return sentences on what a year of releases like this one costs, and what it would cost without its bound."""
    domain, unit = series.domain, plan.unit
    periods = len(domain.periods_of_year(series.periods.first))
    bounded, unbounded = alike(unit, plan.spent, periods), periods * plan.spent.rho
    epsilon, other = (text_above(epsilon_tight(each, plan.spent.delta)) for each in (bounded, unbounded))
    return (
        f"A year of {periods} such releases spends epsilon {epsilon} (rho {text_above(bounded)}), because at most"
        f" {unit.max_trips_year} trips of a user are counted in it. Without max_trips_year, it would spend epsilon"
        f" {other} (rho {text_above(unbounded)}). For the same promise, the noise would then be"
        f" {math.sqrt(unbounded / bounded):.3g} times as large.{_uncounted_text(plan)}"
    )


def _uncounted_text(plan: Plan) -> str:
    """Return a sentence on how well the number of uncounted trips is known; empty if it is not measured."""
    if plan.uncounted_step is None:
        return ""
    width = math.ceil(DEVIATIONS * math.sqrt(plan.uncounted_step.variance))
    share = text_above(100 * plan.uncounted_step.charge.rho / plan.spent.rho, 3)
    return (
        f" The number of uncounted trips has {share} % of the budget of a release, and is known to within {width:,}"
        " trips, 9 times in 10."
    )


def level_names(steps: pd.DataFrame) -> pd.Series:
    """Return the names of the levels of the steps of a plan, with the breakdowns that they measure."""
    by = steps["breakdown"].map(lambda name: f" by {name}" if name else "") if "breakdown" in steps else ""
    return steps["origin_level"] + " x " + steps["destination_level"] + by


def _print_errors(plan: ReleasePlan) -> None:
    """Print what the verdicts on flows refer to, and a table of the noise and the expected error of each level."""
    if not plan.has_threshold:
        console.print(
            "These sentences hold for the 90 % interval of a flow before it is cut at 0. Published flows are whole"
            " numbers of at least 0 that add up over the levels; where most pairs of areas have no trips, they can be"
            " further off: see od-release forecast.\n"
        )
    exact = plan.to_frame()
    print_frame(
        "Two measures of error, in trips",
        pd.DataFrame(
            {
                "level": level_names(exact),
                "cells" if plan.segments else "pairs of areas": exact["public_cells"],
                "noise of one measured cell": exact["standard_deviation"].map(rounded),
                "expected error of the published estimate": exact["expected_error"].map(rounded),
            }
        ),
    )
    console.print(
        "Noise of one measured cell: its standard deviation. Expected error of the published estimate: the root mean"
        " square over all pairs of areas, after all levels are made consistent, if no estimate is cut at 0.\n"
    )
    if plan.mechanism.shrinks or plan.mechanism.leaf_dial is not None:
        console.print(
            f"That is the error of {ESTIMATORS['least_squares'].name}. The declared estimate is"
            f" {ESTIMATORS[declared_rule(plan.mechanism.options)].name}: it also learns from other pairs of areas, and"
            " what it gains depends on the flows. od-release forecast simulates it on public data.\n"
        )
    elif plan.mechanism.name == "inftda_refined" and plan.tree.cells(plan.tree.depth) <= _FEW_PAIRS:
        console.print(
            "If most pairs of areas have no trips, consider mechanism_options: {estimate: auto}, which chooses a rule"
            " of estimation from the measurements and costs no budget. At epsilon 1, it lowered the total error of the"
            " flows between zones by 10 to 43 % on four public tables out of six, and changed nothing on the others."
            " od-release forecast simulates it on public data.\n"
        )


def print_outcome(outcome: Outcome) -> None:
    """Print the outcome of one period: its guarantee, budget and checks, or the reasons why it is not published."""
    facts, released = outcome.facts, outcome.released
    if released is None:
        refused = "stays as it was published; this run was refused." if facts.get("was_public") else "is not published."
        console.print(facts["release"], Text(refused, style=WRONG))
        for line in facts["failures"]:
            console.print(line, soft_wrap=True)
        return
    console.rule(facts["release"])
    print_guarantee(facts["guarantee"])
    left = text_below(100 * facts["left_rho"] / facts["cap_rho"], 3) if facts["cap_rho"] else "0"
    console.print(
        f"\nSpent: {promise_text(released.spent.epsilon, released.spent.delta)}. Of the cap, rho"
        f" {text_above(facts['cap_rho'])}, {left} % remains."
        f" This run drew {facts['drawn']} of {facts['measurements']} measurements"
        f"{' and read the others back' if facts['drawn'] < facts['measurements'] else ''}."
    )
    if facts["lost_draws"]:
        console.print(_lost_text(facts["lost_draws"], released), soft_wrap=True)
    for other in facts["unpublished"]:
        stays = f"its rho {text_above(other['rho'])} stays spent"
        console.print(f"{other['release']} is charged to the same cap, but not published: {stays}.", soft_wrap=True)
    floats = released.levels.select_dtypes("float")
    print_frame(f"{released.contents.capitalize()} by level", released.levels.assign(**floats.map(rounded)))
    passed = sum(check["passed"] for check in facts["checks"])
    console.print(f"Checks: {passed} of {len(facts['checks'])} passed.")
    for subject in dict.fromkeys(check["subject"] for check in facts["checks"]):
        checks = [check for check in facts["checks"] if check["subject"] == subject]
        names = ", ".join(check["check"] if check["passed"] else f"{check['check']} FAILED" for check in checks)
        console.print(f"  {subject}: {names}")
    places = {"Bundle": facts["bundle"], "Database": facts["database"], "Report": f"{facts['bundle']}/{REPORT}"}
    console.print()
    for title, place in places.items():
        console.print(f"{title + ':':<9} {place}", soft_wrap=True)


def _lost_text(lost: list[dict[str, Any]], released: Released) -> str:
    """Return a sentence on the draws of a release that were lost, and on what they cost."""
    rho, levels = sum(draw["rho"] for draw in lost), ", ".join(draw["measured"] for draw in lost)
    return (
        f"Lost draws of earlier runs, which ended before the noisy values were stored: {levels}. Their rho"
        f" {text_above(rho)} stays spent, so the release spent"
        f" {promise_text(released.spent.epsilon, released.spent.delta)} instead of epsilon"
        f" {text_above(released.planned.epsilon)}."
    )


def print_guarantee(guarantee: dict[str, str]) -> None:
    """Print each sentence of a guarantee with its name: first what is protected, what is public, and what is not."""
    first = [name for name in ("protected", "public", "not_protected") if name in guarantee]
    for title, sentence in {name: guarantee[name] for name in [*first, *guarantee]}.items():
        console.print(f"{title.replace('_', ' ').capitalize()}: {sentence}")


def print_derived(found: PublishedFlows, heading: str, *, as_json: bool) -> None:
    """Print what published derived flows protect, the releases they are made of under a heading, and their bundle."""
    if as_json:
        facts = {"release": str(found.key), "bundle": str(found.folder), "published_now": found.is_new}
        typer.echo(json.dumps(facts | {"certificate": found.certificate}, indent=2))
        return
    print_guarantee(found.certificate["guarantee"])
    console.print()
    used = [
        {
            "release": stated["release"],
            "trips": int(release.leaves.trips.sum()),
            "epsilon": text_above(stated["epsilon"]),
        }
        for stated, release in zip(found.certificate["sources"], found.flows.releases, strict=True)
    ]
    print_rows(heading, used)
    leaves = found.flows.leaves
    console.print(
        f"{found.key}: {int(leaves.trips.sum()):,} trips in {len(leaves):,} pairs of zones."
        f"{'' if found.is_new else ' It was published before, and its bundle is complete.'} Nothing was charged."
    )
    console.print(f"Bundle: {found.folder}", soft_wrap=True)
