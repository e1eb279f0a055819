"""Plan the smallest budget of a release that meets targets of accuracy."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from od_assets.cli.declaration_files import write_text, yaml_block
from od_assets.cli.payable_periods import PayablePeriods
from od_assets.cli.public_tables import stated_table
from od_assets.cli.tables import print_rows
from od_assets.series.declared_names import declaration_file
from od_assets.series.settings import SeriesSettings
from od_assets.terminal import WRONG, console
from od_core.errors import OdError
from od_core.evaluation.known_flows import KnownFlows
from od_core.evaluation.simulation import with_budget
from od_core.evaluation.target_budget import CHANCE, TargetBudget, target_budget
from od_core.evaluation.targets import Target
from od_core.flows.allocation.optimal_shares import LEAST
from od_core.flows.plan import ReleasePlan
from od_core.privacy.accounting import text_above
from od_core.privacy.budget import Budget
from od_core.privacy.plan import Plan
from od_core.publication.html.report_page import rounded

RUNS = 200
"""Number of releases that are simulated at a time."""

_RAISE = Fraction(1, 1000)
"""Relative step by which epsilon is raised until it allows the rho."""

_MARGIN = 1.001
"""Factor by which targets are relaxed further, so that the rounded budget for them is within the cap."""

_TRIES = 8
"""Largest number of factors of the tolerances that are tried."""

_ENOUGH = 0.98
"""Targets are near enough to the cap if they need this share of it."""

_REMEDY = "plan with wider tolerances, or raise the cap and state a reason, and plan again"
"""Next step if the cap does not allow the budget."""

_DIGITS = 4
"""Number of significant digits of the declared epsilon or rho, which is rounded up."""


@dataclass(frozen=True, eq=False)
class TargetPlan:
    """The smallest budget that meets some targets, as a plan of one period.

    Attributes:
        release: name of the series.
        source: sentence on the table that stands for the true flows.
        found: the budget and the cost of each target.
        plan: plan of one period with this budget.
        cap: largest rho that the cap of the data set allows.
        nearest: targets with wider tolerances that the cap allows; None if the cap allows the targets themselves, or
            if no tolerance of at most 100 % is wide enough.
        payable: the declared periods for which what remains of the cap pays.
    """

    release: str
    source: str
    found: TargetBudget
    plan: ReleasePlan
    cap: Fraction
    nearest: tuple[Target, ...] | None
    payable: PayablePeriods

    @property
    def fits(self) -> bool:
        """Whether the cap allows one release."""
        return self.plan.charge.as_rho <= self.cap

    @property
    def privacy(self) -> dict[str, Any]:
        """The section ``privacy`` of the declaration."""
        budget = self.plan.budget
        promise = {"rho": _text(budget.rho)} if budget.epsilon is None else {"epsilon": _text(budget.epsilon)}
        conversion = {} if budget.conversion is None else {"conversion": budget.conversion}
        shares = [_text(share) for share in self.found.shares]
        return {**promise, "delta": _text(budget.delta), **conversion, "shares": shares}

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the declaration that state the budget: ``privacy`` and, with segments, ``segment_share``.

        There are none if the cap does not allow the budget, because such a declaration is refused.
        """
        if not self.fits:
            return {}
        share = self.found.segment_share
        return {"privacy": self.privacy} | ({} if share is None else {"segment_share": str(share)})

    def facts(self) -> dict[str, Any]:
        """Return the plan as a JSON-ready dictionary."""
        return {
            "release": self.release,
            "source": self.source,
            "rho": str(self.plan.spent.rho),
            "epsilon": str(self.plan.spent.epsilon),
            "cap_rho": str(self.cap),
            "fits": self.fits,
            **self.payable.facts(),
            "nearest_targets": None if self.nearest is None else list(map(str, self.nearest)),
            "runs": self.found.runs,
            "gap": self.found.gap,
            "targets": [
                {
                    "target": str(cost.target),
                    "flows": cost.flows,
                    "rho": cost.rho,
                    "rho_alone": cost.alone,
                    "rho_without": cost.without,
                    "binds": cost.binds,
                }
                for cost in self.found.costs
            ],
            "levels": json.loads(self.plan.to_frame().to_json(orient="records")),
            **self.fields,
        }


