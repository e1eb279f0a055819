"""Define the mechanisms for trips with stops, which cut the grid into boxes and count the trips of each, by name.

- Grids cut every dimension into nearly equal parts. Their number is fixed, or a formula gives it from a noisy total.
- In density trees, the nodes of depth i, from 0, are cut in dimension i + 1 [shaham2022stops, section 4]. The noisy
  count of a node determines its number of parts.
- PrivTree [zhang2016privtree] is a binary tree whose privacy cost does not grow with its depth.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, lru_cache
from itertools import count
from typing import ClassVar, Literal, Protocol, get_args, runtime_checkable

import numpy as np
from flint import arb, fmpz
from numpy.typing import NDArray

from od_core.errors import STAYS_CHARGED, OdError
from od_core.kernels import kernel
from od_core.noise.backends import LaplaceSource, check_noise
from od_core.noise.opendp import SCALE_SLACK
from od_core.noise.table_sampler import Keystream, convert_to_rational, set_precision
from od_core.privacy.accounting import parse_exact_fraction
from od_core.privacy.plan import Mechanism
from od_core.registry import Registry, refuse_unknown
from od_core.stops.geometry import Boxes, Counts, Grid, Nodes, Points, Rows, count_trips_by_cell, make_boxes
from od_core.stops.heterogeneity import SCORE_SENSITIVITY, compute_heterogeneity

_BITS_OF_WEIGHT = 20
"""Number of bits after the binary point of the weights of :func:`split_budget_by_depth`.
Weights are rounded down to these bits, so that the shares are exact fractions."""


@dataclass(frozen=True, eq=False)
class BudgetPath:
    """An immutable account of the budget that is spent on a path from the root of a tree of boxes towards a leaf.

    The boxes of one depth are disjoint, so each trip is on one path only, and a release costs as much as one path.

    Attributes:
        source: source of the noise.
        sensitivity: largest total change of the counts of one depth if one trip is added or removed (1) or replaced
            (2).
        left: remaining epsilon.
        spent: spent epsilon.
    """

    source: LaplaceSource
    sensitivity: int
    left: Fraction
    spent: Fraction = Fraction(0)

    def measure(self, counts: Counts, epsilon: Fraction) -> tuple[Counts, BudgetPath]:
        """Return the counts of disjoint boxes plus discrete Laplace noise, and the path after it is charged.

        ``counts`` are confidential; shape (boxes,). The noise has scale sensitivity / epsilon.
        """
        paid = self.with_charge(epsilon)
        noisy = self.draw_noise(self.sensitivity / epsilon, len(counts))
        noisy += counts
        return noisy, paid

    def draw_noise(self, scale: Fraction, size: int) -> Counts:
        """Return ``size`` draws of discrete Laplace noise. The caller charges them first, with :meth:`with_charge`.

        Raises OdError if the noise source does not return ``size`` integers, or if one is too large.
        """
        drawn = self.source.draw_laplace(scale, size) if size else np.zeros(0, dtype=np.int64)
        return check_noise(self.source, drawn, size)

    def with_charge(self, epsilon: Fraction) -> BudgetPath:
        """Return a copy of the path with ``epsilon`` moved from the remaining to the spent budget.

        Raises OdError if the charge is not above 0 or exceeds the remaining budget.
        """
        if not 0 < epsilon <= self.left:
            message = f"a path needs epsilon {epsilon}, but {self.left} remains"
            raise OdError("OD-STOPS-CHARGE", message, next_step="report this defect", spent=STAYS_CHARGED)
        return replace(self, left=self.left - epsilon, spent=self.spent + epsilon)


def split_budget_by_depth(left: Fraction, root_parts: int, dimensions: int) -> list[Fraction]:
    """Split the budget ``left`` among the depths i = 1 to d, in proportion to m0^(i / 3), and return the d shares.

    m0 is ``root_parts``, the number of parts of the root, and d is ``dimensions`` [shaham2022stops, equation 32].
    """
    cubes = [root_parts**depth << 3 * _BITS_OF_WEIGHT for depth in range(1, dimensions + 1)]
    weights = [int(fmpz(cube).root(3)) for cube in cubes]  # integer cube roots: m0^(i / 3) * 2^20, rounded down
    return [left * Fraction(weight, sum(weights)) for weight in weights]


@runtime_checkable
class StopsMechanism(Mechanism, Protocol):
    """The interface of a mechanism, which cuts the grid into boxes and draws a noisy count of each box."""

    def refuse_grid(self, grid: Grid) -> None:
        """Raise OdError if the mechanism cannot cut the grid. A plan calls this before anything is charged.

        By default, do nothing, because the number of boxes depends on a draw. Override this if the grid alone tells.
        """

    def compute_noise_scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Return the noise scales that do not depend on a draw, by purpose. The plan publishes them.

        The last one is that of the published counts, unless the mechanism overrides :meth:`compute_count_scale`.

        ``epsilon`` is the whole budget, and ``sensitivity`` that of a :class:`BudgetPath`. Raises OdError if the noise
        would cost more than its charge.
        """
        ...

    def compute_count_scale(self, boxes: Boxes, grid: Grid, epsilon: Fraction, sensitivity: int) -> Fraction:
        """Return the largest scale of the noise on the published counts of drawn boxes, from public facts alone.

        By default, this is the last scale of :meth:`compute_noise_scales`. The noise on the published count of a box is
        drawn after the box is fixed, and only for this count. So, given the boxes, a published count is the true count
        plus discrete Laplace noise of at most this scale. For ``epsilon`` and ``sensitivity``, see
        :meth:`compute_noise_scales`.
        """
        *_, last_scale = self.compute_noise_scales(epsilon, sensitivity).values()
        return last_scale

    def compute_widest_scale(self, grid: Grid, epsilon: Fraction, sensitivity: int) -> Fraction:
        """Return an upper bound of the scale of all noise that a draw may need, from public facts alone.

        By default, all scales are those of :meth:`compute_noise_scales`. Override this if scales depend on a draw.
        """
        return max(self.compute_noise_scales(epsilon, sensitivity).values())

    def draw_boxes(self, points: Points, grid: Grid, path: BudgetPath) -> Drawn:
        """Draw the boxes, each with a noisy count, from confidential points. The result is public.

        The mechanism leaves the points as they are. ``path`` is at the root and has the whole budget. On the paths of
        the result, no budget remains. Raises OdError if there would be more than ``MAX_BOXES`` boxes.
        """
        ...


