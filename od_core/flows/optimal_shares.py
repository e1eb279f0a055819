"""Divide a budget among the levels so that published numbers vary as little as possible: the rule ``minimise``.

**Variances.** They are those of :mod:`od_core.flows.accuracy`, as functions of the shares of the levels, without
rounding and without cuts at zero. For a sum of nodes of one level with the weights w, let A = sum w v and Q = sum w^2 v
over the children of one parent c, whose v sum to S. Then

    Var(sum w x) = sum over the parents (Q - A^2 / S) + Var(sum (A / S) c),

so the variance follows from sums of nodes of one level after the other, up to the root. Every variance is a convex
function of the precisions of the measurements, and falls in proportion to their common factor.

**Shares.** The best shares are those for which the largest of some losses is smallest. A loss is c^-k times as large if
all shares are c times as large: for shares of rho, k is 1 for variances and 1/2 for standard deviations, and then every
loss is a convex function of the shares. Let h_j be the losses at the shares x, and g_jl the derivatives of -h_j. If the
losses are convex, then for any weights lambda_j that are at least 0 and sum to 1, all shares y satisfy

    max_j h_j(y) >= sum_j lambda_j ((1 + k) h_j(x) - sum_l g_jl y_l).

The largest right-hand side over lambda, for the worst y, is a linear program. It proves how far x is from the optimum.

**Laplace noise** has variances in proportion to 1 / (share of epsilon)^2, so k is 2 for variances and 1 for standard
deviations. An estimate is a weighted sum of measurements. If its weights stay those at x, its variance is the sum of
terms a_l / y_l^2, which is convex, and so is its root, a norm of the convex terms root(a_l) / y_l. These losses and
their derivatives are those of the best weights at x, by the envelope theorem. So the same linear program proves how far
x is from the best shares for these weights. Over all weights, losses need not be convex: a number that is measured at
two levels has a variance in proportion to 1 / (y_1^2 + y_2^2), and is most accurate if one level has nearly all of the
budget. Therefore, the search begins at several shares, and its best result is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import permutations
from typing import Literal

import numpy as np
import scipy  # its solvers take a second to import, and load at their first use

from od_core.errors import OdError
from od_core.flows.accuracy import UNMEASURED, NodeVariances, ShapedTree, Shapes, Variance, compute_segment_variance
from od_core.flows.arrays import Integers, Reals
from od_core.flows.mechanisms import Mechanism
from od_core.flows.step import Segments, list_level_queries, list_measured_levels
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography
from od_core.meaning.features import list_given_options, refuse_unsupported
from od_core.privacy.neighbours import Neighbours
from od_core.privacy.shares import MinimiseRule
from od_core.records.segments import Breakdown

SHARE_DENOMINATOR = 1_000_000
"""Denominator of shares, unless the caller asks for a coarser one."""

MIN_SHARE = 0.02
"""Smallest share of a level. With less, the level is so noisy that cuts at zero disturb the levels beside it."""

MAX_GAP = 0.005
"""Largest proven relative distance from the optimum. A larger one is an error."""

_MAX_SEARCHES = 4
"""Largest number of searches. The solver may stop at a corner of the allowed shares; the next search then begins
further inside."""

_KEPT_PART = 0.9
"""Part of the start of the next search that is the last result; the rest is equal shares."""

_LOG_SHARE_BOUNDS = (-14.0, 1.0)
"""Bounds of the logarithms of shares in the search, before they are scaled to sum to 1."""

_DIFFERENCE_STEP = 1e-4
"""Step, in logarithms of shares, of the differences from which derivatives are computed."""

_MAIN_START_SHARE = 0.75
"""Share of one level at the start of a search. All levels have equal parts of the rest."""


@dataclass(frozen=True)
class OptimalShares:
    """The best shares, and a proven bound of their distance from the optimum.

    Attributes:
        shares: exact share of each level that needs one, top level first; they sum to 1.
        largest: the largest loss at these shares.
        gap: proven upper bound of ``1 - optimum / largest``, over all shares that are not below the smallest. With
            Laplace noise, the optimum is that of estimates with the same weights of the measurements.
    """

    shares: tuple[Fraction, ...]
    largest: float
    gap: float


def find_optimal_shares(
    losses: Callable[[Reals], Reals], starts: Sequence[Reals], power: float, coarse: int | None = None
) -> OptimalShares:
    """Return the shares for which the largest loss is smallest, with the proof.

    Args:
        losses: returns the losses of given shares; shapes (shares,) and (losses,). Each is above 0, and falls with
            every share.
        starts: shares with which a search begins, shape (shares,) each; they sum to 1. One start is enough if the
            losses are convex.
        power: power k of the losses; a loss at c times the shares is c^-k times the loss.
        coarse: for a single loss, a denominator of at most ten thousand. The shares are then the best multiples of
            1 / ``coarse``, which do not depend on the last digits of a computation. By default, they are multiples of
            1 / SHARE_DENOMINATOR near the optimum.

    Raises:
        OdError: ``OD-SHARES-OPTIMUM``, if the result is not proven to be within ``MAX_GAP`` of the optimum.
    """
    denominator = coarse or SHARE_DENOMINATOR
    for _ in range(_MAX_SEARCHES):
        solutions = [_solve_real_shares(losses, start) for start in starts]
        best = min(solutions, key=lambda shares: losses(shares).max())
        # Minus the derivatives by the shares, from those by their logarithms, whose steps are relative.
        slopes = -_compute_derivatives(lambda logarithms: losses(np.exp(logarithms)), np.log(best)) / best
        bound = _compute_lower_bound(losses(best), slopes, power)
        units = _round_shares(best, denominator)
        if coarse is not None:
            units = _improve_shares(units, denominator, losses)
        largest = float(losses(units / denominator).max())
        gap = max(1 - bound / largest, 0.0)
        if gap <= MAX_GAP:
            return OptimalShares(tuple(Fraction(int(unit), denominator) for unit in units), largest, gap)
        starts = [_KEPT_PART * best + (1 - _KEPT_PART) / len(best)]
    raise OdError(
        "OD-SHARES-OPTIMUM",
        f"the best shares were not found: these may be {100 * gap:.1f} % from the optimum",
        next_step="choose shares yourself, or report this defect with the zone list",
    )


def _solve_real_shares(losses: Callable[[Reals], Reals], start: Reals) -> Reals:
    """Return the best shares as real numbers, found by a search that begins with the shares ``start``.

    Multiplying all shares by c multiplies every loss by the same power of c. So the search minimises the sum of the
    shares while no loss exceeds the largest loss at the start. Scaled to sum to 1, the result is the best shares. The
    variables are logarithms of shares, so that shares stay above 0.
    """
    if len(start) == 1:
        return start
    largest = losses(start).max()

    def compute_gains(logarithms: Reals) -> Reals:
        """Return the logarithm of the largest loss at the start minus that of each loss; shape (losses,)."""
        gains: Reals = -np.log(losses(np.exp(logarithms)) / largest)
        return gains

    def scale_to_shares(logarithms: Reals) -> Reals:
        shares: Reals = np.exp(logarithms) / np.exp(logarithms).sum()
        return shares

    result = scipy.optimize.minimize(
        lambda logarithms: float(np.log(np.exp(logarithms).sum())),
        np.log(np.maximum(start, MIN_SHARE)),
        jac=scale_to_shares,
        method="SLSQP",
        bounds=[_LOG_SHARE_BOUNDS] * len(start),
        constraints=[
            {
                "type": "ineq",  # no loss is above the largest one at the start
                "fun": compute_gains,
                "jac": lambda logarithms: _compute_derivatives(compute_gains, logarithms),
            },
            {
                "type": "ineq",  # no share is below the smallest
                "fun": lambda logarithms: np.log(scale_to_shares(logarithms) / MIN_SHARE),
                "jac": lambda logarithms: np.eye(len(start)) - scale_to_shares(logarithms),
            },
        ],
        options={"maxiter": 300, "ftol": 1e-10},
    )
    return scale_to_shares(result.x)


def _compute_derivatives(function: Callable[[Reals], Reals], point: Reals) -> Reals:
    """Return the derivatives of a vector-valued function by central differences; shape (values, variables)."""
    steps = _DIFFERENCE_STEP * np.eye(len(point))
    return np.array([(function(point + step) - function(point - step)) / (2 * _DIFFERENCE_STEP) for step in steps]).T


def _round_shares(shares: Reals, denominator: int) -> Integers:
    """Return shares in whole units of 1 / ``denominator``; shape (shares,).

    They sum to ``denominator``, and each is at least ``MIN_SHARE``.
    """
    min_units = round(MIN_SHARE * denominator)
    units = np.maximum(np.floor(shares * denominator), min_units).astype(np.int64)
    missing = denominator - units.sum()
    while missing != 0:
        remainders = shares * denominator - units
        if missing > 0:
            units[np.argmax(remainders)] += 1
        else:  # shares below the minimum were raised to it
            units[np.argmin(np.where(units > min_units, remainders, np.inf))] -= 1
        missing = denominator - units.sum()
    return units


def _improve_shares(units: Integers, denominator: int, losses: Callable[[Reals], Reals]) -> Integers:
    """Return shares in units of 1 / ``denominator`` that no move of one unit to another share improves.

    Units are moved one by one while a move makes the loss smaller. ``losses`` returns a single loss. No share falls
    below ``MIN_SHARE``.
    """
    min_units = round(MIN_SHARE * denominator)
    best = losses(units / denominator)[0]
    moves = list(permutations(range(len(units)), 2))  # from a share, and to another
    found_better = True
    while found_better:
        found_better = False
        for giver, taker in moves:
            moved = units.copy()
            moved[giver] -= 1
            moved[taker] += 1
            if moved[giver] < min_units:
                continue
            loss = losses(moved / denominator)[0]
            if loss < best * (1 - 1e-12):  # by more than rounding, or two moves could undo each other for ever
                units, best = moved, loss
                found_better = True
    return units


def _compute_lower_bound(values: Reals, slopes: Reals, power: float) -> float:
    """Return a lower bound of the optimum, proven by the linear program of the module docstring.

    The program's variables are the weights lambda_j, and t, the largest of sum_j lambda_j g_jl over the shares l. The
    bound is smallest for the y that have all spare budget at that share l.

    Args:
        values: losses h_j at some shares; shape (losses,).
        slopes: minus their derivatives there, g_jl; shape (losses, shares).
        power: power k of the losses.
    """
    count, levels = slopes.shape
    spare = 1 - levels * MIN_SHARE  # what remains after the smallest share of each level
    value_at_min_shares = (1 + power) * values - slopes.sum(axis=1) * MIN_SHARE  # the factor of each lambda_j
    result = scipy.optimize.linprog(
        np.append(-value_at_min_shares, spare),
        A_ub=np.column_stack([slopes.T, -np.ones(levels)]),
        b_ub=np.zeros(levels),
        A_eq=np.append(np.ones(count), 0.0)[np.newaxis],
        b_eq=np.ones(1),
        bounds=[(0, None)] * count + [(None, None)],
    )
    return float(-result.fun)


Part = Literal["all", "within", "outflow", "inflow"]


@dataclass(frozen=True)
class Quantity:
    """The flows of a pair of levels, or the trips within, from or to each area of a level.

    Attributes:
        name: text that names the quantity; see :meth:`parse`.
        origin_level, destination_level: numbers of the levels; 0 is the whole space.
        part: ``all`` pairs of areas; ``within``, the pairs of an area with itself; ``outflow`` and ``inflow``, the
            trips between an area and all other areas of its level.
        breakdown: breakdown by whose categories the trips are counted; None for all trips.
    """

    name: str
    origin_level: int
    destination_level: int
    part: Part = "all"
    breakdown: Breakdown | None = None

    @classmethod
    def parse(cls, text: str, tree: FlowTree, breakdowns: Sequence[Breakdown] = ()) -> Quantity:
        """Return the quantity that a text names.

        Examples of the text are ``state x region``, ``state within``, ``state outflow``, ``state inflow`` and, with a
        breakdown, ``state x state by mode``. Raises OdError (``OD-QUANTITY-UNKNOWN``) if the text names no quantity of
        the tree; its message has the most similar one.
        """
        quantities = _index_quantities(tree, breakdowns)
        name = " ".join(str(text).split())
        if name not in quantities:
            similar = get_close_matches(name, quantities, 1)
            levels = ", ".join(dict.fromkeys((*tree.origin.level_names, *tree.destination.level_names)))
            hint = f"did you mean {similar[0]!r}?" if similar else f"levels: {levels}"
            raise OdError(
                "OD-QUANTITY-UNKNOWN",
                f"there is no quantity {name!r} ({hint})",
                next_step="write it as 'state x region' or 'state outflow', and 'by' with a breakdown after it",
            )
        return quantities[name]


def _index_quantities(tree: FlowTree, breakdowns: Sequence[Breakdown]) -> dict[str, Quantity]:
    """Return all quantities of a release by name, first those of all trips, then those by category.

    Trips within, from and to areas are quantities only if origins and destinations have the same geography.
    """
    origins, destinations = tree.origin.level_names, tree.destination.level_names
    totals = [
        Quantity(f"{origin} x {destination}", origin_level, destination_level)
        for origin_level, origin in enumerate(origins)
        for destination_level, destination in enumerate(destinations)
    ]
    if tree.same_geography:
        for level, name in enumerate(origins[1:], start=1):  # no trips leave the whole space
            parts: tuple[Part, ...] = ("within", "outflow", "inflow")
            totals += [Quantity(f"{name} {part}", level, level, part) for part in parts]
    by_category = [
        replace(total, name=f"{total.name} by {breakdown.name}", breakdown=breakdown)
        for breakdown in breakdowns
        for total in totals
    ]
    return {quantity.name: quantity for quantity in (*totals, *by_category)}


MAX_SHAPES_PER_LEVEL = 128
"""Largest number of shapes that are distinguished at a level. It limits the time of one evaluation to milliseconds."""

MAX_SUMMED_NODES = 20_000_000
"""Largest number of nodes that are summed for a pair of levels that the flow tree does not have."""

Cells = tuple[Integers, Integers]
"""Pairs of areas: origins and destinations, shape (cells,) each."""

Noise = tuple[tuple[int, float], ...]
"""Pairs of a measured level and the variance of its noise, top level first. They are hashable, as a cache needs."""


@dataclass(frozen=True, eq=False)
class VarianceModel:
    """The variances of the numbers of a release with a rho of 1 or, with Laplace noise, an epsilon of 1.

    The variances are functions of the shares of the levels. If the shares do not sum to 1, their sum is rho or epsilon.
    The variance of Laplace noise is approximated by 2 scale^2, which is close for scales of at least 1.

    Attributes:
        tree: the flow tree. If it refines both sides at once, it is replaced by the tree that refines one side at a
            time, in which every other level is not measured.
        neighbours, mechanism, segments: those of the plan.
        measured_tree: the flow tree as given.

    Raises:
        OdError: The rule ``minimise`` does not support the mechanism or another feature of the plan.
    """

    tree: FlowTree
    neighbours: Neighbours
    mechanism: Mechanism
    segments: Segments | None = None
    measured_tree: FlowTree = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "measured_tree", self.tree)
        object.__setattr__(self, "tree", self.tree.in_turn)
        tree = self.measured_tree
        given = list_given_options(
            minimise=True, segments=self.segments, both_sides=tree.refines_both, found=tree.found
        )
        refuse_unsupported("counts" if self.tree.has_one_side else "flows", self.mechanism.features | given)

    @property
    def power(self) -> int:
        """Power k of the variances: with c times the budget, they are c^-k times as large."""
        return 2 if self.mechanism.has_laplace_noise else 1

    @property
    def starts(self) -> list[Reals]:
        """Shares of the free levels with which searches begin; shape (free levels,) each.

        They are equal or, for Laplace noise, also larger for one level at a time, since losses need not be convex.
        """
        count = len(self.free_levels)
        equal = np.full(count, 1 / count)
        if not self.mechanism.has_laplace_noise:
            return [equal]
        return [equal, *(_MAIN_START_SHARE * one + (1 - _MAIN_START_SHARE) * equal for one in np.eye(count))]

    @cached_property
    def levels(self) -> list[int]:
        """Levels that share the budget, top first."""
        return list_measured_levels(
            self.neighbours,
            self.mechanism,
            self.measured_tree.depth,
            segments=self.segments is not None,
        )

    @cached_property
    def free_levels(self) -> list[int]:
        """Levels that need a share, top first. Nodes of other levels have one child each, with the same count."""
        return [level for level in self.levels if self.measured_tree.largest_fan_out(level) != 1]

    def fill_level_shares(self, shares: Sequence[Fraction]) -> tuple[Fraction, ...]:
        """Return the shares of all levels that share the budget, given those of the free levels."""
        chosen = dict(zip(self.free_levels, shares, strict=True))
        return tuple(chosen.get(level, Fraction(0)) for level in self.levels)

    def compute_mean_variance(self, quantity: Quantity, shares: Reals) -> float:
        """Return the mean variance over all public cells of a quantity, given the share of each free level.

        Raises OdError (``OD-QUANTITY-TOO-LARGE``) if the cells are sums of more than ``MAX_SUMMED_NODES`` nodes.
        """
        level = self._find_tree_level(quantity)
        if level is None or quantity.part != "all":
            return float(self.make_cell_variance_function(quantity)(shares).mean())
        return float(self._compute_variance(quantity, shares, lambda noise: self._nodes(noise).means[level]))

    def make_cell_variance_function(self, quantity: Quantity, cells: Cells | None = None) -> Callable[[Reals], Reals]:
        """Return a function that computes the variances of cells, shape (cells,), from the shares of the free levels.

        Without ``cells``, all cells of the quantity are used. For the trips within, from or to an area, that area is
        both the origin and the destination of the cell. Raises OdError as :meth:`compute_mean_variance` does.
        """
        level = self._find_tree_level(quantity)
        if level is None:
            from_noise = self._make_sum_variance_function(quantity, cells)
        else:
            from_noise = self._make_node_variance_function(
                level, self._list_cells(quantity) if cells is None else cells
            )
        return lambda shares: self._compute_variance(quantity, shares, from_noise)

    def _compute_variance(self, quantity: Quantity, shares: Reals, from_noise: Callable[[Noise], Variance]) -> Variance:
        """Return the variance of a quantity: of its totals or, with a breakdown, of one category.

        ``from_noise`` computes the variance in one table, given the noise of the table's levels.
        """
        noise_of_totals, noise_of_category = self._compute_noise_variances(quantity, shares)
        total = from_noise(noise_of_totals)
        if quantity.breakdown is None or noise_of_category is None:
            return total
        return compute_segment_variance(total, from_noise(noise_of_category), len(quantity.breakdown.categories))

    def _list_cells(self, quantity: Quantity) -> Cells:
        """Return all cells of a quantity, in row order. A quantity of single areas has the cells (area, area)."""
        size = self.tree.origin.size(quantity.origin_level)
        if quantity.part != "all":
            return np.arange(size), np.arange(size)
        width = self.tree.destination.size(quantity.destination_level)
        return np.divmod(np.arange(size * width), width)

    def _find_tree_level(self, quantity: Quantity) -> int | None:
        """Return the level of the flow tree whose nodes are the cells of a quantity; None if there is no such level."""
        if quantity.part in ("outflow", "inflow"):
            return None
        pairs = list(map(self.tree.level_pair, range(self.tree.depth + 1)))
        pair = (quantity.origin_level, quantity.destination_level)
        return pairs.index(pair) if pair in pairs else None

    def _compute_noise_variances(self, quantity: Quantity, shares: Reals) -> tuple[Noise, Noise | None]:
        """Return the noise of the totals, and that of one category, as ``plan_steps`` plans them.

        ``shares`` are those of the free levels. Without a breakdown, the second is None.
        """
        share_of_level = dict(zip(self.free_levels, shares.tolist(), strict=True))
        # If the total is exact, the root's share is not spent on a query of totals, so queries have less than all.
        spent_shares = [share_of_level[level] * part for level, _, _, part in self._queries]
        spent_part = sum(spent_shares) / sum(share_of_level.values())
        precision: dict[int, float] = {}  # of the combined totals of each level
        variance_of_level: dict[int, float] = {}  # of one category
        in_turn = self.measured_tree.find_level_in_turn
        for level, breakdown, unit_variance, part in self._queries:  # the totals of a level before its categories
            variance = unit_variance * (spent_part / (share_of_level[level] * part)) ** self.power
            if breakdown is None:
                precision[level] = 1 / variance
            elif level in precision:
                precision[level] += 1 / (len(breakdown.categories) * variance)
            if breakdown is not None and breakdown == quantity.breakdown:
                variance_of_level[in_turn(level)] = variance
        unknown_root = {} if self.neighbours.have_equal_totals else {0: math.inf}  # a measured root replaces it
        combined = {in_turn(level): 1 / value for level, value in precision.items()}
        noise_of_totals = tuple((unknown_root | combined).items())
        if quantity.breakdown is None:
            return noise_of_totals, None
        unmeasured_root = {0: UNMEASURED * max(variance_of_level.values())}  # a measured root replaces it
        return noise_of_totals, tuple((unmeasured_root | variance_of_level).items())

    @cached_property
    def _queries(self) -> list[tuple[int, Breakdown | None, float, float]]:
        """For each query: its level, its breakdown, the variance of its noise if it had the whole budget, and its part.

        The part is that of the level's share. The breakdown of a query of totals is None.
        """
        queries = list_level_queries(dict.fromkeys(self.free_levels, Fraction(1)), self.neighbours, self.segments)
        return [
            (level, breakdown, self._compute_unit_variance(level, by_segment=breakdown is not None), float(part))
            for level, breakdown, part in queries
        ]

    def _compute_unit_variance(self, level: int, *, by_segment: bool) -> float:
        """Return the variance of the noise of a query that has the whole budget: a rho of 1, or an epsilon of 1."""
        if self.mechanism.has_laplace_noise:
            return 2.0 * self.neighbours.absolute_sensitivity(level, by_segment=by_segment) ** 2
        return self.neighbours.sensitivity_squared(level, by_segment=by_segment) / 2

    @cached_property
    def _shaped(self) -> ShapedTree:
        """The nodes of the tree, grouped by the shapes of their areas."""
        return ShapedTree.from_tree(self.tree, MAX_SHAPES_PER_LEVEL)

    @property
    def _sides(self) -> list[tuple[Geography, Shapes]]:
        """Two pairs of a geography and the shapes of its areas: for the origins, and for the destinations."""
        return list(zip((self.tree.origin, self.tree.destination), self._shaped.sides, strict=True))

    @cached_property
    def _nodes(self) -> Callable[[Noise], NodeVariances]:
        """Function that computes the variances of nodes from noise; it caches the latest eight results."""
        return lru_cache(8)(
            lambda noise: NodeVariances.from_noise_variances(self._shaped, dict(noise), refined=self.mechanism.refines)
        )

    def _make_node_variance_function(self, level: int, cells: Cells) -> Callable[[Noise], Reals]:
        """Return a function that computes the variance of some nodes of a level, shape (nodes,), from the noise.

        ``cells`` has the origin and destination areas of the nodes. From the node's level up to the root, the function
        follows the formula of :meth:`_make_sum_variance_function` for a sum of one child below each parent.
        """
        columns = []  # two for each level, root first: the shapes of each node's origin and destination ancestors
        for tree_level in range(level + 1):
            for (geography, shapes), below, above, areas in zip(
                self._sides, self.tree.level_pair(level), self.tree.level_pair(tree_level), cells, strict=True
            ):
                columns.append(shapes.of_areas[above][geography.ancestors_at(below, above)[areas]])
        # Nodes with ancestors of the same shapes have the same variance, which is computed once.
        paths, path_of_node = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
        index = []  # of each level: the position of each path's pair of shapes in the flattened array of all pairs
        for tree_level, (origins, destinations) in enumerate(self._shaped.nodes[: level + 1]):
            shapes_of_level = (len(origins), len(destinations))
            pair = (paths[:, 2 * tree_level], paths[:, 2 * tree_level + 1])
            index.append(np.ravel_multi_index(pair, shapes_of_level))

        def compute_variances(noise: Noise) -> Reals:
            nodes = self._nodes(noise)
            variance, weight = np.zeros(len(paths)), np.ones(len(paths))  # w, in the formula
            for below in range(level, 0, -1):
                wv = weight * nodes.own[below].take(index[below])
                sum_v = nodes.siblings[below - 1].take(index[below - 1])
                variance += weight * wv - wv**2 / sum_v
                weight = wv / sum_v
            of_nodes: Reals = (variance + weight**2 * nodes.root[0, 0])[path_of_node]
            return of_nodes

        return compute_variances

    def _find_summed_level(self, quantity: Quantity) -> int:
        """Return the first level of the tree whose nodes add up to the cells of a quantity.

        Raises OdError (``OD-QUANTITY-TOO-LARGE``) if the level has more than ``MAX_SUMMED_NODES`` nodes.
        """
        level = 0
        while any(np.less(self.tree.level_pair(level), (quantity.origin_level, quantity.destination_level))):
            level += 1
        if self.tree.cells(level) > MAX_SUMMED_NODES:
            raise OdError(
                "OD-QUANTITY-TOO-LARGE",
                f"{quantity.name} is the sum of {self.tree.cells(level):,} flows, more than {MAX_SUMMED_NODES:,}",
                next_step="choose a pair of levels of the flow tree; od-release plan lists them",
            )
        return level

    def _make_sum_variance_function(self, quantity: Quantity, cells: Cells | None) -> Callable[[Noise], Reals]:
        """Return a function that computes the variance of cells that are sums of nodes, shape (cells,), from the noise.

        Without ``cells``, all cells of the quantity are used. The module docstring has the formula, in which a node
        weighs 1 at first if the cell has it, and otherwise 0. At each level, the sum over the children of a parent with
        the weights w and the variances v, which sum to S, adds sum(w^2 v) - sum(w v)^2 / S to the variance, and the
        parent weighs sum(w v) / S.
        """
        level = self._find_summed_level(quantity)
        level_pairs = [self.tree.level_pair(tree_level) for tree_level in range(level + 1)]
        origin_level, destination_level = level_pairs[level]
        cell_levels = (quantity.origin_level, quantity.destination_level)
        is_summed = np.ones((self.tree.origin.size(origin_level), self.tree.destination.size(destination_level)))
        if quantity.part in ("outflow", "inflow"):
            np.fill_diagonal(is_summed, 0)
            cell_levels = (cell_levels[0], 0) if quantity.part == "outflow" else (0, cell_levels[1])
        # At each tree level, there is one sum for each pair of areas of that level or, if finer, of the cells' level.
        area_levels = [tuple(map(max, pair, cell_levels)) for pair in level_pairs]
        shape_index = [self._make_shape_index(tree_level, pair) for tree_level, pair in enumerate(area_levels)]

        def compute_variances(noise: Noise) -> Reals:
            nodes = self._nodes(noise)
            weight, variance = is_summed, np.zeros(1)
            for below in range(level, 0, -1):
                above = below - 1
                wv = weight * nodes.own[below][shape_index[below]]
                sum_wwv = self._sum_by_ancestors(weight * wv, area_levels[below], area_levels[above])
                sum_wv = self._sum_by_ancestors(wv, area_levels[below], area_levels[above])
                sum_v = nodes.siblings[above][shape_index[above]]
                added = sum_wwv - sum_wv**2 / sum_v
                variance = variance + self._sum_by_ancestors(added, area_levels[above], cell_levels)
                weight = sum_wv / sum_v
            of_cells: Reals = variance + weight**2 * nodes.root[0, 0]
            if cells is None:
                return of_cells.ravel()
            # The trips from or to an area are one row or column, so the number of the area is that of the cell.
            return of_cells[cells] if quantity.part == "all" else of_cells.ravel()[cells[0]]

        return compute_variances

    def _make_shape_index(self, level: int, area_levels: Iterable[int]) -> tuple[Integers, ...]:
        """Return an index that turns an array of one value per pair of shapes of a level into one per pair of areas.

        ``area_levels`` are the levels of the areas on both sides, as fine as those of the tree level or finer.
        """
        sides = [
            shapes.of_areas[coarse][geography.ancestors_at(fine, coarse)]
            for (geography, shapes), coarse, fine in zip(
                self._sides, self.tree.level_pair(level), area_levels, strict=True
            )
        ]
        return np.ix_(*sides)

    def _sum_by_ancestors(self, values: Reals, below: Iterable[int], above: Iterable[int]) -> Reals:
        """Return the sum of values by pair of areas of the levels ``above``; shape (origin areas, destination areas).

        ``values`` has one value for each pair of areas of the levels ``below``, which are as fine or finer.
        """
        for axis, ((geography, _), fine, coarse) in enumerate(zip(self._sides, below, above, strict=True)):
            if fine != coarse:
                first = np.searchsorted(geography.ancestors_at(fine, coarse), np.arange(geography.size(coarse)))
                values = np.add.reduceat(values, first, axis=axis)
        return values


COARSE_SHARE_DENOMINATOR = 10_000
"""Denominator of the shares that minimise one error. It is coarse, so that every machine finds the same shares."""


def minimise_expected_error(model: VarianceModel, rule: MinimiseRule) -> OptimalShares:
    """Return the shares of the free levels that minimise a weighted sum of expected errors.

    The expected error of a quantity is its root-mean-square error over all public cells, without rounding and without
    cuts at zero. It is a convex function of the shares of rho, and with Laplace noise, of the shares of epsilon for
    fixed weights of the measurements.

    Raises:
        OdError: A quantity of the rule is unknown or has too many cells, or no optimum is proven.
    """
    breakdowns = () if model.segments is None else model.segments.breakdowns
    chosen = [(Quantity.parse(name, model.tree, breakdowns), float(weight)) for name, weight in rule.weights]

    def compute_error(shares: Reals) -> Reals:
        """Return the weighted sum of errors as an array of one loss; shape (1,)."""
        errors = [weight * model.compute_mean_variance(quantity, shares) ** 0.5 for quantity, weight in chosen]
        return np.array([sum(errors)])

    # An error is the root of a variance, so its power is half that of variances.
    return find_optimal_shares(compute_error, model.starts, model.power / 2, COARSE_SHARE_DENOMINATOR)
