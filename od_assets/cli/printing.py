"""Print plans, releases and their guarantees on the command line."""

from __future__ import annotations

import json
import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
import typer
from rich.text import Text

from od_assets.cli.tables import Columns, print_columns, print_frame, say, text
from od_assets.terminal import WRONG, console
from od_core import Plan, ReleasePlan
from od_core.flows.confidence import DEVIATIONS
from od_core.flows.mechanisms import ESTIMATORS
from od_core.privacy.accounting import epsilon_tight, text_above
from od_core.privacy.person_year import alike
from od_core.publication.bundle import REPORT
from od_core.publication.number_formats import rounded

if TYPE_CHECKING:  # importing Dagster takes half a second
    from od_assets.runs.run_period import Outcome
    from od_assets.series.series import Series
    from od_core.published.derived import PublishedFlows
    from od_core.published.explanation import Explanation


_FEW_PAIRS = 4_000_000
"""Largest number of pairs of zones for which ``estimate: auto`` is suggested: above it, it takes many seconds."""


def print_plan(series: Series[Any, Any], plan: Plan, *, verbose: bool) -> None:
    """Print what one period would spend, and what could be read in it.

    If ``verbose``, add the exact noise and charge of each step, and the conversions between rho and epsilon.
    """
    domain = series.domain
    cap = domain.cap.allowed_rho()
    spans = {"user": "for all periods", "user_year": "per year"}
    span = spans.get(domain.unit.kind, f"per {domain.elementary_period}")
    facts = {"name": series.name, "domain": domain.name, "spent": plan.spent, "charge": plan.charge.as_rho}
    say("plan.spends", "\n", **facts, cap=cap, span=span)
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
        is_direct = plan.spent.promise is not None
        say("plan.budget", "\n", spent=plan.spent, is_direct=is_direct, **_conversion(plan))


def _conversion(plan: Plan) -> dict[str, Any]:
    """Return how the rho of a release of flows was computed, and whether the declaration or the default says so."""
    if not isinstance(plan, ReleasePlan):
        return {"conversion": None}
    stated = plan.budget.conversion or plan.mechanism.default_conversion
    conversion = plan.conversion if plan.budget.rho is None else "given"
    return {"conversion": conversion, "is_declared": plan.conversion == stated}


def year_text(series: Series[Any, Any], plan: Plan) -> str:
    """Return sentences on what a year of releases like this one costs, and what it would cost without its bound.

    If the number of uncounted trips is measured, they say how well it is known.
    """
    periods, step = len(series.domain.periods_of_year(series.periods.first)), plan.uncounted_step
    bounded, unbounded = alike(plan.unit, plan.spent, periods), periods * plan.spent.rho
    epsilon, other = (epsilon_tight(each, plan.spent.delta) for each in (bounded, unbounded))
    return text(
        "plan.year",
        periods=periods,
        max_trips_year=plan.unit.max_trips_year,
        epsilon=epsilon,
        other=other,
        bounded=bounded,
        unbounded=unbounded,
        times=f"{math.sqrt(unbounded / bounded):.3g}",
        width=None if step is None else f"{math.ceil(DEVIATIONS * math.sqrt(step.variance)):,}",
        share=None if step is None else 100 * step.charge.rho / plan.spent.rho,
    )


def level_names(steps: pd.DataFrame) -> pd.Series:
    """Return the names of the levels of the steps of a plan, with the breakdowns that they measure."""
    by = steps["breakdown"].map(lambda name: f" by {name}" if name else "") if "breakdown" in steps else ""
    return steps["origin_level"] + " x " + steps["destination_level"] + by


def _print_errors(plan: ReleasePlan) -> None:
    """Print what the verdicts on flows refer to, and a table of the noise and the expected error of each level."""
    if not plan.has_threshold:
        say("plan.intervals", "\n")
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
    say("plan.errors", "\n")
    if plan.mechanism.shrinks or plan.mechanism.leaf_dial is not None:
        declared = plan.mechanism.estimator.name
        say("plan.learns", "\n", stated=ESTIMATORS["least_squares"].name, declared=declared)
    elif plan.mechanism.name == "inftda_refined" and plan.tree.cells(plan.tree.depth) <= _FEW_PAIRS:
        say("plan.auto", "\n")