def parse_whole_number(option: object) -> int | None:
    """Return an option as an integer, or None if it is neither an integer nor an integer in text."""
    if isinstance(option, str) and re.fullmatch(r"-?[0-9]{1,18}", option):
        return int(option)
    return option if isinstance(option, int) and not isinstance(option, bool) else None


@dataclass(frozen=True, eq=False)
class Drawn:
    """The result of a mechanism: the boxes, which are the leaves of a tree or the boxes of a grid, and their paths.

    The ``paths`` lead from the root to the boxes, after all charges. Boxes with the same charges share a path.
    """

    boxes: Boxes
    paths: tuple[BudgetPath, ...]


Rounding = Literal["nearest", "up", "down", "times_1.5"]
"""Rounding of the computed number of parts m of a box to an integer. ``times_1.5`` gives the integer nearest 1.5 m."""


def compute_fan_out(noisy: Counts, epsilon: Fraction, dimensions: int, length: int, rounding: Rounding) -> Counts:
    """Return m, the number of parts into which each box is cut in a dimension; shape (boxes,).

    Before rounding, m = (N epsilon / sqrt 2)^(2 / (3 d)) for a noisy count N [shaham2022stops, equation 19]. At this m,
    the entropy of the noise on m^d parts equals the information that the cut into m^d parts loses (equation 18). m is
    rounded and clipped to the range from 1 to ``length``. If N <= 1, m is 1.

    ``noisy`` has the N of the boxes, and ``epsilon`` is the inverse of the scale of the noise that the parts will have.
    d is ``dimensions``, the number of those still to be cut, and ``length`` the number of cells of this one.
    """
    exact = compute_unrounded_fan_out(np.maximum(noisy, 1), float(epsilon), dimensions)
    if rounding == "up":
        rounded = np.ceil(exact)
    elif rounding == "down":
        rounded = np.floor(exact)
    else:
        rounded = np.floor(exact * (1.5 if rounding == "times_1.5" else 1) + 0.5)
    return np.where(noisy > 1, np.clip(rounded, 1, length), 1).astype(np.int64)


def compute_unrounded_fan_out(noisy: Counts, epsilon: float, dimensions: int) -> NDArray[np.number]:
    """Return m, the unrounded number of parts in a dimension; see :func:`compute_fan_out`."""
    return (noisy * (epsilon / math.sqrt(2))) ** (2 / (3 * dimensions))


TOTAL_SHARE = Fraction(1, 100)
"""Share of the budget for the noisy total number of trips, eps_0 in [shaham2022stops]."""

Parts = tuple[int, ...]
"""Number of parts of each dimension."""


class EqualGrid(StopsMechanism, ABC):
    """A mechanism that cuts every dimension into m parts, where m depends on N, the noisy total number of trips.

    Measuring N costs ``TOTAL_SHARE`` of the budget, and measuring the boxes costs the rest. m is rounded half up and
    clipped to the range from 1 to the number of cells of the dimension. If N is at most 1, m is 1.
    """

    def compute_noise_scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Return the noise scales of the total and of the boxes; see :class:`StopsMechanism`."""
        total = TOTAL_SHARE * epsilon
        return {"total": sensitivity / total, "boxes": sensitivity / (epsilon - total)}

    def draw_boxes(self, points: Points, grid: Grid, path: BudgetPath) -> Drawn:
        """Draw the noisy total, then the boxes, each with a noisy count; see :class:`StopsMechanism`."""
        (total,), path = path.measure(np.array([len(points)], dtype=np.int64), path.left * TOTAL_SHARE)
        parts = self.compute_parts(int(total), path.left / path.sensitivity, grid)
        refuse_too_many(self.name, math.prod(parts))
        return draw_equal_boxes(points, grid, parts, path)

    def compute_parts(self, total: int, inverse_scale: Fraction, grid: Grid) -> Parts:
        """Return the number of parts of each dimension for N (``total``) and the inverse of the boxes' noise scale."""
        m = 1.0 if total <= 1 else self.compute_unrounded_parts(float(total), float(inverse_scale), grid.dimensions)
        return tuple(max(1, math.floor(min(m, size) + 0.5)) for size in grid.sizes)

    @abstractmethod
    def compute_unrounded_parts(self, total: float, inverse_scale: float, dimensions: int) -> float:
        """Return m, the unrounded number of parts of each dimension.

        Args:
            total: N, the noisy total number of trips, above 1.
            inverse_scale: inverse of the noise scale of the boxes, above 0.
            dimensions: number of dimensions of the grid.
        """


