"""Estimate the leaves by empirical Bayes, which uses all leaves together to estimate each one.

The estimate depends on public values alone and costs no privacy. Three values inform the estimate of the true count n
of a leaf: its noisy value x, the refined trips c of its parent, and the sum of its row. On a destination tree, the
leaves below a parent (origin area, destination zone) are its pairs of an origin zone and that destination zone. The
row of a leaf is then the set of all measured leaves with the same origin zone. On an origin tree, origin and
destination are exchanged. Sigma is the standard deviation of the noise of x. The steps are:

1.  Compute a prior mean of each leaf: divide c among the parent's leaves in proportion to the sums of their rows, where
    the sum of a leaf's row leaves out the leaf itself.
2.  Group the leaves into bins by their prior means. A bin is a range of octaves, that is, of powers of two times sigma.
    For each bin, find the distribution of n that makes the x of the bin most likely, by expectation-maximisation
    [dempster1977em; laird1978mixing].
3.  Compute the posterior mean m and variance V of each leaf from x and the distribution of its bin.
4.  For each parent, find real numbers w >= 0 with the sum c that minimise the sum of (w - m)^2 / sqrt V.
5.  Convert the w of each parent to whole numbers with the sum c, in lumps (:mod:`od_core.flows.estimation.shrinkage`).

The result is the same on every machine, for any number of threads and any size of pieces. Real numbers come from single
operations of IEEE 754, one after the other in compiled loops that neither fuse nor reorder them, and from correctly
rounded decimal exponentials. Only whole numbers are summed over pieces.

The second part of the module estimates the distribution of the true counts n of many cells from their noisy values x,
on a grid of counts, and the posteriors of the counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from od_core.errors import OdError
from od_core.flows.arrays import Integers, Reals
from od_core.flows.estimation.families import assign_bins
from od_core.flows.estimation.levels import NoisyCounts
from od_core.flows.estimation.shrinkage import round_in_lumps
from od_core.flows.plan import ReleasePlan
from od_core.flows.projection.onto_parents import project_to_total
from od_core.geography.flow_tree import Expansion, Nodes
from od_core.geography.geography import Numbers
from od_core.kernels import kernel
from od_core.parallel import map_in_order

OCTAVES, _OCTAVE_OF_SIGMA = 24, 18
"""Number of octaves of prior means, and position of the octave that starts at sigma / 2. Smaller and larger prior means
belong to the first and the last octave."""

_MIN_DEVIATION = 2.0**-10
"""Smallest posterior deviation of a leaf, in standard deviations of the noise. It allows an adjustment to the parent's
trips even if all leaves of the parent have a posterior deviation near 0."""

_LIMIT = 1 << 44
"""Upper limit of noisy values and trips. Below it, the sum over a node's children has an error of much less than 1."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Sums over the rows of all measured leaves or of some of them.

    Attributes:
        sums, cells: Sum of the noisy values and number of the row's leaves, for each area of the side that the step to
            the leaves refines; shape (areas,) each.
        largest: Largest absolute noisy value of any of these leaves.
        first: Number of the first of the areas.
    """

    sums: Integers
    cells: Integers
    largest: int
    first: int = 0

    @classmethod
    def sum_parts(cls, plan: ReleasePlan, parts: Iterable[Rows]) -> Rows:
        """Return the sum of ``parts``, the rows over disjoint sets of leaves, for all areas."""
        areas, largest = _count_row_areas(plan), 0
        sums, cells = np.zeros((2, areas), dtype=np.int64)
        for part in parts:
            areas_of_part = slice(part.first, part.first + len(part.sums))
            sums[areas_of_part] += part.sums
            cells[areas_of_part] += part.cells
            largest = max(largest, part.largest)
        return cls(sums, cells, largest)

    def drop_empty_ends(self) -> Rows:
        """Return the rows without the areas before the first area with leaves, and without those after the last."""
        with_leaves = np.flatnonzero(self.cells)
        extent = slice(with_leaves[0], with_leaves[-1] + 1) if len(with_leaves) else slice(0, 0)
        return Rows(self.sums[extent], self.cells[extent], self.largest, int(extent.start))

    def refuse_large(self) -> None:
        """Raise OdError if ``largest`` is so large that a sum may exceed 64 bits or lose precision."""
        if self.largest >= min(_LIMIT, (1 << 62) // int(self.cells.max(initial=1))):
            raise _make_overflow_error()


def estimate_empirical_bayes_leaves(
    plan: ReleasePlan, leaf: NoisyCounts, totals: Integers, u: Fraction
) -> Iterator[Nodes]:
    """Return an iterator of the estimated leaves in tree order, in consecutive pieces. Leaves of 0 are left out.

    Args:
        leaf: The measurement of the leaves. Its ``parents`` must not be None.
        totals: Refined trips of the parents, whole numbers of at least 0; shape (parents,).
        u: The smallest number of trips that a small leaf receives, in standard deviations of the noise.

    Raises:
        OdError: If the noisy values or the trips are too large.
    """
    rows = sum_leaf_rows(plan, leaf)
    rows.refuse_large()
    posterior = estimate_posterior(
        GridNoise.from_variance(leaf.step.variance), make_leaf_histogram(plan, leaf, totals, rows)
    )
    return estimate_posterior_leaves(plan, leaf, totals, u, rows, posterior)


def sum_leaf_rows(plan: ReleasePlan, leaf: NoisyCounts) -> Rows:
    """Return the rows over the leaves of one measurement, for all areas."""
    areas = _count_row_areas(plan)

    def sum_piece(piece: tuple[Expansion, Integers]) -> Rows:
        expansion, noisy = piece
        sums, cells = np.zeros(areas, dtype=np.int64), np.zeros(areas, dtype=np.int64)
        _add_rows(noisy, expansion.divided, sums, cells)
        return Rows(sums, cells, max(int(noisy.max()), -int(noisy.min())))

    return Rows.sum_parts(plan, map_in_order(sum_piece, leaf.expand_parents(plan)))


def _count_row_areas(plan: ReleasePlan) -> int:
    """Return the number of areas, each with a row, on the side that the step to the leaves refines."""
    above = plan.find_level_above(plan.steps[-1])
    level = plan.tree.depth if above is None else above + 1
    origin_level, destination_level = plan.tree.level_pair(level)
    if plan.tree.refines_origin(level):
        return plan.tree.origin.size(origin_level)
    return plan.tree.destination.size(destination_level)


def make_leaf_histogram(plan: ReleasePlan, leaf: NoisyCounts, totals: Integers, rows: Rows) -> Integers:
    """Return the number of leaves by the octave of their prior mean and the grid point of x; shape (octaves, points).

    Leaves whose parent has no trips or no other leaf are not counted. Neither are leaves with x above the grid. For the
    arguments, see :func:`estimate_posterior_leaves`. Raises OdError if the trips are too large.
    """
    if totals.max(initial=0) >= _LIMIT:
        raise _make_overflow_error()
    noise = GridNoise.from_variance(leaf.step.variance)

    def count_piece(piece: tuple[Expansion, Integers]) -> Integers:
        expansion, noisy = piece
        counts = np.zeros((OCTAVES, noise.points), dtype=np.int64)
        _add_to_histogram(_Leaves.from_piece(expansion, noisy, totals, rows, noise), counts)
        return counts

    counts = np.zeros((OCTAVES, noise.points), dtype=np.int64)
    for counts_of_piece in map_in_order(count_piece, leaf.expand_parents(plan)):
        counts += counts_of_piece
    return counts


def estimate_posterior_leaves(
    plan: ReleasePlan, leaf: NoisyCounts, totals: Integers, u: Fraction, rows: Rows, posterior: Posterior
) -> Iterator[Nodes]:
    """Return the estimates of :func:`estimate_empirical_bayes_leaves` for all or some of the leaves.

    ``rows`` and ``posterior`` are those of all leaves.
    """
    noise = GridNoise.from_variance(leaf.step.variance)
    lump = max(1, math.isqrt(int(u * u * leaf.step.variance)))  # floor(u sigma), exactly
    least = float(u) * noise.sigma

    def estimate_piece(piece: tuple[Expansion, Integers]) -> Nodes:
        expansion, noisy = piece
        leaves, trips = _Leaves.from_piece(expansion, noisy, totals, rows, noise), np.empty_like(noisy)
        _divide_trips(leaves, posterior.bin_of, posterior.mean, posterior.deviation, least, lump, trips)
        return replace(expansion.with_trips(trips), level=leaf.step.level)

    return map_in_order(estimate_piece, leaf.expand_parents(plan))


def _make_overflow_error() -> OdError:
    """Return the error for noisy values or trips that are too large."""
    return OdError(
        "OD-REFINEMENT-OVERFLOW",
        "the noisy values are too large for empirical Bayes leaves",
        next_step="use leaves: chebyshev, or less noise",
        spent="draws already made stay charged",
    )


class _Leaves(NamedTuple):
    """What kernels need to know of some leaves: their measurement, their rows and the noise.

    Attributes:
        noisy, area: noisy value of each child, and its area on the side of the rows; shape (children,) each.
        offsets: the children of parent ``p`` are ``offsets[p]:offsets[p + 1]``.
        totals: trips of every parent; shape (parents,).
        sums, cells: as in :class:`Rows`.
        sigma, step, low: as in :class:`GridNoise`.
    """

    noisy: Integers
    offsets: Integers
    area: Numbers
    totals: Integers
    sums: Integers
    cells: Integers
    sigma: float
    step: int
    low: int

    @classmethod
    def from_piece(
        cls, expansion: Expansion, noisy: Integers, totals: Integers, rows: Rows, noise: GridNoise
    ) -> _Leaves:
        """Return the leaves of one piece of a measurement; ``totals`` has the trips of all parents."""
        return cls(
            noisy,
            expansion.offsets,
            expansion.divided,
            totals[expansion.parents],
            rows.sums,
            rows.cells,
            noise.sigma,
            noise.step,
            noise.low,
        )


@kernel
def _add_rows(noisy: Integers, areas: Numbers, sums: Integers, cells: Integers) -> None:
    """Add the noisy value of each child to ``sums``, and 1 to ``cells``, at its area."""
    for i in range(len(areas)):
        sums[areas[i]] += noisy[i]
        cells[areas[i]] += 1


@kernel
def _compute_prior_means(leaves: _Leaves, parent: int, mean: Reals) -> None:
    """Write the prior means of the children of one parent to the beginning of ``mean``.

    They divide the parent's trips in proportion to the sums of the children's rows, each without the child itself, or
    equally if all of these sums are 0.
    """
    noisy, sums, cells, sigma = leaves.noisy, leaves.sums, leaves.cells, leaves.sigma
    first, total = leaves.offsets[parent], leaves.totals[parent]
    size, total_of_rows = leaves.offsets[parent + 1] - first, 0.0
    for i in range(size):
        area = leaves.area[first + i]
        # The second term is half the standard deviation of the row, so that a row of 0 does not imply a count of 0.
        row = max(sums[area] - noisy[first + i], 0) + 0.5 * sigma * math.sqrt(cells[area] - 1.0)
        mean[i] = row
        total_of_rows += row
    for i in range(size):
        mean[i] = total * (mean[i] / total_of_rows) if total_of_rows > 0.0 else total / float(size)


@kernel
def _find_octave(mean: float, sigma: float) -> int:
    """Return the number of the octave of a prior mean, from 0 to ``OCTAVES - 1``; 0 for a mean of 0."""
    _, exponent = math.frexp(mean / sigma)
    return min(max(exponent + _OCTAVE_OF_SIGMA, 0), OCTAVES - 1) if mean > 0.0 else 0


@kernel
def _add_to_histogram(leaves: _Leaves, counts: Integers) -> None:
    """Add 1 to the counts of :func:`make_leaf_histogram` for each child of a parent with trips and several children.

    A child with x above the grid is left out. One with x below it counts at its lowest point.
    """
    noisy, offsets, totals = leaves.noisy, leaves.offsets, leaves.totals
    sigma, step, low = leaves.sigma, leaves.step, leaves.low
    points = counts.shape[1]
    mean = np.empty(np.max(np.diff(offsets)))  # prior means of the children of one parent, at its beginning
    for parent in range(len(totals)):
        first, size = offsets[parent], offsets[parent + 1] - offsets[parent]
        if totals[parent] == 0 or size == 1:
            continue
        _compute_prior_means(leaves, parent, mean)
        for i in range(size):
            point = max((noisy[first + i] + step // 2) // step - low, 0)  # on the grid of x, in steps of ``step`` trips
            if point < points:
                counts[_find_octave(mean[i], sigma), point] += 1


@kernel
def _divide_trips(
    leaves: _Leaves, bin_of: Integers, means: Reals, deviations: Reals, least: float, lump: int, trips: Integers
) -> None:
    """Divide the trips of each parent among its children, and write them into ``trips``; steps 1 and 3 to 5.

    ``means`` and ``deviations`` are those of :class:`Posterior`, and are interpolated between points of the grid. A
    mean is moved by at most 2 standard deviations of the noise from x. For ``least`` and ``lump``, see
    :func:`round_in_lumps`.
    """
    noisy, offsets, totals = leaves.noisy, leaves.offsets, leaves.totals
    sigma, step, low = leaves.sigma, leaves.step, leaves.low
    points = means.shape[1]
    widest = np.max(np.diff(offsets))
    w, deviation = np.empty(widest), np.empty(widest)
    for parent in range(len(totals)):
        first, size, total = offsets[parent], offsets[parent + 1] - offsets[parent], totals[parent]
        if total == 0 or size == 1:
            trips[first : first + size] = total
            continue
        _compute_prior_means(leaves, parent, w)
        for i in range(size):
            x = noisy[first + i]
            if x > _MAX_X * sigma:
                w[i], deviation[i] = x, sigma
                continue
            bin_number = bin_of[_find_octave(w[i], sigma)]
            mean_of_bin, deviation_of_bin = means[bin_number], deviations[bin_number]
            point, rest = divmod(max(x - low * step, 0), step)
            next_point, part = min(point + 1, points - 1), rest / float(step)
            mean = mean_of_bin[point] + part * (mean_of_bin[next_point] - mean_of_bin[point])
            w[i] = max(min(max(mean, x - 2.0 * sigma), x + 2.0 * sigma), 0.0)
            between = deviation_of_bin[point] + part * (deviation_of_bin[next_point] - deviation_of_bin[point])
            deviation[i] = max(between, _MIN_DEVIATION * sigma)
        project_to_total(w[:size], deviation[:size], float(total))
        round_in_lumps(w[:size], total, least, lump, trips[first : first + size])


_MIN_POINTS_PER_DEVIATION = 8
"""Smallest number of grid points per standard deviation of the noise, unless the points are already 1 trip apart."""

_MIN_X, _MAX_X, _MAX_N = -8, 10, 12
"""Limits of the grid, in standard deviations of the noise: smallest and largest noisy value x, and largest true count
n. A smaller x is treated as the smallest x of the grid. For a larger x, the posterior mean is x itself."""

_MIN_CELLS_PER_BIN = 400
"""Smallest number of cells of a bin. Neighbouring octaves (doublings) of prior means with fewer cells share a bin."""

_POOLED_ITERATIONS, _BIN_ITERATIONS = 300, 150
"""Numbers of iterations of expectation-maximisation: first on all cells together, then, from there, on each bin."""

_MIN_PROBABILITY = 2.0**-60
"""Smaller probabilities are set to 0, because arithmetic on subnormal numbers is slow."""


@dataclass(frozen=True, eq=False)
class GridNoise:
    """The noise of the leaves, and the grid of true counts n and noisy values x.

    Attributes:
        sigma: Standard deviation of the noise.
        step: Distance between the points of the grid, a whole number of trips.
        low: The smallest x on the grid, in steps. The smallest n is 0.
        likelihood: Probability of x given n, up to a constant factor; shape (points of n, points of x).
    """

    sigma: float
    step: int
    low: int
    likelihood: Reals

    @classmethod
    @lru_cache(maxsize=8)
    def from_variance(cls, variance: Fraction) -> GridNoise:
        """Return the grid for discrete Gaussian noise. It is kept, because every part of a release asks for it."""
        sigma = math.sqrt(float(variance))
        step = max(1, int(sigma) // _MIN_POINTS_PER_DEVIATION)
        low = min(-1, math.floor(_MIN_X * sigma / step))
        highest_x, highest_n = (max(1, math.ceil(edge * sigma / step)) for edge in (_MAX_X, _MAX_N))
        exact = Context(prec=40)
        exponent = -Fraction(step * step) / (2 * variance)  # of the likelihood of x one step from n
        rate = exact.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
        distances = range(highest_n - low + 1)
        weight = np.array([float(exact.exp(exact.multiply(rate, Decimal(k * k)))) for k in distances])
        distance = np.abs(np.arange(low, highest_x + 1) - np.arange(highest_n + 1)[:, np.newaxis])
        return cls(sigma, step, low, weight[distance])

    @property
    def points(self) -> int:
        """Number of points of x on the grid."""
        return int(self.likelihood.shape[1])


@dataclass(frozen=True, eq=False)
class Posterior:
    """Posterior means and standard deviations, in trips, of a true count, given its noisy value x and its bin.

    Attributes:
        bin_of: Number of the bin to which each octave (doubling) of prior means belongs; shape (octaves,).
        mean, deviation: Posterior mean and standard deviation at each x of the grid; shape (bins, points of x) each.
    """

    bin_of: Integers
    mean: Reals
    deviation: Reals


def estimate_posterior(noise: GridNoise, counts: Integers) -> Posterior:
    """Return the posterior means and standard deviations of the true counts, for all bins.

    The distribution of true counts is first estimated for all cells together. The result is the start for each bin.
    ``counts`` has the number of cells with a mean in each octave and each noisy value x; shape (octaves, points of x).
    """
    bin_of = assign_bins(counts.sum(axis=1), _MIN_CELLS_PER_BIN)
    by_x = np.ascontiguousarray(noise.likelihood.T)
    pooled = maximise_likelihood(noise, counts.sum(axis=0), None, _POOLED_ITERATIONS)

    def compute_bin_moments(number: int) -> tuple[Reals, Reals]:
        of_bin = counts[bin_of == number].sum(axis=0)
        prior = maximise_likelihood(noise, of_bin, pooled, _BIN_ITERATIONS)
        mean, deviation = _compute_moments(by_x, prior, noise.low)
        return mean * noise.step, deviation * noise.step

    moments = list(map_in_order(compute_bin_moments, range(int(bin_of[-1]) + 1)))
    means = np.array([mean for mean, _ in moments])
    return Posterior(bin_of, means, np.array([deviation for _, deviation in moments]))


def maximise_likelihood(noise: GridNoise, counts: Integers, start: Reals | None, iterations: int) -> Reals:
    """Return the distribution of true counts n after iterations of expectation-maximisation; shape (points of n,).

    ``counts`` has the number of cells with a noisy value x at each point; shape (points of x,). ``start`` is the
    distribution to start from; None for 1/2 at 0 and uniform on the other points.
    """
    largest_n = len(noise.likelihood) - 1
    prior = np.append(0.5, np.full(largest_n, 0.5 / largest_n)) if start is None else start
    by_x = np.ascontiguousarray(noise.likelihood.T)
    return _maximise_likelihood(noise.likelihood, by_x, counts, prior, iterations)


@kernel
def _maximise_likelihood(likelihood: Reals, by_x: Reals, counts: Integers, start: Reals, iterations: int) -> Reals:
    """Return the result of :func:`maximise_likelihood`; ``by_x`` is the transpose of ``likelihood``.

    The inner loops run along the rows of one or the other, as vector instructions with one order of sums.
    """
    prior = start.copy()
    mass, points = likelihood.shape
    cells = 0.0
    for x in range(points):
        cells += counts[x]
    if cells == 0.0:
        return prior
    density_of_x, factor_of_n = np.empty(points), np.empty(mass)
    for _ in range(iterations):
        density_of_x[:] = 0.0
        for n in range(mass):
            if prior[n] > 0.0:
                for x in range(points):
                    density_of_x[x] += prior[n] * likelihood[n, x]
        factor_of_n[:] = 0.0
        for x in range(points):
            if counts[x] > 0 and density_of_x[x] > 0.0:
                ratio = counts[x] / density_of_x[x] / cells
                for n in range(mass):
                    factor_of_n[n] += ratio * by_x[x, n]
        for n in range(mass):
            prior[n] *= factor_of_n[n]
            if prior[n] < _MIN_PROBABILITY:
                prior[n] = 0.0
    return prior


def _compute_moments(by_x: Reals, prior: Reals, low: int) -> tuple[Reals, Reals]:
    """Return mean and standard deviation of n given each x, in steps of the grid; shape (points of x,) each.

    ``by_x`` has the likelihood, shape (points of x, points of n), and ``prior`` that of n, shape (points of n,). Where
    ``prior`` excludes x, the mean is x or, if this is below 0, 0. ``low`` is the first x, in steps.
    """
    n, weight = np.arange(len(prior)), prior * by_x
    total = np.cumsum(weight, axis=1)[:, -1]  # cumulative sums add one after the other
    mean = np.maximum(low + np.arange(len(by_x), dtype=np.float64), 0.0)
    np.divide(np.cumsum(n * weight, axis=1)[:, -1], total, out=mean, where=total > 0.0)
    squares = np.cumsum(np.square(n - mean[:, np.newaxis]) * weight, axis=1)[:, -1]
    return mean, np.sqrt(np.divide(squares, total, out=np.zeros_like(total), where=total > 0.0))
