"""Write the planning page of flows or counts: one HTML file on which people choose a budget and see what follows.

The page needs neither a server nor a network. It computes the errors of a plan itself, from the facts that
:func:`build_planning_facts` returns: the shapes of the areas, and the rho that an epsilon allows. A plan with Laplace
noise is charged in epsilon, and its page has no delta. The sources of the program of the page are in the folder
``atlas/src/planning`` of the repository.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from importlib.resources import files
from itertools import combinations, product
from typing import Any

import pandas as pd
from markupsafe import escape

from od_core.errors import OdError
from od_core.flows.accuracy import MAX_SHAPES, NORMAL_VALUES, find_most_leaf_pairs, group_areas_by_shape
from od_core.flows.plan import ReleasePlan
from od_core.flows.step import (
    Segments,
    compute_level_shares,
    count_shifted_cells,
    list_area_total_sides,
    list_level_queries,
    list_node_sizes,
    plan_steps,
)
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography
from od_core.meaning.features import refuse_unsupported
from od_core.meaning.subject import NO_WORDS, Subject
from od_core.parallel import map_in_order
from od_core.privacy import privacy_loss
from od_core.privacy.accounting import compute_tight_epsilon, find_rho_for_epsilon, format_rounded_up, round_up_to_float
from od_core.privacy.budget import Budget, Cap, Spent
from od_core.privacy.neighbours import Neighbours
from od_core.privacy.plan import Plan
from od_core.privacy.posterior import Guarantee
from od_core.privacy.unit import Neighbours as Relation
from od_core.privacy.unit import PrivacyUnit
from od_core.publication.templates import render_clauses
from od_core.records.segments import has_unknown_categories

EPSILONS = (
    *("0.1", "0.15", "0.2", "0.3", "0.4", "0.5", "0.6", "0.8", "1", "1.25", "1.5", "2", "2.5", "3", "4", "5", "6"),
    *("7", "8", "10", "12", "15", "20"),
)
"""Values of epsilon that the page offers, besides the declared one."""

MOST_FREE_LEVELS = 4
"""Largest number of levels of which a reader may leave out any. Of more levels, only the first and the last ones can be
left out, so that the number of combinations stays small."""

USER_TRIPS = 10
"""Number of trips of a user that are counted, with which the page begins if the declared unit is not a user."""

MOST_TRIPS = 1000
"""Largest number of trips of a user in a period that the page offers, unless more are declared."""

PLANNING_PAGE = "planning.html"

_STAND_INS = {987_654_320: "{pair}", 987_654_321: "{trips}", 987_654_322: "{yearly}"}
"""Stand for the numbers of trips of a user, between two zones, in a period and in a year, in the sentences of Python.
The page replaces them by the chosen numbers."""

_PAIR, _TRIPS, _YEARLY = _STAND_INS

_NOUNS = ("record", "counted", "cell", "cells", "pair", "pairs", "zone_pair", "same_zones", "one_record")
"""Nouns in place of those of flows and trips, in which the page is written."""


def render_planning_page(
    plan: Plan, name: str, cap: Cap | None = None, periods: int = 12, about: Mapping[str, str] = NO_WORDS
) -> str:
    """Return the planning page of a series as HTML, which follows from public facts alone.

    It begins with the declared plan. ``cap`` is that of the data set, and ``periods`` the number of elementary periods
    of a year, which only a unit of a year needs. ``about`` has the words of the publisher.

    Raises:
        OdError: the plan does not release flows, or its mechanism has a threshold, so that no error can be planned; or
            the cap covers no release with this noise.
    """
    facts = json.dumps(build_planning_facts(plan, name, cap, periods, about), ensure_ascii=False, separators=(",", ":"))
    template = (files("od_core.publication") / "html" / PLANNING_PAGE).read_text(encoding="utf-8")
    before, after = template.replace("{{title}}", escape(f"Planning page of {name}")).split("{{data}}")
    return before + facts.replace("<", "\\u003c") + after


def build_planning_facts(
    plan: Any, name: str, cap: Cap | None = None, periods: int = 12, about: Mapping[str, str] = NO_WORDS
) -> dict[str, object]:
    """Return the facts from which the planning page computes, JSON-ready; ``atlas/src/planning/facts.ts`` has its type.

    They are the declared plan, the choices that a reader has (tree, unit, segments and budget), and what only the exact
    accounting of Python can compute for each choice. Arguments and errors are those of :func:`render_planning_page`.
    """
    plan = plan.require_forecastable(_make_forecast_error(f"{name} does not release flows"))
    refuse_unsupported(plan.table, plan.features | {"planning_page"})
    choices = _Choices(plan, Subject.from_plan(plan, about))
    unit, delta, segments = plan.unit, plan.budget.delta, plan.segments
    return {
        "name": name,
        "nouns": {word: getattr(choices.subject.nouns, word) for word in _NOUNS},
        "cap": None if cap is None else _make_cap_facts(plan, cap),
        "delta": _make_delta_facts(delta) if delta else None,
        "mechanism": {
            "measures": plan.mechanism.measures,
            "refines": plan.mechanism.refines,
            "isPlain": not plan.mechanism.shrinks and plan.mechanism.leaf_dial is None,
        },
        "order": plan.tree.order,
        "levels": [list(side.levels) for side in plan.tree.listed_sides],
        "normal": NORMAL_VALUES.tolist(),
        "declared": {
            "budget": choices.budgets.index(plan.budget),
            "unit": [(choice.kind, choice.neighbours) for choice in choices.units].index((unit.kind, unit.neighbours)),
            "trips": unit.max_trips or USER_TRIPS,
            "pair": unit.max_trips_pair,
            "segments": segments is not None,
        },
        "year": None if unit.max_trips_year is None else {"periods": periods, "trips": unit.max_trips_year},
        "budgets": [choices.make_budget_facts(budget) for budget in choices.budgets],
        "conversion": choices.simple_conversion,
        "units": [choices.make_unit_facts(unit) for unit in choices.units],
        "segments": None if segments is None else _make_segment_facts(segments),
        "sets": [choices.make_level_set_facts(tree) for tree in choices.trees],
        "rules": choices.make_rule_facts(),
    }


@dataclass(frozen=True, eq=False)
class _Choices:
    """The choices of a reader of the page, given the declared plan, and the facts on each that the page needs.

    Attributes:
        plan: the declared plan.
        subject: the words for what is counted.
    """

    plan: ReleasePlan
    subject: Subject

    @property
    def simple_conversion(self) -> str:
        """Name of the conversion from epsilon to rho that the page uses if readers change the shares of levels.

        Unlike the conversion ``exact``, it does not depend on the shares.
        """
        declared = self.plan.budget.conversion or self.plan.mechanism.default_conversion
        return "bun_steinke" if declared == "bun_steinke" else "tight"

    @cached_property
    def budgets(self) -> list[Budget]:
        """Budgets in the order of their epsilon, the declared one among them; shares are as declared."""
        declared = self.plan.budget
        others = [replace(declared, epsilon=Fraction(epsilon), rho=None) for epsilon in EPSILONS]
        budgets = [declared, *(other for other in others if other.epsilon != declared.epsilon)]
        return sorted(budgets, key=_compute_epsilon)

    def make_budget_facts(self, budget: Budget) -> dict[str, object]:
        """Return a budget as facts, with its charge: rho by the simple conversion or, with Laplace noise, epsilon.

        ``declared`` is the measure in which the budget is stated, and ``exact`` its exact value. ``epsilon`` (as text)
        and ``promised`` are the epsilon that it guarantees, rounded up.
        """
        if budget.rho is None:
            declared, exact = "epsilon", _compute_epsilon(budget)
            charge = exact
            if not self.plan.mechanism.has_laplace_noise:
                charge = find_rho_for_epsilon(exact, budget.delta, self.simple_conversion)
        else:
            declared, exact, charge = "rho", budget.rho, budget.rho
        return {
            "epsilon": format_rounded_up(_compute_epsilon(budget)),
            "promised": round_up_to_float(_compute_epsilon(budget)),
            "declared": declared,
            "exact": _format_exact_number(exact),
            "charge": [float(charge), format_rounded_up(charge)],
        }

    @cached_property
    def trees(self) -> list[FlowTree]:
        """Flow trees over the sets of levels that a reader may keep; all levels first."""
        origin, destination = self.plan.tree.origin, self.plan.tree.destination
        trees = []
        for kept in list_level_subsets(origin.depth):
            coarse = select_levels(origin, kept)
            other = coarse if destination.digest == origin.digest else select_levels(destination, kept)
            trees.append(FlowTree(coarse, other, self.plan.tree.order))
        return trees

    def make_level_set_facts(self, tree: FlowTree) -> dict[str, object]:
        """Return the facts of the levels of one of :attr:`trees`: the shapes of the areas, and the sizes of nodes."""
        levels, mechanism = self.plan.tree.origin.levels, self.plan.mechanism
        is_summed = mechanism.measures == "all_leaves"
        return {
            "kept": [levels.index(level) + 1 for level in tree.origin.levels],
            "origin": _make_shape_facts(tree.origin),
            "destination": None if tree.destination is tree.origin else _make_shape_facts(tree.destination),
            "keepsAll": [tables * tree.cells(tree.depth) <= mechanism.keep_all_cap for tables in (1, self.plan.tables)],
            "nodes": list_node_sizes(max(MOST_TRIPS, self.plan.unit.max_trips or 1), 1, tree),
            "mostLeaves": [find_most_leaf_pairs(tree, level) for level in range(tree.depth + 1)] if is_summed else None,
        }

    @cached_property
    def units(self) -> list[PrivacyUnit]:
        """Units with both relations; the numbers of trips of a user are stand-ins, because readers choose them."""
        declared = self.plan.unit
        user = PrivacyUnit("user", column="user", max_trips=1) if declared.kind == "trip" else declared
        yearly = None if user.max_trips_year is None else _YEARLY
        relations: tuple[Relation, ...] = ("bounded", "unbounded")
        units = [PrivacyUnit("trip", relation, max_weight=declared.max_weight) for relation in relations]
        if declared.max_weight is None:  # records with weights have no user unit
            user = replace(user, max_trips=_TRIPS, max_trips_year=yearly, max_trips_pair=None)
            units += [replace(user, neighbours=relation) for relation in relations]
        return units

    def make_unit_facts(self, unit: PrivacyUnit) -> dict[str, object]:
        """Return the facts of a unit: its bound, the protected change, and whether the total is an invariant.

        The last two are lists of two items, without and with segments. Changes are texts with stand-ins for the numbers
        of trips.
        """
        without_and_with_segments = [self._relate_neighbours(unit, segments) for segments in (None, self.plan.segments)]

        def list_changes(unit: PrivacyUnit) -> list[str]:
            """Return the protected change of a unit in words, without segments and with them."""
            subject, clauses = self.subject.with_unit(unit), []
            for neighbours in without_and_with_segments:
                subject = replace(subject, record_may_leave=neighbours.record_may_leave)
                clause = render_clauses(subject)["change"]
                for number, name in _STAND_INS.items():
                    clause = clause.replace(str(number), name)
                clauses.append(clause)
            return clauses

        is_user = unit.max_trips == _TRIPS
        return {
            "kind": unit.kind,
            "relation": unit.neighbours,
            "trips": None if is_user else unit.contribution_bound,
            "change": list_changes(unit),
            "changeOfPairs": list_changes(replace(unit, max_trips_pair=_PAIR)) if is_user else None,
            "publishesTotal": [neighbours.have_equal_totals for neighbours in without_and_with_segments],
        }

    def _relate_neighbours(self, unit: PrivacyUnit, segments: Segments | None) -> Neighbours:
        """Return the neighbour relation of the declared plan with another unit, and with other segments or None."""
        counts_every_category = segments is None or has_unknown_categories(segments.breakdowns)
        return replace(self.plan.neighbours, unit=unit, has_unknown_categories=counts_every_category)

    def make_rule_facts(self) -> list[list[list[dict[str, object]]]]:
        """Return the facts of the declared shares for each choice: lists by set of levels, by unit, and by segments.

        The last list has the facts without segments and, if the plan has some, with segments.
        """
        segment_options = [None] if self.plan.segments is None else [None, self.plan.segments]
        cases = product(self.trees, self.units, segment_options)
        facts = map_in_order(lambda case: self._make_share_facts(*case), cases)  # in the order of the lists
        return [[[next(facts) for _ in segment_options] for _ in self.units] for _ in self.trees]

    def _make_share_facts(self, tree: FlowTree, unit: PrivacyUnit, segments: Segments | None) -> dict[str, object]:
        """Return the division of the budget among the levels of ``tree``, and what each budget then guarantees.

        Returns:
            ``shares`` has pairs of a level and its share of the budget of the tree. ``fits`` is True if these are the
            declared shares, and False if they are the mechanism's default, because the declared ones are for another
            number of levels. ``ofTree`` is the share of the tree in the budget; area totals have the rest. ``rho`` and
            ``promise`` have an item for each of :attr:`budgets`; see :meth:`_compute_promises`. They are None if the
            exact privacy loss is not defined, or depends on the trips of a user, which readers choose. The page then
            uses the rho of the budget, and computes the guarantee from it.
        """
        neighbours = self._relate_neighbours(unit, segments)
        budget, shares = self._choose_fitting_shares(tree, neighbours, segments)
        level_queries = list_level_queries(shares, neighbours, segments)
        queries = [(level, breakdown is not None) for level, breakdown, _ in level_queries]
        area_totals = self.plan.area_totals
        sides = () if area_totals is None else list_area_total_sides(tree)
        if not sides:
            area_totals = None  # a tree without some levels may have the totals of zones as nodes
        queries += [(tree.depth, False)] * len(sides)
        has_chosen_bound = unit.max_trips == _TRIPS
        cells = None if has_chosen_bound else count_shifted_cells(neighbours, budget, queries)
        rhos, promises = None, None
        if cells is not None and privacy_loss.is_defined(budget.delta):
            rhos, promises = self._compute_promises(tree, neighbours, segments, budget, area_totals, cells)
        return {
            "shares": [[level, float(share)] for level, share in shares.items()],
            "ofTree": float(1 - (area_totals or 0)),
            "fits": budget is self.plan.budget,
            "rho": rhos,
            "promise": promises,
        }

    def _compute_promises(
        self,
        tree: FlowTree,
        neighbours: Neighbours,
        segments: Segments | None,
        declared: Budget,
        area_totals: Fraction | None,
        cells: tuple[int, ...],
    ) -> tuple[list[list[object]] | None, list[list[float] | None]]:
        """Return the rho of each of :attr:`budgets`, and its guarantee by the exact privacy loss.

        Args:
            declared: the budget whose shares of levels all budgets have here.
            area_totals: share of the budget for area totals; None if these are not measured.
            cells: for each step, the number of cells that differ between neighbours; see
                :func:`od_core.flows.step.count_shifted_cells`.

        Returns:
            For each budget, the rho by the conversion ``exact``, as a number and as text; None in place of the list if
            the declared conversion is another one. And for each budget, epsilon and the probability that an attacker
            guesses right; None for budgets for which the page computes these from rho.
        """
        mechanism = self.plan.mechanism
        is_exact = declared.choose_conversion(mechanism.default_conversion, ()) == "exact"
        rhos: list[list[object]] = []
        promises: list[list[float] | None] = []
        for budget in self.budgets:
            if not is_exact and budget is not self.plan.budget:
                promises.append(None)  # the privacy loss takes some hundredths of a second
                continue
            with_shares = replace(budget, shares=declared.shares)
            steps = plan_steps(tree, neighbours, mechanism, with_shares, segments, area_totals)
            shift = neighbours.unit.contribution_bound
            spent = Spent(tuple(step.rho for step in steps), budget.delta, cells, shift=shift)
            right_guesses = Guarantee.from_spent(spent).bound_guess_probability()
            promises.append([round_up_to_float(spent.epsilon), round_up_to_float(right_guesses)])
            if is_exact:
                rhos.append([float(spent.rho), format_rounded_up(spent.rho)])
        return rhos if is_exact else None, promises

    def _choose_fitting_shares(
        self, tree: FlowTree, neighbours: Neighbours, segments: Segments | None
    ) -> tuple[Budget, dict[int, Fraction]]:
        """Return the declared budget, and the share of each level of ``tree``.

        If the declared shares are for another number of levels, the returned budget has the default shares of the
        mechanism instead.
        """
        mechanism, declared, with_segments = self.plan.mechanism, self.plan.budget, segments is not None
        try:
            return declared, compute_level_shares(tree, neighbours, mechanism, declared, segments=with_segments)
        except OdError as error:
            if error.code != "OD-BUDGET-SHARES":
                raise
        budget = replace(declared, shares=mechanism.default_shares)
        return budget, compute_level_shares(tree, neighbours, mechanism, budget, segments=with_segments)


def list_level_subsets(depth: int) -> list[tuple[int, ...]]:
    """Return the sets of levels, numbered from 1, that a reader may keep, from the set of all levels to single levels.

    With more than ``MOST_FREE_LEVELS`` levels, these are the sets of consecutive levels.
    """
    levels = range(1, depth + 1)
    if depth <= MOST_FREE_LEVELS:
        return [kept for number in reversed(levels) for kept in combinations(levels, number)]
    runs = []  # sets of consecutive levels
    for number in reversed(levels):
        runs += [tuple(range(last - number + 1, last + 1)) for last in range(number, depth + 1)]
    return runs


def select_levels(geography: Geography, kept: Sequence[int]) -> Geography:
    """Return the geography with only some of the levels.

    ``kept`` are the numbers of the levels to keep, coarse to fine. The areas of the last one become the zones. The
    other side of counts by one hierarchy has no levels, and stays as it is.
    """
    if not geography.levels:
        return geography
    last = kept[-1]
    columns = {}
    for level in kept:
        columns[geography.levels[level - 1]] = geography.codes_of(level, geography.ancestors_at(last, level))
    unknown = geography.unknown
    if unknown is not None:
        area_of_unknown = geography.ancestors(last)[geography.zones.index(unknown)]
        unknown = geography.codes[last][area_of_unknown]
    return Geography.from_frame(pd.DataFrame(columns), list(columns), unknown=unknown)


def _make_shape_facts(geography: Geography) -> dict[str, object]:
    """Return the shapes of a geography's areas (:func:`group_areas_by_shape`) as facts of the page."""
    shapes = group_areas_by_shape(geography)
    pairs = []
    for level in shapes.pairs:
        parent, child = level.nonzero()
        pairs.append([parent.tolist(), child.tolist(), level[parent, child].astype(int).tolist()])
    return {
        "areas": [level.astype(int).tolist() for level in shapes.areas],
        "pairs": pairs,
        "merged": any(len(level) == MAX_SHAPES for level in shapes.areas),
    }