class FixedGrid(StopsMechanism, ABC):
    """A mechanism whose boxes are fixed before any draw. They are measured with the whole budget."""

    @abstractmethod
    def compute_parts(self, grid: Grid) -> Parts:
        """Return the number of parts of each dimension, from 1 to its number of cells."""

    def refuse_grid(self, grid: Grid) -> None:
        """Raise OdError if there would be more than ``MAX_BOXES`` boxes. The message states how many."""
        refuse_too_many(self.name, math.prod(self.compute_parts(grid)), spent="nothing was spent")

    def compute_noise_scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Return the noise scale of the boxes; see :class:`StopsMechanism`."""
        return {"boxes": sensitivity / epsilon}

    def draw_boxes(self, points: Points, grid: Grid, path: BudgetPath) -> Drawn:
        """Draw a noisy count of every box; see :class:`StopsMechanism`."""
        self.refuse_grid(grid)
        return draw_equal_boxes(points, grid, self.compute_parts(grid), path)


MAX_BOXES = 1 << 23
"""Largest number of boxes in a release. It limits memory: in six dimensions, a box takes at least 56 bytes."""


def refuse_too_many(name: str, boxes: int, *, spent: str = STAYS_CHARGED) -> None:
    """Raise OdError if a mechanism would make more than ``MAX_BOXES`` boxes. ``spent`` says what was spent by then."""
    if boxes > MAX_BOXES:
        message = f"mechanism {name!r} would cut the space into {boxes:,} boxes, but at most {MAX_BOXES:,} are allowed"
        step = "use a coarser grid, a smaller epsilon, or a mechanism whose boxes follow the trips"
        raise OdError("OD-STOPS-TOO-MANY-BOXES", message, next_step=step, spent=spent)


def draw_equal_boxes(points: Points, grid: Grid, parts: Parts, path: BudgetPath) -> Drawn:
    """Measure one box for each combination of parts with the whole remaining budget. The result is public.

    ``parts`` has the number of parts of each dimension, from 1 to its number of cells. Their product, the number of
    boxes, is at most ``MAX_BOXES``. Part k of a dimension with n cells and m parts begins at cell floor(k n / m).
    """
    counts = np.zeros(math.prod(parts), dtype=np.int64)
    _count_points_by_box(points, np.array(grid.sizes, dtype=np.int64), np.array(parts, dtype=np.int64), counts)
    noisy, paid = path.measure(counts, path.left)
    lower = np.empty((len(counts), grid.dimensions), dtype=np.int32)
    upper = np.empty_like(lower)
    box = np.arange(len(counts))
    for dimension in reversed(range(grid.dimensions)):  # the last dimension varies fastest
        size, parts_of_dimension = grid.sizes[dimension], parts[dimension]
        box, part = np.divmod(box, parts_of_dimension)
        lower[:, dimension] = part * size // parts_of_dimension
        upper[:, dimension] = (part + 1) * size // parts_of_dimension - 1
    return Drawn(Boxes(lower, upper, noisy), (paid,))


@kernel
def _count_points_by_box(points: Points, sizes: Counts, parts: Counts, counts: Counts) -> None:
    """Add the number of points in each box, where cell x lies in the last part k with floor(k size / parts) <= x."""
    for point in range(len(points)):
        box = 0
        for dimension in range(len(sizes)):
            part = ((points[point, dimension] + 1) * parts[dimension] - 1) // sizes[dimension]
            box = box * parts[dimension] + part
        counts[box] += 1


@dataclass(frozen=True)
class Uniform(FixedGrid):
    """The baseline UNIFORM of [shaham2022stops]: one box, the whole space."""

    name: ClassVar[str] = "uniform"

    def compute_parts(self, grid: Grid) -> Parts:
        """Return one part of each dimension."""
        return (1,) * grid.dimensions


@dataclass(frozen=True)
class Identity(FixedGrid):
    """The baseline IDENTITY of [shaham2022stops]: every cell is a box."""

    name: ClassVar[str] = "identity"

    def compute_parts(self, grid: Grid) -> Parts:
        """Return the number of cells of each dimension."""
        return grid.sizes


BORDER_CONSTANT = 10 / math.sqrt(2)
"""Constant c_0 of [shaham2022stops], set there by trial. The non-uniformity error of a query is estimated as the number
of points on its border divided by c_0."""


@dataclass(frozen=True)
class EUG(EqualGrid):
    """The extended uniform grid: m minimises the sum of the noise error and the non-uniformity error of a query.

    The formulas are used as printed [shaham2022stops, section 3.1]: equation 8 for queries of a known size, and
    otherwise equation 13, the mean of that m over all sizes; see ``docs/explanation/stops.md``. In one dimension both
    give 0; m is then 1.

    Attributes:
        query_size: r, the share of the cells of the space that a query covers, above 0 and at most 1; None if queries
            have all sizes.
    """

    query_size: Fraction | None = None

    name: ClassVar[str] = "eug"

    def __post_init__(self) -> None:
        if self.query_size is not None:
            size = parse_exact_fraction("the size of the queries", self.query_size)
            object.__setattr__(self, "query_size", size)
            if not 0 < size <= 1:
                message = "the size of the queries is a share of the space, above 0 and at most 1"
                raise OdError("OD-STOPS-QUERY-SIZE", message, next_step="correct the mechanism's options")

    def compute_unrounded_parts(self, total: float, inverse_scale: float, dimensions: int) -> float:
        """Return m, the unrounded number of parts per dimension, for N (``total``).

        ``alpha`` is the m of equation 8 without the factor for the size of the queries. The arguments are those of
        :meth:`EqualGrid.compute_unrounded_parts`.
        """
        d = dimensions
        base = 2 * (d - 1) / d * total * inverse_scale / (math.sqrt(2) * BORDER_CONSTANT)
        alpha: float = base ** (2 / (3 * d - 2))
        if self.query_size is None:
            factor = (d * (3 * d - 2)) / (3 * d**2 - 3 * d + 2)
        else:
            factor = float(self.query_size) ** ((2 - d) / (d * (3 * d - 2)))
        return alpha * factor


@dataclass(frozen=True)
class EBP(EqualGrid):
    """The entropy-based grid: the entropy of the noise equals the information that m parts per dimension lose.

    References:
        [shaham2022stops, section 3.2, equation 19]
    """

    name: ClassVar[str] = "ebp"

    def compute_unrounded_parts(self, total: float, inverse_scale: float, dimensions: int) -> float:
        """Return m by equation 19, the unrounded number of parts per dimension, for N (``total``)."""
        return float(compute_unrounded_fan_out(np.array(total), inverse_scale, dimensions))


@dataclass(frozen=True)
class MKM(EqualGrid):
    """The perturbed histogram of [lei2011mestimators], with m = (N / sqrt(ln N))^(2/(d + 2)) parts per dimension.

    m is the inverse of the bin width of the source, to which [shaham2022stops] refers without a formula. It does not
    depend on epsilon, so a smaller budget does not make the grid coarser.
    """

    name: ClassVar[str] = "mkm"

    def compute_unrounded_parts(self, total: float, inverse_scale: float, dimensions: int) -> float:
        """Return m, the unrounded number of parts per dimension, for N (``total``). ``inverse_scale`` is not read."""
        return float((total / math.sqrt(math.log(total))) ** (2 / (dimensions + 2)))


# Where to cut the nodes of a density tree: a score of each candidate, and noise on the scores.


def make_equal_parts(parts: Counts, length: int) -> NDArray[np.int32]:
    """Divide ``length`` cells into nearly equal parts for each node, and return the first cell of every part.

    ``parts`` has the number of parts of each node. The parts of the first node come first; shape (sum of parts,).
    """
    count = np.repeat(parts, parts)
    return (number_parts(parts) * length // count).astype(np.int32)


def number_parts(parts: Counts) -> Counts:
    """Return the number of every part within its node: 0, 1, ..., parts - 1 for each node; shape (sum of parts,)."""
    return np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)


def compute_choice_scale(epsilon: Fraction, sensitivity: int) -> Fraction:
    """Return the scale of the noise on every score, 2 D s / epsilon; see :func:`choose_noisy_minimum`.

    D is the largest change of a score if one trip is added or removed. s is ``sensitivity``: 1, or 2 if a trip is
    replaced.
    """
    return 2 * SCORE_SENSITIVITY * sensitivity / epsilon


def choose_noisy_minimum(scores: Counts, epsilon: Fraction, path: BudgetPath) -> Counts:
    """Return the number of the candidate with the least noisy score for each node; shape (nodes,).

    The choice costs epsilon for any number of candidates. To see this, fix the noise of all candidates but one. This
    candidate is chosen if its noise is at most some integer (of equal noisy scores, the first is chosen). Adding or
    removing a trip changes the candidate's score, and the scores that it is compared with, by at most
    D = ``SCORE_SENSITIVITY``. So it changes the integer by at most 2 D, and the probability of the choice by a factor
    of at most exp(2 D / scale). Some scores may rise while others fall, so half the noise would not be enough.
    Replacing a trip removes one and adds one, in one node or in two, so the noise is then twice as wide.

    The scores are confidential; shape (nodes, candidates). The caller has already charged epsilon to the path.
    """
    noise = path.draw_noise(compute_choice_scale(epsilon, path.sensitivity), scores.size)
    chosen: Counts = np.argmin(scores + noise.reshape(scores.shape), axis=1)
    return chosen


def draw_random_cuts(parts: Counts, length: int, candidates: int) -> NDArray[np.int32]:
    """Draw random cuts of each node, and return the first cells of their parts; shape (candidates, sum of parts).

    For a node with m parts, equal parts would begin at j ``length`` / m for j = 0, ..., m - 1. Here, part 0 begins at
    cell 0, and the beginning of any other part j is uniform on the cells within half a part of that position. These
    ranges are disjoint and have at least one cell each, so the parts are not empty. The key of the random numbers comes
    from the operating system, for this call only. The result depends on trips only through noisy numbers of parts.
    """
    count, part = np.repeat(parts, parts), number_parts(parts)  # of the node of each part, and of the part within it
    # The first cells at or after both ends of the range in which a part may begin, (2 part -+ 1) length / (2 count).
    low = -(-((2 * part - 1) * length) // (2 * count))
    high = -(-((2 * part + 1) * length) // (2 * count))
    words = (Keystream().draw_words(64, candidates * len(part)) >> np.uint64(33)).astype(np.int64)  # of 31 random bits
    begins = low + (words.reshape(candidates, len(part)) * (high - low) >> 31)
    return np.where(part == 0, 0, begins).astype(np.int32)


ROOT_SHARE = Fraction(1, 100)
"""Share of the budget for the noisy total number of trips, the count of the root [shaham2022stops, equation 33]."""


Stop = Literal["count", "depth", "entropy", "extent"]
"""What a stop condition of :class:`DAFEntropy` compares with its threshold."""


def _make_stop_error(message: str) -> OdError:
    """Return the OdError for a stop condition that is not valid."""
    return OdError("OD-STOPS-CONDITION", message, next_step="correct the mechanism's options")


def _turn_into_leaves(
    is_leaf: NDArray[np.bool_], nodes: Nodes, path: BudgetPath, leaves: list[tuple[Nodes, Counts, BudgetPath]]
) -> Nodes:
    """Turn the nodes for which ``is_leaf`` is True into leaves, and return the other nodes.

    The leaves, if there are any, are measured with the whole remaining budget of the path. They are added to the list
    ``leaves`` with their noisy counts and their path.
    """
    if not is_leaf.any():
        return nodes
    new_leaves = nodes.select(is_leaf)
    noisy, paid = path.measure(new_leaves.trips, path.left)
    leaves.append((new_leaves, noisy, paid))
    return nodes.select(~is_leaf)


@dataclass(frozen=True)
class DAFEntropy(StopsMechanism):
    """A tree of boxes whose nodes are cut into nearly equal parts [shaham2022stops, section 4.2, Algorithm 2].

    :class:`DAFHomogeneity` differs only in the choice of the cuts.

    Every node that has an uncut dimension is measured. Let epsilon be the budget that then remains on its path. If the
    noisy count meets the stop condition, the node becomes a leaf: it is measured again with the whole remaining budget,
    and its first count is discarded. Any other node is charged for the choice of its cuts, if there is a choice, and is
    cut in the dimension of its depth into parts whose number :func:`compute_fan_out` gives. A node that is cut in all
    dimensions is measured once, with the whole remaining budget, and so is a node that stops by its bounds alone.

    The paper leaves the stop condition to the application; ``docs/explanation/stops.md`` defines those that there are.

    For bounded neighbours, both rules (for leaves and for parts) use half of the remaining budget, because they depend
    on the scale of the noise. Twice the budget then gives the same tree as for unbounded neighbours.

    Attributes:
        rounding: rounding of the number of parts m to an integer. In tests, rounding three halves of m was best.
        stop, threshold: the stop condition and its t, an integer for ``depth``; both or neither. None is ``count``
            with t = 1.
    """

    rounding: Rounding = "times_1.5"
    stop: Stop | None = field(default=None, kw_only=True)
    threshold: Fraction | None = field(default=None, kw_only=True)

    name: ClassVar[str] = "daf_entropy"

    def __post_init__(self) -> None:
        step = "correct the mechanism's options"
        refuse_unknown("rounding", self.rounding, get_args(Rounding), code="OD-STOPS-ROUNDING", next_step=step)
        if (self.stop, self.threshold) != (None, None):
            refuse_unknown("stop condition", self.stop, get_args(Stop), code="OD-STOPS-CONDITION", next_step=step)
            threshold = parse_exact_fraction("the threshold of the stop condition", self.threshold)
            object.__setattr__(self, "threshold", threshold)
            if threshold <= 0 or (self.stop == "depth" and threshold.denominator != 1):
                raise _make_stop_error(f"the threshold of {self.stop!r} must be above 0, and whole for 'depth'")

    def refuse_grid(self, grid: Grid) -> None:
        """Raise OdError if the stop condition would stop no node of the grid; see :class:`StopsMechanism`."""
        least = Fraction(grid.sizes[-1], grid.cells)  # a box that is one cell wide in all dimensions but the last
        t = self.threshold or Fraction(1)
        if (self.stop == "depth" and t >= grid.dimensions) or (self.stop == "extent" and t < least):
            raise _make_stop_error(f"the stop condition {self.stop!r} with threshold {t} never stops in this space")

    def compute_noise_scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Return the noise scale of the total number of trips, as ``total``; see :class:`StopsMechanism`."""
        return {"total": sensitivity / (ROOT_SHARE * epsilon)}

    def compute_count_scale(self, boxes: Boxes, grid: Grid, epsilon: Fraction, sensitivity: int) -> Fraction:
        """Return the noise scale of a box that is cut in every dimension; see :class:`StopsMechanism`.

        A node that becomes a leaf earlier has more budget left, so the noise on its count is narrower, but the boxes do
        not always tell the two apart. The number of parts of the root, which determines the shares of the budget, is
        the number of different first cells of the boxes in dimension 1.
        """
        root_parts = len(np.unique(boxes.lower[:, 0]))
        *_, last_scale = self._compute_path_scales(root_parts, grid, epsilon, sensitivity)
        return last_scale

    def compute_widest_scale(self, grid: Grid, epsilon: Fraction, sensitivity: int) -> Fraction:
        """Return the largest noise scale for any number m0 of parts of the root; see :class:`StopsMechanism`.

        The inverse of a depth's share (:func:`split_budget_by_depth`) is a sum of powers of m0, so it is convex in log
        m0, and largest for the least or the largest m0. A leaf has at least the share of the last depth, the largest
        one. The largest m0 is that of 2^31 trips and noise of 1000 scales, which is exceeded with probability
        exp(-1000).
        """
        sizes = self._select_cut_sizes(grid)
        scale = int(sensitivity / (ROOT_SHARE * epsilon))
        most_trips = np.array([min((1 << 31) + 1000 * scale, 1 << 62)])
        most_cells = min(sizes[0], MAX_BOXES)
        (most_parts,) = compute_fan_out(most_trips, epsilon / sensitivity, len(sizes), most_cells, self.rounding)
        scales = self._compute_path_scales(1, grid, epsilon, sensitivity)
        scales += self._compute_path_scales(int(most_parts), grid, epsilon, sensitivity)
        return max(scales)

    def _compute_path_scales(self, root_parts: int, grid: Grid, epsilon: Fraction, sensitivity: int) -> list[Fraction]:
        """Return the scales of all noise on a path that is cut in every dimension.

        ``root_parts`` is the number of parts of the root. The last scale is that of the count of the path's box.
        """
        sizes = self._select_cut_sizes(grid)
        shares, remaining = [ROOT_SHARE * epsilon], epsilon
        scales = []
        for depth, length in enumerate(sizes):
            counting, choosing = self.compute_depth_costs(depth, shares[depth])
            scales.append(sensitivity / counting)
            remaining -= counting
            if choosing and length > 1:
                scales.append(compute_choice_scale(choosing, sensitivity))
                remaining -= choosing
            if depth == 0:
                shares += split_budget_by_depth(remaining, root_parts, len(sizes))
        return [*scales, sensitivity / remaining]

    def _select_cut_sizes(self, grid: Grid) -> tuple[int, ...]:
        """Return the numbers of cells of the dimensions that are cut: all, or with the stop ``depth``, the first t."""
        return grid.sizes[: int(self.threshold)] if self.stop == "depth" and self.threshold else grid.sizes

    def _find_nodes_below_extent(self, nodes: Nodes, grid: Grid) -> NDArray[np.bool_]:
        """Return whether each node stops by its bounds alone; shape (nodes,).

        With the stop ``extent``, nodes with at most the share t of all cells do. With other stops, no node does.
        """
        if self.stop != "extent" or self.threshold is None:
            return np.zeros(len(nodes), dtype=np.bool_)
        most_cells = self.threshold * grid.cells
        sides = nodes.upper.astype(np.int64) - nodes.lower + 1
        return np.array([math.prod(sides_of_node) <= most_cells for sides_of_node in sides.tolist()], dtype=np.bool_)

    def _choose_nodes_to_cut(self, noisy: Counts, total: int, path: BudgetPath) -> NDArray[np.bool_]:
        """Return whether each node is cut, from its noisy count; shape (nodes,).

        The stop conditions ``depth`` and ``extent`` do not depend on counts, so all nodes are cut. With ``entropy``, a
        node is cut if this adds at least t bits to the entropy of the partition. These are its share of ``total``, the
        noisy count of the root, times log2 of its unrounded number of parts. With ``count``, a node is cut if its noisy
        count is at least t / epsilon, where epsilon is the remaining budget per unit of sensitivity.
        """
        if self.stop in ("depth", "extent"):
            return np.ones(len(noisy), dtype=np.bool_)
        epsilon = path.left / path.sensitivity
        if self.stop == "entropy" and self.threshold is not None:
            bits = np.log2(compute_unrounded_fan_out(np.maximum(noisy, 1), float(epsilon), 1))
            share = np.maximum(noisy, 0) / max(total, 1)
            least_bits = min(self.threshold, Fraction(10**6))  # larger thresholds may not fit a float
            return np.asarray(share * bits >= float(least_bits))
        return noisy >= math.ceil((self.threshold or 1) / epsilon)

    def draw_boxes(self, points: Points, grid: Grid, path: BudgetPath) -> Drawn:
        """Grow the tree, and return its leaves with their noisy counts; see :class:`StopsMechanism`."""
        rows, sizes = count_trips_by_cell(points, grid), self._select_cut_sizes(grid)
        nodes = Nodes.make_root(rows, grid)
        shares = [ROOT_SHARE * path.left]  # of depth 0; the root's number of parts determines those of the other depths
        total = 0
        leaves: list[tuple[Nodes, Counts, BudgetPath]] = []
        for depth, length in enumerate(sizes):
            nodes = _turn_into_leaves(self._find_nodes_below_extent(nodes, grid), nodes, path, leaves)
            if not len(nodes):
                break
            counting, choosing = self.compute_depth_costs(depth, shares[depth])
            noisy, path = path.measure(nodes.trips, counting)
            if depth == 0:
                total = int(noisy[0])
            is_cut = self._choose_nodes_to_cut(noisy, total, path)
            nodes = _turn_into_leaves(~is_cut, nodes, path, leaves)
            if not len(nodes):
                break
            if choosing and length > 1:
                path = path.with_charge(choosing)
            epsilon = path.left / path.sensitivity  # inverse of the noise scale that the parts may have
            parts = compute_fan_out(noisy[is_cut], epsilon, len(sizes) - depth, length, self.rounding)
            number_of_leaves = sum(len(leaf_nodes) for leaf_nodes, _, _ in leaves)
            refuse_too_many(self.name, number_of_leaves + int(parts.sum()))
            begins = self.choose_cuts(rows, nodes, depth, parts, length, choosing, path)
            nodes = nodes.divide(rows, np.full(len(nodes), depth), parts, begins)
            if depth == 0:
                shares += split_budget_by_depth(path.left, int(parts[0]), len(sizes))
        _turn_into_leaves(np.ones(len(nodes), dtype=np.bool_), nodes, path, leaves)
        boxes = make_boxes([leaf_nodes for leaf_nodes, _, _ in leaves], [noisy for _, noisy, _ in leaves])
        return Drawn(boxes, tuple(paid for _, _, paid in leaves))

    def compute_depth_costs(self, depth: int, share: Fraction) -> tuple[Fraction, Fraction]:
        """Return the epsilons that the counts and the choice of cuts cost at a depth; ``share`` is the depth's budget.

        By default, the trips do not determine where to cut, so the counts cost the whole share, and the choice 0.
        Override this together with :meth:`choose_cuts`.
        """
        return share, Fraction(0)

    def choose_cuts(
        self, rows: Rows, nodes: Nodes, depth: int, parts: Counts, length: int, choosing: Fraction, path: BudgetPath
    ) -> NDArray[np.int32]:
        """Return where to cut the nodes in dimension ``depth``: the first cell of every part; shape (sum of parts,).

        The parts of the first node come first. By default, the parts of a node are nearly equal; override this if the
        trips determine the cuts.

        ``parts`` has the number of parts of each node, and ``length`` is the number of cells of the dimension.
        ``choosing`` is the epsilon of the choice of cuts, which the ``path`` was charged unless ``length`` is 1.
        """
        return make_equal_parts(parts, length)