def print_outcome(outcome: Outcome) -> None:
    """Print the outcome of one period: its guarantee, budget and checks, or the reasons why it is not published."""
    facts, kind, release = outcome.facts, outcome.kind, outcome.release
    if kind is None:
        refused = "stays as it was published; this run was refused." if facts.get("was_public") else "is not published."
        console.print(facts["release"], Text(refused, style=WRONG))
        for line in facts["failures"]:
            console.print(line, soft_wrap=True)
        return
    console.rule(facts["release"])
    print_guarantee(facts["guarantee"])
    console.print()
    say("run.spent", **facts | {"spent": release.spent})
    if facts["lost_draws"]:
        lost = text("run.lost", lost=facts["lost_draws"], spent=release.spent, planned=release.plan.spent)
        console.print(lost, soft_wrap=True)
    for other in facts["unpublished"]:
        console.print(text("run.unpublished", **other), soft_wrap=True)
    levels = kind.summary(release)
    shown = levels.assign(**levels.select_dtypes("float").map(rounded))
    print_frame(f"{kind.contents.capitalize()} by level", shown)
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
        stated | {"trips": int(release.leaves.trips.sum())}
        for stated, release in zip(found.certificate["sources"], found.flows.releases, strict=True)
    ]
    print_columns(
        heading, used, {"release": ("release", str), "trips": ("trips", int), "epsilon": ("epsilon", text_above)}
    )
    leaves = found.flows.leaves
    numbers = {"trips": f"{int(leaves.trips.sum()):,}", "pairs": f"{len(leaves):,}"}
    say("derived.published", key=found.key, is_new=found.is_new, **numbers)
    console.print(f"Bundle: {found.folder}", soft_wrap=True)


def print_explanation(found: Explanation) -> None:
    """Print what a release protected, what an attacker learns, and what other decisions would have cost."""
    console.rule(str(found.facts.key))
    console.print(found.said["protected"])
    console.print(f"{found.said['spent']}\n")
    print_columns("What may be learned about one unit", found.losses(), {**_OF, **_PROMISE})
    console.print(f"{found.facts.said['limit']}\n")
    console.print(f"{found.said['statement']}\n")
    print_columns("What an attacker believes about one unit, from this release alone", found.beliefs(), _BELIEF)
    say("explain.guess", "\n")
    print_columns("A person with several units, from this release alone", found.persons(), {**_UNITS, **_PROMISE})
    console.print(f"Not protected: {found.facts.sentence('not_protected')}\n")
    if found.chosen is None:
        say("explain.decisions", names=[source["release"] for source in found.facts.sources])
        return
    choices = (found.chosen, *found.others)
    print_columns("What other decisions would have cost", map(vars, choices), _CHOICE)
    say("explain.choices")
    for note in dict.fromkeys(one.note for one in choices if one.note):
        named = " / ".join(one.choice for one in choices if one.note == note)
        console.print(f"- {named}: {note}.")


def _percent(value: float, rounding: str) -> str:
    """Return a probability in percent with four significant digits, so rounded that a bound stays one."""
    return f"{Context(prec=4, rounding=rounding).create_decimal(100 * Decimal(value)).normalize():f} %"


_AT_MOST, _AT_LEAST, _PRIOR = (
    partial(_percent, rounding=each) for each in (ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN)
)
_OF: Columns = {"of": ("of", lambda name: name.rstrip(","))}
_UNITS: Columns = {"units": ("units", int)}
_PROMISE: Columns = {
    "epsilon": ("epsilon", text_above),
    "delta": ("delta", text_above),
    "best guess at even odds, at most": ("best_guess_after", _AT_MOST),
}
_BELIEF: Columns = {
    "before": ("prior", _PRIOR),
    "after, at least": ("posterior_at_least", _AT_LEAST),
    "after, at most": ("posterior_at_most", _AT_MOST),
    "best guess before": ("best_guess_before", _PRIOR),
    "best guess after, at most": ("best_guess_after", _AT_MOST),
}
_CHOICE: Columns = {
    "decision": ("decision", str),
    "choice": ("choice", str),
    "epsilon": ("epsilon", text_above),
    "noise": ("noise", rounded),
    "times": ("times", rounded),
    "error": ("error", rounded),
}
