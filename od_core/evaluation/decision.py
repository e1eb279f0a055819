"""Write the decision page of a series: what would be published, how well it would be known, at what risk and cost.

It is for people who must agree to a publication and do not plan it. All of it follows from public facts: the declared
plan, other plans from the same facts, a public or synthetic table of flows, and what the ledger has left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from od_core.errors import OdError
from od_core.evaluation.forecast import ALL_SIZES, CLASS_NAMES, TOO_WIDE, TOTALS, arrange_counts_for_plan, forecast
from od_core.evaluation.known_flows import KnownFlows
from od_core.evaluation.metrics import make_leaf_nodes, sum_trips_by_level
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import Nodes
from od_core.meaning.subject import Subject
from od_core.periods import Period
from od_core.privacy.accounting import format_rounded_up, parse_exact_fraction
from od_core.privacy.domain import PrivacyDomain
from od_core.privacy.plan import Plan
from od_core.privacy.posterior import Guarantee
from od_core.publication.certificate import bound_right_guesses_of_100
from od_core.publication.certify import PERIODS_OF_A_YEAR, TRIPS_OF_A_PERSON
from od_core.publication.templates import render_clauses, render_template
from od_core.published.explanation import iterate_choices


@dataclass(frozen=True, eq=False)
class Option:
    """The decision, which is the first option of its page, or a choice that it refuses.

    Attributes:
        choice, note: the choice in words, and what else to know.
        plan: its plan; None if the library has no such release.
        errors: mean absolute errors in trips, from simulations, of the flows with trips at the first and at the last of
            the plan's ``compared_levels``; if there are two sides, then of the trips from and to each zone. Empty if
            nothing was simulated.
    """

    choice: str
    plan: Plan | None
    note: str = ""
    errors: tuple[float, ...] = ()

    @cached_property
    def within(self) -> tuple[float, ...]:
        """Widths of the noise by which options are compared, ``Plan.compared_widths``; empty without a plan."""
        return () if self.plan is None else self.plan.compared_widths

    @cached_property
    def guess(self) -> int:
        """Largest number of 100 cases in which the best guess about a privacy unit is right; 100 without a plan."""
        return 100 if self.plan is None else bound_right_guesses_of_100(Guarantee.from_spent(self.plan.spent))

    def with_simulated_errors(self, table: KnownFlows, runs: int) -> Option:
        """Return the option with the errors of ``runs`` simulated releases; unchanged without a plan.

        The plan must be of flows. If its noise is too wide to be drawn, the option is unchanged, too. Raises OdError as
        :func:`od_core.evaluation.forecast.forecast` does for any other reason.
        """
        plan: Any = self.plan
        if plan is None:
            return self
        try:
            errors = forecast(plan, table, runs)
        except OdError as error:
            if error.code != TOO_WIDE:
                raise
            return self
        without_trips = CLASS_NAMES[0]
        errors = errors[~errors["size_class"].isin([ALL_SIZES, without_trips])]
        if "breakdown" in errors:
            errors = errors[errors["breakdown"] == TOTALS]
        levels = [*plan.compared_levels]
        first_level, last_level = levels[0], levels[-1]
        groups = [errors[errors["level"] == level] for level in sorted({first_level, last_level})]
        if not plan.tree.has_one_side:  # a forecast numbers the trips from and to each zone after the last level
            groups.append(errors[errors["level"] > last_level])
        means = [float(np.average(rows["mean_abs_error"], weights=rows["cells"])) for rows in groups if len(rows)]
        return replace(self, errors=tuple(means))


def iterate_options(plan: Plan, epsilons: Sequence[str] = (), subject: Subject | None = None) -> Iterator[Option]:
    """Yield a plan as the decision, and then other choices with the same public facts. Nothing is simulated.

    By default, half and twice the epsilon of the plan are compared. ``subject`` has the publisher's words.

    Raises:
        OdError: an epsilon is not a number above 0.
    """
    yield Option("the decision", plan)
    promised = plan.budget.epsilon or plan.spent.epsilon
    compared = [promised / 2, 2 * promised]
    if epsilons:
        compared = [parse_exact_fraction("epsilon", epsilon) for epsilon in epsilons]
    cases: list[tuple[str, Callable[[], Plan], str]] = []
    for epsilon in compared:
        budget = replace(plan.budget, rho=None, epsilon=epsilon)
        cases.append((f"a budget of epsilon {format_rounded_up(epsilon)}", partial(plan.replan, plan.unit, budget), ""))
    if not plan.protects_trips_alone:
        choices = iterate_choices(plan, subject or Subject.from_plan(plan))
        others = [choice for choice in choices if choice.decision in ("unit", "m")]
        cases += [(choice.words, partial(choice.replan, plan), choice.note) for choice in others]
    for words, make_plan, note in (*cases, *plan.iterate_variants()):
        try:
            other_plan = make_plan()
            notes = [text for text in (note, other_plan.detail_noise().note) if text]
            yield Option(words, other_plan, "; ".join(notes))
        except OdError as error:  # the library has no such release
            yield Option(words, None, f"not defined: {error.message}")


def select_example_flows(plan: ReleasePlan, table: KnownFlows) -> Iterator[dict[str, object]]:
    """Yield up to three flows of a public table at each compared level: of large, of upper and of median size.

    Of the flows with trips, these are the largest, the one that a tenth exceed, and the median. At a level with flows
    between different areas, the three are among those. Each flow is a dictionary of the names of its ``levels``, the
    names of its ``areas``, its ``trips`` in the table, and ``within``: the largest half width of its 90 % interval, in
    trips, or None if the release has no intervals. Raises OdError if the table has other areas.
    """
    tree = plan.tree
    sums = [*sum_trips_by_level(tree, make_leaf_nodes(tree, arrange_counts_for_plan(table, plan)))]
    for level in plan.compared_levels:
        ranks, trips = sums[level]
        first_pairs = tree.find_leaf_pairs(ranks)  # of each node, whose rank is that of its first leaf pair
        nodes = tree.find_ancestors(Nodes(tree.depth, first_pairs.origin, first_pairs.destination, trips), level)
        descending = np.argsort(-trips, kind="stable")
        is_between = tree.same_geography & (nodes.origin != nodes.destination)
        if is_between.any():
            descending = descending[is_between[descending]]
        if not len(descending):
            continue
        sides = [*zip(tree.listed_sides, tree.level_pair(level), (nodes.origin, nodes.destination), strict=False)]
        levels = " to ".join(dict.fromkeys(side.level_names[side_level] for side, side_level, _ in sides))
        width = None if plan.has_threshold else plan.half_widths[level]
        chosen = descending[[0, len(descending) // 10, len(descending) // 2]]
        for node in dict.fromkeys(chosen.tolist()):  # of few flows, two of the three are the same one
            areas = [side.labels[side_level][numbers[node]] for side, side_level, numbers in sides]
            yield {"levels": levels, "areas": areas, "trips": int(trips[node]), "within": width}


def compute_risks(plan: Plan, domain: PrivacyDomain, period: Period) -> dict[str, int]:
    """Return the largest numbers of 100 cases in which an attacker guesses right which of two equal chances is true.

    The names are ``release``: about one privacy unit, from one release; ``cap``: from everything that the cap allows;
    and, as the privacy unit is, one of ``person``: about a person with many trips; ``periods``: about a user in many
    periods of a year; and ``year``: about a user in all releases of the year of ``period``, if the unit is of a year.
    """
    spent, unit = plan.spent, plan.unit
    release = Guarantee.from_spent(spent)
    guarantees: dict[str, Guarantee | None] = {"release": release}
    if not unit.is_of_users:
        guarantees["person"] = release.scale_to_units(TRIPS_OF_A_PERSON)
    elif unit.span == "elementary period":
        guarantees["periods"] = release.scale_to_periods(PERIODS_OF_A_YEAR)
    elif unit.is_of_year:
        rho_of_year = plan.rho_of_year(spent, len(domain.periods_of_year(period)))
        guarantees["year"] = Guarantee.from_rho(rho_of_year, spent.delta)
    guarantees["cap"] = Guarantee.from_cap(domain.cap, release)
    return {name: bound_right_guesses_of_100(guarantee) for name, guarantee in guarantees.items()}


def render_decision_page(
    series: Any, plan: Plan, compared: Sequence[Option], periods: Sequence[Period], **facts: object
) -> str:
    """Return the decision page as one HTML file that needs no network. The same arguments give the same bytes.

    Args:
        series: the declared series. The template ``decision.html`` lists the attributes that it reads.
        plan: the plan of the decision.
        compared: the decision, and then the options that it refuses.
        periods: the declared periods; at least one.
        facts: further values, which the template ``decision.html`` lists.
    """
    subject = Subject.from_plan(plan, series.about_facts)
    values = {
        "levels": [*plan.compared_levels.values()],
        "risks": compute_risks(plan, series.domain, periods[0]),
        "subject": subject,
        "clauses": render_clauses(subject),
        "guarantee": series.kind.describe_guarantee(plan, plan.spent, subject),
        "many": {"trips": TRIPS_OF_A_PERSON, "periods": PERIODS_OF_A_YEAR},
    }
    return render_template(
        "decision.html", series=series, plan=plan, options=compared, periods=periods, **values, **facts
    )