MAX_CANDIDATES = 1000
"""Largest number of candidates. More candidates take more time, but hardly improve the result."""


@dataclass(frozen=True)
class DAFHomogeneity(DAFEntropy):
    """A tree of boxes whose nodes are cut so that trips are spread evenly within the parts.

    For each node, p candidate cuts are drawn at random. The candidate with the lowest noisy score
    (:func:`compute_heterogeneity`, :func:`choose_noisy_minimum`) is chosen. The source is [shaham2022stops, section
    4.3, Algorithm 3]; ``docs/explanation/stops.md`` lists its errors, which are corrected here.

    A choice is charged only after the test whether a node becomes a leaf, so a leaf spends this part of the budget on
    its count. A node with a single part is charged although it has no choice, so that all nodes of a depth that are not
    leaves have the same path. In a dimension of one cell, no node is charged.

    Attributes:
        rounding: see :class:`DAFEntropy`.
        candidates: p, the number of candidate cuts.
        choosing_share: q, the part of the budget of a depth below the root that the choice costs.
    """

    candidates: int = 10
    choosing_share: Fraction = Fraction(3, 10)

    name: ClassVar[str] = "daf_homogeneity"

    def __post_init__(self) -> None:
        super().__post_init__()
        share = parse_exact_fraction("the share of the choice", self.choosing_share)
        object.__setattr__(self, "choosing_share", share)
        candidates = parse_whole_number(self.candidates)
        if candidates is None or not 1 <= candidates <= MAX_CANDIDATES or not 0 < share < 1:
            message = f"there must be 1 to {MAX_CANDIDATES} candidates, and a share of the choice above 0 and below 1"
            raise OdError("OD-STOPS-CHOICE", message, next_step="correct the mechanism's options")
        object.__setattr__(self, "candidates", candidates)

    def compute_noise_scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Return the noise scales of the total number of trips and of the root's scores; see ``StopsMechanism``."""
        choice = compute_choice_scale(ROOT_SHARE * epsilon, sensitivity)
        return {**super().compute_noise_scales(epsilon, sensitivity), "root_choice": choice}

    def compute_depth_costs(self, depth: int, share: Fraction) -> tuple[Fraction, Fraction]:
        """Return the epsilons that the counts and the choice of cuts cost at a depth; ``share`` is the depth's budget.

        The choice costs ``choosing_share`` of the depth's share. At the root (depth 0), the count and the choice cost
        a share each.
        """
        choosing = self.choosing_share * share
        return (share - choosing, choosing) if depth else (share, share)

    def choose_cuts(
        self, rows: Rows, nodes: Nodes, depth: int, parts: Counts, length: int, choosing: Fraction, path: BudgetPath
    ) -> NDArray[np.int32]:
        """Return where to cut the nodes in dimension ``depth``: the first cell of every part of the chosen candidates.

        Shape (sum of parts,). For the arguments, see :meth:`DAFEntropy.choose_cuts`.
        """
        candidates = draw_random_cuts(parts, length, self.candidates)
        scores = compute_heterogeneity(rows, nodes, depth, parts, candidates)
        chosen, is_cut = np.zeros(len(parts), dtype=np.int64), parts > 1
        chosen[is_cut] = choose_noisy_minimum(scores[is_cut], choosing, path)
        return candidates[np.repeat(chosen, parts), np.arange(parts.sum())]


