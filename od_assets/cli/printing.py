"""What the command line prints of plans, releases and tables."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Literal

import pandas as pd
from rich.table import Table
from rich.text import Text

from od_assets.cli.findings import Finding
from od_assets.terminal import PlainConsole
from od_core.flows.plan import ReleasePlan
from od_core.ledger.protocols import Planned
from od_core.privacy.accounting import float_above
from od_core.privacy.budget import Spent, SpentDirectly

if TYPE_CHECKING:  # Dagster takes half a second to import
    from od_assets.runs.run_period import Outcome

console = PlainConsole(width=None if sys.stdout.isatty() else 120)

WRONG = "bold red"
"""The style of what is wrong."""


def spent_text(spent: Spent) -> str:
    """What is charged and every epsilon that bounds it; the first one is the promise."""
    rho = f"rho {float_above(spent.rho):.6g}"
    if isinstance(spent, SpentDirectly):
        delta = f" and delta {float_above(spent.delta):.3g}" if spent.delta else ""
        return f"epsilon {float_above(spent.epsilon):.6g}{delta} ({rho} of the cap)"
    exact = "" if spent.epsilon_exact is None else f"{spent.epsilon_exact:.6g} (exact), "
    return (
        f"{rho}: epsilon {exact}{spent.epsilon_tight:.6g} (tight), {spent.epsilon_bun_steinke:.6g} (Bun-Steinke) at"
        f" delta {float_above(spent.delta):.3g}"
    )


def conversion_text(plan: Planned) -> str:
    """How the rho of a release of flows was found; with a word where it was not asked for so."""
    if not isinstance(plan, ReleasePlan):
        return ""
    if plan.budget.rho is not None:
        return " Rho was given."
    if plan.conversion == (plan.budget.conversion or plan.mechanism.default_conversion):
        return f" Rho was found by conversion {plan.conversion!r}."
    return f" Rho was found by conversion {plan.conversion!r}: 'exact' is for unit trip and a delta of 1e-12 or more."


def print_outcome(outcome: Outcome) -> None:
    """What came of one period: what was protected, spent and checked; or why it is not published."""
    facts, released = outcome.facts, outcome.released
    if released is None:
        console.print(facts["release"], Text("is not published.", style=WRONG))
        for line in facts["failures"]:
            console.print(line, soft_wrap=True)
        return
    console.rule(facts["release"])
    print_guarantee(facts["guarantee"])
    console.print(
        f"\nSpent: {spent_text(released.spent)}."
        f" Of the cap, rho {facts['cap_rho']:.6g}, {facts['left_rho']:.6g} is left."
        f" {facts['drawn']} of {len(facts['levels'])} levels were drawn now, the others read back."
    )
    print_frame(f"{released.contents.capitalize()} by level", released.levels)
    passed = sum(check["passed"] for check in facts["checks"])
    console.print(f"Checks: {passed} of {len(facts['checks'])} passed.")
    for subject in dict.fromkeys(check["subject"] for check in facts["checks"]):
        checks = [check for check in facts["checks"] if check["subject"] == subject]
        names = ", ".join(check["check"] if check["passed"] else f"{check['check']} FAILED" for check in checks)
        console.print(f"  {subject}: {names}")
    console.print(f"\nBundle:   {facts['bundle']}\nDatabase: {facts['database']}", soft_wrap=True)


def print_guarantee(guarantee: dict[str, str]) -> None:
    """The sentences of a guarantee."""
    for title, sentence in guarantee.items():
        console.print(f"{title.replace('_', ' ').capitalize()}: {sentence}")


def print_findings(findings: list[Finding]) -> None:
    """One line a finding: what, whether it is ok, and the next step where it is not."""
    for finding in findings:
        if finding.fault is None:
            console.print(f"ok     {finding.what}", soft_wrap=True)
        else:
            line = f" {finding.what}: {finding.fault} [next: {finding.next_step}]"
            console.print(Text("WRONG", style=WRONG), line, soft_wrap=True)


def print_frame(title: str, frame: pd.DataFrame) -> None:
    """A table, its numbers to the right; what a row is of stands in one line."""
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(frame.columns):
        side: Literal["left", "right"] = "right" if pd.api.types.is_numeric_dtype(frame[column].dtype) else "left"
        table.add_column(str(column).replace("_", " "), justify=side, overflow="fold", no_wrap=place == 0)
    for row in frame.itertuples(index=False):
        table.add_row(*map(_text, row))
    console.print(table)


def _text(value: object) -> str:
    """A cell of a table; a dash where there is nothing."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.6g}"
    return str(value)