def target_plan(
    settings: SeriesSettings[Any, Any], plan: Plan, targets: Sequence[str], table: str | None, runs: int = RUNS
) -> TargetPlan:
    """Return the smallest budget that meets targets, from public facts and a public table. Reads no record.

    Args:
        settings: settings of the series.
        plan: plan of one period with the declared budget.
        targets: texts of the targets; see :meth:`Target.of`.
        table: see :func:`od_assets.cli.public_tables.stated_table`.
        runs: number of releases to simulate at a time; 0 for none.

    Raises:
        OdError: the series does not release flows; a target or the table is refused; or no budget is found.
    """
    if not isinstance(plan, ReleasePlan):
        raise OdError(
            "OD-FORECAST-KIND",
            f"{settings.name} is a release of {settings.kind.contents}; targets are available only for flows",
            next_step="choose epsilon by od-release plan",
        )
    if runs < 0:
        raise OdError("OD-FORECAST-RUNS", "the number of runs is below 0", next_step="request 0 runs or more")
    wanted = [Target.of(text, plan.tree, plan.breakdowns) for text in targets]
    source, known = stated_table(settings, plan, table)
    found = target_budget(plan, wanted, known, runs)
    chosen = _with_found(plan, _budget(plan, found), found)
    cap = settings.domain.cap.allowed_rho()
    nearest = None
    if chosen.charge.as_rho > cap > 0:
        nearest = _nearest(plan, wanted, known, runs, cap)
    payable = PayablePeriods.of(settings, chosen)
    return TargetPlan(settings.name, source, found, chosen, cap, nearest, payable)


def _rho(value: float) -> str | None:
    """Return a rho that is found by simulation; None if there is none."""
    return None if math.isnan(value) else text_above(value)


def print_target_plan(planned: TargetPlan) -> None:
    """Print the budget, the cost of each target, the levels and the section of the declaration."""
    spent, found = planned.plan.spent, planned.found
    console.print(
        f"The smallest budget for these targets is epsilon {text_above(spent.epsilon, _DIGITS)} at delta"
        f" {text_above(spent.delta)}. A release is charged rho {text_above(planned.plan.charge.as_rho)}:"
        f" {text_above(100 * planned.plan.charge.as_rho / planned.cap, 3)} % of the cap for one release."
    )
    if planned.fits:
        console.print(planned.payable.text, style="" if planned.payable.paid else WRONG, soft_wrap=True)
        if not planned.payable.all_paid:
            console.print(f"A released period counts as released again, as a revision. For the others, {_REMEDY}.")
    else:
        console.print("The cap does not allow it.", style=WRONG)
        if planned.nearest is None:
            console.print("No tolerance of at most 100 % is wide enough for the cap.")
        else:
            console.print("With the whole cap, these targets can be met:")
            for target in planned.nearest:
                console.print(f"  {target}", soft_wrap=True)
    console.print()
    print_rows(
        "Targets",
        [
            {
                "target": str(cost.target),
                "flows": cost.flows,
                "rho needed": _rho(cost.rho),
                "rho if alone": _rho(cost.alone),
                "rho without it": _rho(cost.without),
                "binds": "yes" if cost.binds else "no",
            }
            for cost in found.costs
        ],
    )
    console.print("A release is charged a little more rho than its targets need, because its budget is rounded up.\n")
    levels = planned.plan.to_frame()
    place = levels["origin_level"] + " x " + levels["destination_level"]
    by = levels["breakdown"].map(lambda name: f" by {name}" if name else "") if "breakdown" in levels else ""
    print_rows(
        "Levels",
        [
            {"level": name, "share of rho": f"{rho / levels['rho'].sum():.3g}", "expected error": rounded(error)}
            for name, rho, error in zip(place + by, levels["rho"], levels["expected_error"], strict=True)
        ],
    )
    if any(0 < share <= 1.001 * LEAST for share in found.shares):
        console.print(
            "Levels that no target needs have the smallest share. State a target for each level that matters."
        )
    console.print(planned.source, soft_wrap=True)
    if found.runs:
        console.print(
            f"In {100 * CHANCE:g} % of {found.runs} simulated releases of that table, all targets are met together."
        )
    else:
        console.print("No release was simulated, so cuts at 0 and rounding are not considered.")
    if planned.fits:
        console.print(f"\nDeclare it so:\n{yaml_block(planned.fields)}", soft_wrap=True)
    else:
        console.print(f"\nNo declaration is printed, because a run would refuse it: {_REMEDY}.", soft_wrap=True)


def write_declaration(planned: TargetPlan, path: Path) -> None:
    """Write the declaration of the series with the planned budget. All else stays.

    Raises:
        OdError: the cap does not allow the budget; the declaration has no section ``privacy``; or the file cannot be
            written.
    """
    if not planned.fits:
        raise OdError(
            "OD-LEDGER-CAP",
            f"one release of {planned.release} with these targets needs rho"
            f" {text_above(planned.plan.charge.as_rho)}, which exceeds the cap {text_above(planned.cap)}",
            next_step=_REMEDY,
        )
    text = declaration_file(planned.release).read_text(encoding="utf-8")
    written = with_fields(text, planned.fields)
    if written is None:
        raise OdError(
            "OD-CONFIG", "the declaration has no section privacy of its own", next_step="copy the printed section"
        )
    try:
        write_text(path, written)
    except OSError as error:
        raise OdError(
            "OD-INIT-WRITE", f"{path.name} cannot be written: {error.strerror}", next_step="choose another path"
        ) from None