def _make_segment_facts(segments: Segments) -> dict[str, object]:
    """Return the name and the number of categories of each breakdown, and the share of the budget for segments."""
    breakdowns = [
        {"name": breakdown.name, "categories": len(breakdown.categories)} for breakdown in segments.breakdowns
    ]
    return {"breakdowns": breakdowns, "share": float(segments.share)}


def _make_cap_facts(plan: ReleasePlan, cap: Cap) -> dict[str, float | None]:
    """Return the rho and the epsilon that a cap allows, each None if releases of the plan cannot be charged so.

    Raises OdError if the plan has Gaussian noise, which is charged in rho, and the cap allows no rho.
    """
    if not plan.mechanism.has_laplace_noise:
        return {"rho": float(cap.require_rho()), "epsilon": None}
    allowed = cap.allowed_rho()
    return {"rho": float(allowed) if allowed else None, "epsilon": None if cap.epsilon is None else float(cap.epsilon)}


def _make_delta_facts(delta: Fraction) -> dict[str, float | str]:
    """Return a delta as a number and as text, and the logarithm of its inverse."""
    return {
        "value": round_up_to_float(delta),
        "text": format_rounded_up(delta, 3),
        "exact": _format_exact_number(delta),
        "logInverse": math.log(1 / delta),
    }


def _compute_epsilon(budget: Budget) -> Fraction:
    """Return the epsilon of a budget: as declared, or the smallest that its rho implies."""
    if budget.rho is None:
        return Fraction(budget.epsilon or 0)
    return compute_tight_epsilon(budget.rho, budget.delta)


def _format_exact_number(value: Fraction) -> str:
    """Return an exact number as a decimal if a short one is equal, and otherwise as a fraction."""
    decimal = repr(float(value)).removesuffix(".0")
    return decimal if Fraction(decimal) == value else str(value)


def _make_forecast_error(reason: str) -> OdError:
    """Return the OdError for a plan without a planning page."""
    return OdError(
        "OD-FORECAST-KIND",
        f"{reason}; a planning page is available only for flows, and counts by one hierarchy",
        next_step="run od-release plan without --page",
    )