_LN_2 = Fraction(6931471806, 10**10)
"""Upper bound of ln 2."""

MAX_THETA = 1 << 53
"""Largest absolute value of :attr:`PrivTree.theta`, far above every number of trips."""

_SCALE_STEPS = 1000
"""Number of values of lambda that :func:`find_scale_and_decay` may try.

They are k / ``_SCALE_STEPS`` of the lambda of [zhang2016privtree].
"""


@dataclass(frozen=True)
class PrivTree(StopsMechanism):
    """A binary tree in which a node is cut in half if a biased noisy count of its trips exceeds a threshold.

    The cut is across the side of the node that is widest relative to the grid. A node of depth i with c trips is cut if
    max(c - i delta, theta - delta) + Laplace noise of scale lambda exceeds theta. A node of one cell is a leaf without
    a test. Finally, all leaves are measured.

    The noise is discrete, and :func:`find_scale_and_decay` gives lambda and delta, whose cost is proven before they are
    used.

    Attributes:
        tree_share: share of the budget for all splits. The rest of the budget measures the leaves.
        theta: threshold of the splits, an integer.
    """

    tree_share: Fraction = Fraction(7, 10)
    theta: int = 0

    name: ClassVar[str] = "privtree"

    def __post_init__(self) -> None:
        share = parse_exact_fraction("the share of the tree", self.tree_share)
        object.__setattr__(self, "tree_share", share)
        theta = parse_whole_number(self.theta)
        if not 0 < share < 1 or theta is None or abs(theta) > MAX_THETA:
            raise OdError(
                "OD-STOPS-PRIVTREE",
                "the share of the tree must be above 0 and below 1, and theta must be a whole number from -2^53 to"
                " 2^53",
                next_step="correct the mechanism's options",
            )
        object.__setattr__(self, "theta", theta)

    def compute_noise_scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Return the noise scales of the splits and of the leaf counts; see :class:`StopsMechanism`."""
        scale, _ = find_scale_and_decay(self.tree_share * epsilon, sensitivity)
        leaves = sensitivity / ((1 - self.tree_share) * epsilon)
        return {"splits": scale, "leaves": leaves}

    def draw_boxes(self, points: Points, grid: Grid, path: BudgetPath) -> Drawn:
        """Grow the tree, and return its leaves with their noisy counts; see :class:`StopsMechanism`."""
        tree_budget = self.tree_share * path.left
        scale, decay = find_scale_and_decay(tree_budget, path.sensitivity)
        path = path.with_charge(tree_budget)
        rows = count_trips_by_cell(points, grid)
        sizes = np.array(grid.sizes, dtype=np.int64)
        nodes = Nodes.make_root(rows, grid)
        leaves = []
        for depth in count():
            sides = nodes.upper.astype(np.int64) - nodes.lower + 1
            is_cut: NDArray[np.bool_] = np.any(sides > 1, axis=1)  # for now, all nodes that can be cut
            noisy = np.maximum(nodes.trips[is_cut] - depth * decay, self.theta - decay)  # the biased count
            noisy += path.draw_noise(scale, len(noisy))
            is_cut[is_cut] = noisy > self.theta
            leaves.append(nodes.select(~is_cut))
            if not is_cut.any():
                break
            nodes, sides = nodes.select(is_cut), sides[is_cut]
            refuse_too_many(self.name, sum(map(len, leaves)) + 2 * len(nodes))
            nodes = _halve_nodes(nodes, sides, sizes, rows)
        noisy, path = path.measure(np.concatenate([leaf.trips for leaf in leaves]), path.left)
        return Drawn(make_boxes(leaves, [noisy]), (path,))


@cache
def find_scale_and_decay(epsilon: Fraction, sensitivity: int) -> tuple[Fraction, int]:
    """Return lambda and delta of :class:`PrivTree`, with which its splits are proven to cost at most ``epsilon``.

    lambda is the scale of the noise, and delta the decay of the counts per depth. The paper [zhang2016privtree] has
    lambda = 3 / epsilon for unbounded and 6 / epsilon for bounded neighbours. Here, lambda is k / ``_SCALE_STEPS`` of
    this. The first k that is tried is the one whose cost would be epsilon if costs were proportional to 1 / lambda.
    From there upwards, the first k with a proven cost of at most epsilon is taken; a smaller k may have such a cost,
    too. Raises OdError if no k has it.
    """
    largest_scale = 3 * sensitivity / epsilon  # that of the paper
    needed = compute_path_cost(largest_scale, _compute_decay(largest_scale), sensitivity) / epsilon
    for step in range(max(1, int(needed * _SCALE_STEPS)), _SCALE_STEPS + 1):
        scale = largest_scale * Fraction(step, _SCALE_STEPS)
        if compute_path_cost(scale, _compute_decay(scale), sensitivity) <= epsilon:
            return scale, _compute_decay(scale)
    message = (
        f"the splits of a path with noise of scale {float(largest_scale):.6g} could cost more than epsilon {epsilon}"
    )
    raise OdError("OD-STOPS-PATH-COST", message, next_step="report this defect")


def _compute_decay(scale: Fraction) -> int:
    """Return delta, the decay of the counts per depth: lambda (``scale``) times ln 2, rounded up to an integer."""
    return math.ceil(scale * _LN_2)


def _halve_nodes(nodes: Nodes, sides: Counts, sizes: Counts, rows: Rows) -> Nodes:
    """Cut every node in half across its widest side relative to the grid, and return the halves as nodes.

    Of equally wide sides, the first is cut. ``sides`` has the numbers of cells of each node, shape (nodes, dimensions),
    and ``sizes`` those of the grid. ``rows`` are the cells with trips, which are sorted in place.
    """
    widest = np.argmax(np.where(sides > 1, sides / sizes, 0), axis=1)
    begins = np.empty(2 * len(nodes), dtype=np.int32)
    numbers = np.arange(len(nodes))
    begins[::2] = nodes.lower[numbers, widest]
    begins[1::2] = begins[::2] + sides[numbers, widest] // 2
    return nodes.divide(rows, widest, np.full(len(nodes), 2), begins)


# Cost of the splits along a path, proven by ball arithmetic (docs/explanation/stops.md).


_BITS = 192
"""Precision of the ball arithmetic in bits. For scales up to 2^50, more than a hundred bits of a result are exact."""

_TERMS = 200
"""Number of terms of the sum in :func:`compute_path_cost` that are added one by one.