def with_fields(text: str, fields: Mapping[str, Any]) -> str | None:
    """Return a YAML declaration with other values of some fields of its attributes.

    All else stays as it is written, also comments. A field that is not there is written before the first of the others.

    Args:
        text: the declaration.
        fields: values by name; the first field must be there.

    Returns:
        The text; None if the first field is not there, or the attributes are not written as a block.
    """
    expected = _loaded(text)
    for place, (name, value) in enumerate(fields.items()):
        pairs = _nested(yaml.compose(text, Loader=yaml.SafeLoader), "attributes")
        known = {key.value: (key, node) for key, node in pairs}
        if place == 0 and name not in known:
            return None
        key, node = known.get(name, known[next(iter(fields))])
        indent, start = key.start_mark.column, key.start_mark.index
        written = yaml_block({name: value}, indent).strip()
        if isinstance(value, dict):
            written = f"{name}:\n{yaml_block(value, indent + 2)}".rstrip("\n")
        if name in known:
            while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
                node = node.value[-1][1] if isinstance(node, yaml.MappingNode) else node.value[-1]
            text = f"{text[:start]}{written}{text[node.end_mark.index :]}"
        else:
            text = f"{text[:start]}{written}\n{' ' * indent}{text[start:]}"
        expected["attributes"][name] = value
    return text if _loaded(text) == expected else None


def _nested(node: yaml.Node | None, name: str) -> list[tuple[yaml.Node, yaml.Node]]:
    """Return the names and values of a section of a YAML document; empty if there is none."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    section = next((value for key, value in pairs if key.value == name), None)
    return list(section.value) if isinstance(section, yaml.MappingNode) else []


def _loaded(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _budget(plan: ReleasePlan, found: TargetBudget) -> Budget:
    """Return the found budget in the terms of the declared one: epsilon or rho, rounded up."""
    declared, rho = plan.budget, Fraction(found.rho)
    if declared.epsilon is None:
        return Budget(rho=_above(rho), delta=declared.delta, shares=found.shares)

    def of(epsilon: Fraction) -> Budget:
        return Budget(_above(epsilon), declared.delta, conversion=declared.conversion, shares=found.shares)

    exact = Budget(rho=rho, delta=declared.delta, shares=found.shares)
    epsilon = _with_found(plan, exact, found).spent.epsilon
    # A conversion rounds rho down, and the exact one stops at the first rho with a larger epsilon.
    while _with_found(plan, of(epsilon), found).spent.rho < rho:
        epsilon = _above(epsilon) * (1 + _RAISE)
    return of(epsilon)


def _with_found(plan: ReleasePlan, budget: Budget, found: TargetBudget) -> ReleasePlan:
    """Return a plan with another budget and with the share of the breakdowns that was found."""
    if plan.segments is None or found.segment_share is None:
        return with_budget(plan, budget)
    return with_budget(plan, budget, replace(plan.segments, share=found.segment_share))


def _above(number: Fraction) -> Fraction:
    """Return a number rounded up to ``_DIGITS`` significant digits."""
    unit = Fraction(10) ** (math.floor(math.log10(number)) - _DIGITS + 1)
    return math.ceil(number / unit) * unit


def _text(number: Fraction | None) -> str:
    """Return the decimal text of a number that has one of at most 12 digits, else the fraction."""
    if number is None:
        return ""
    decimal = f"{float(number):.12g}".replace("e-0", "e-")
    return decimal if Fraction(decimal) == number else str(number)


def _nearest(
    plan: ReleasePlan, wanted: Sequence[Target], known: KnownFlows, runs: int, cap: Fraction
) -> tuple[Target, ...] | None:
    """Return targets that the cap allows: all tolerances are wider by about the smallest common factor.

    They are found without simulations, and once more with the correction that simulations of the first ones show.

    Args:
        plan, known, runs: see :func:`od_core.evaluation.target_budget.target_budget`.
        wanted: targets that the cap does not allow.
        cap: rho that the cap allows.

    Returns:
        The targets; None if a tolerance would be above 100 %.
    """

    def needed(targets: Sequence[Target], runs: int = 0) -> float:
        different = {str(target): target for target in targets}  # wide tolerances may be equal after rounding
        return target_budget(plan, list(different.values()), known, runs).rho

    most = min((1 / float(target.within) for target in wanted if target.is_relative), default=math.inf)
    unchanged = needed(wanted)

    def widened(allowed: float) -> tuple[Target, ...] | None:
        rho, factor, smallest, nearest = unchanged, 1.0, math.inf, None
        for _ in range(_TRIES):
            tried = min(factor * math.sqrt(rho / allowed) * _MARGIN, most)
            if tried == factor:
                break
            factor = tried
            targets = tuple(target.relaxed(factor) for target in wanted)
            rho = needed(targets)
            if rho <= allowed and factor < smallest:
                smallest, nearest = factor, targets
                if rho > _ENOUGH * allowed:
                    break
        return nearest

    nearest = widened(float(cap))
    if nearest is None or runs == 0:
        return nearest
    return widened(float(cap) * needed(nearest) / needed(nearest, runs))