A geometric series bounds the rest.
"""

_RESULT_BITS = 64
"""Number of bits after the binary point of the result of :func:`compute_path_cost`, which is rounded up."""


@lru_cache(maxsize=64)
def compute_path_cost(scale: Fraction, decay: int, sensitivity: int) -> Fraction:
    """Return an upper bound of the epsilon that all splits on a path cost together.

    On a path of any length, the cost is at most 2 / scale + rho(decay) + rho(2 decay) + ... if one trip is added, and
    1 / scale if one is removed, where a = exp(-1 / scale) and rho(x) = ln((1 + a - a^(x+1)) / (1 + a - a^x)). For the
    proof, see ``docs/explanation/stops.md``. Replacing a trip adds one on one path and removes one on another.

    Noise backends may draw with up to (1 + 2^-30) times the ``scale`` lambda. The bound holds for all scales in this
    range. ``decay`` is delta, an integer of at least 1; the theorem of [zhang2016privtree] requires at least lambda
    ln 2. ``sensitivity`` is 1, or 2 if a trip may be replaced.
    """
    with set_precision(_BITS):
        rate = 1 / arb(convert_to_rational(scale)).union(arb(convert_to_rational(scale * (1 + SCALE_SLACK))))
        a, complement = (-rate).exp(), -(-rate).expm1()
        fading = (-rate * decay).exp()  # a^decay
        cost, power = 2 * rate, arb(1)
        for _ in range(_TERMS):
            power *= fading
            cost += (power * complement / (1 + a - power)).log1p()
        # ln(1 + y) <= y, and 1 + a - a^x >= 1: the rest is at most a geometric series
        cost += power * fading * complement / -(-rate * decay).expm1()
        total = cost if sensitivity == 1 else cost + rate
        units = (total.upper() * 2**_RESULT_BITS).ceil().upper()
        return Fraction(int(units.unique_fmpz()), 2**_RESULT_BITS)


_MAKERS = (Identity, Uniform, EUG, EBP, MKM, DAFEntropy, DAFHomogeneity, PrivTree)
MECHANISMS: Registry[StopsMechanism] = Registry("trips with stops", {maker.name: maker for maker in _MAKERS})
