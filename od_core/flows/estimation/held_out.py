"""Divide measurements into two parts: one to estimate tables from, and one to judge the tables by.

Every measurement y of a true number n gets public noise W. A table is estimated from x = y + W of all cells. What y and
W say beside x estimates the errors of the table without bias (:class:`HeldOutNoise`).

**Gaussian noise** (:class:`GaussianHalves`). If W has the variance of the noise of y, then y + W and y - W are two
independent measurements of twice the variance. The errors of a table s are the sum of E|s - n|. Leaves are grouped by
their sizes in both tables that are compared. The second measurement is independent of this grouping given n. In each
group, it gives the distribution of n by expectation-maximisation (:mod:`od_core.flows.estimation.empirical_bayes`), and
so E|s - n| and the probability of n = 0.

**Laplace noise** (:class:`LaplaceHalves`). Discrete Laplace noise with the decay a has the law
P(z) = (1 - a) / (1 + a) a^|z|, and the variance 2 c, where c = a / (1 - a)^2. Let y have the decay a, and let b be the
decay of noise of twice the variance, b / (1 - b)^2 = 2 c. Let W be 0 with probability 1 / (1 + b), and otherwise w with
probability L(w) / 2, where L is the law with the decay b. Then x = y + W is exactly a measurement with the decay b. Let
(D f)(y) be f(y) - c (f(y + 1) - 2 f(y) + f(y - 1)), which takes the noise of y out of a mean, and K the law of W. Then
for any function h of whole numbers,

    k = D[h(.) L(x - .)](y) / K(x - y)

has the expectation h(n) given x, whatever n is. Since L / K is 2 but for W = 0,

    k = h(y) - c (u (h(y + 1) - h(y)) + d (h(y - 1) - h(y))),

where u and d are 2 / b and 2 b for W > 0, 2 b and 2 / b for W < 0, and b (1 - b) both for W = 0. So |s - n|, (s - n)^2
and the absence of trips have estimates without bias, and no distribution of n is assumed. Where h has a kink, k has a
variance of about the third power of the scale. So if the noise is large, h is made smooth: the absolute error near 0
over about an eighth of the standard deviation of the noise of x, and the absence of trips over up to half of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from statistics import NormalDist
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from od_core.flows.arrays import Integers, Reals
from od_core.flows.estimation.empirical_bayes import GridNoise, maximise_likelihood
from od_core.flows.estimation.families import assign_bins
from od_core.flows.estimation.least_squares import MeasuredLevel
from od_core.flows.estimation.levels import MeasuredTotals
from od_core.geography.flow_tree import sum_runs

_SEED = 20010101
"""Seed of the public noise. It decides no released number, only between rules that are close."""

_BLOCK = 1 << 18
"""Number of noisy values that are worked on at once, which limits the memory."""

_SIZE_EDGES = (0.0, 0.25, 1.0, 4.0)
"""Sizes by which leaves are grouped, in standard deviations of the held-out noise. Leaves of 0 are a group."""

_MIN_CELLS_PER_GROUP = 300
"""Smallest number of leaves of a group, unless there are fewer in all. Neighbouring sizes with fewer share a group."""

_ITERATIONS = 150
"""Number of iterations of expectation-maximisation."""

_BITS = 52
"""Number of bits of a word that decide the distance of Laplace noise W from 0."""

Tables = tuple[Integers, Integers]
"""The trips of cells in a base table and in another one; shape (cells,) each."""


class Shown(NamedTuple):
    """Unbiased estimates of the true trips of some cells, from what was held out, with their variances.

    Attributes:
        trips: The estimates; shape (cells,).
        variance: The variance of each, on average over all x.
        variances: Estimates of the variance of each, given x; shape (cells,). None if it does not depend on x.
    """

    trips: Reals
    variance: float
    variances: Reals | None = None

    def sum_by_area(self, area: NDArray[np.int32], areas: int) -> Shown:
        """Return the estimates of the sums over the cells of each area; shape (areas,).

        ``area`` is the number of each cell's area. Areas have different variances, so none is stated for all of them.
        """
        variances = np.full(len(area), self.variance) if self.variances is None else self.variances
        trips_of_areas = np.bincount(area, self.trips, minlength=areas).astype(np.float64)
        variances_of_areas = np.bincount(area, variances, minlength=areas).astype(np.float64)
        return Shown(trips_of_areas, 0.0, variances_of_areas)

    def estimate_error_increase(self, tables: Tables, max_cells: int | None = None) -> tuple[float, float]:
        """Return how much the squared error of a table exceeds that of a base table, and the variance of this estimate.

        The errors are summed over all cells or, with ``max_cells``, over this many cells that differ most, and all
        that differ as much as the last of these. The variance is at least the one that follows from :attr:`variance`,
        since the estimated variances of few cells may be small by chance.
        """
        base, table = tables
        differences = table - base
        cells = np.flatnonzero(differences)
        sizes, left_out = np.abs(differences[cells]), 0 if max_cells is None else len(cells) - max_cells
        if left_out > 0:
            cells = cells[sizes >= np.partition(sizes, left_out)[left_out]]
        d, ends = differences[cells].astype(np.float64), np.array([0, len(cells)])
        # With d = r - b, and the estimate y: (r - y)^2 - (b - y)^2 = d (r + b - 2 y), with the variance 4 d^2 Var(y).
        (increase,) = sum_runs(d * (table[cells] + base[cells] - 2.0 * self.trips[cells]), ends)
        (squares,) = sum_runs(d * d, ends)
        variance = 4 * self.variance * float(squares) if squares > 0 else 0.0  # noise may be infinite
        if self.variances is not None:
            (weighted,) = sum_runs(d * d * self.variances[cells], ends)
            variance = max(variance, 4 * float(weighted))
        return float(increase), variance


Losses = tuple[list[float], list[float]]
"""Estimated total errors of a base table and of another one, and estimated shares of false discoveries of both."""


class HeldOutNoise(Protocol):
    """How measurements y with noise of a variance above 0 are divided; tables are made from x = y + W."""

    def draw(self, words: NDArray[np.uint64]) -> Reals:
        """Return public noise W, one value from each random word; shape (words,)."""

    def show_trips(self, y: Reals, x: Reals) -> Shown:
        """Return unbiased estimates of the true trips of cells, given x; shape (cells,), as y and x."""

    def estimate_losses(self, y: Reals, x: Reals, tables: Tables) -> Losses:
        """Return the estimated losses of two tables of leaves that are made from x; shape of y and x: (leaves,)."""


@dataclass(frozen=True)
class GaussianHalves:
    """How measurements with Gaussian noise are divided: y - W shows the trips of tables that are made from y + W."""

    variance: float

    def draw(self, words: NDArray[np.uint64]) -> Reals:
        """Return W, whole numbers nearest to quantiles of the normal distribution; shape (words,)."""
        quantiles: Reals = compute_normal_quantiles()[words >> np.uint64(48)]
        return np.rint(quantiles * math.sqrt(self.variance))

    def show_trips(self, y: Reals, x: Reals) -> Shown:
        """Return y - W, computed as 2 y - x, and its variance. It is exact for whole numbers, otherwise rounded."""
        return Shown(2 * y - x, 2 * self.variance)

    def estimate_losses(self, y: Reals, x: Reals, tables: Tables) -> Losses:
        """Return the losses that are expected by the distribution of the true trips in each group of leaves."""
        noise, held_out = GridNoise.from_variance(Fraction(2 * self.variance)), 2 * y - x
        return _estimate_losses_by_group(noise, held_out, tables)


@dataclass(frozen=True)
class LaplaceHalves:
    """How measurements with Laplace noise are divided; k, W, D and b are those of the module docstring."""

    variance: float

    @cached_property
    def decay(self) -> float:
        """The decay b of the noise of x, which has twice the variance."""
        return compute_decay(2 * self.variance)

    @cached_property
    def half_width(self) -> int:
        """Half-width, in trips, of the range of errors around 0 over which the absolute error is made smooth."""
        return int(math.sqrt(2 * self.variance) / 16)

    @cached_property
    def few(self) -> int:
        """Smallest number of true trips of a flow that is in no part a false discovery; 1 unless the noise is large."""
        return max(1, int(min(self.variance / 32, math.sqrt(self.variance / 2))))

    def draw(self, words: NDArray[np.uint64]) -> Reals:
        """Return W; shape (words,).

        The last bit of a word is the sign. The upper bits are a uniform number t, and |W| is the largest k with
        b^k >= t (1 + b), or 0 if there is none. It is found bit by bit, by multiplications that are the same on every
        machine.
        """
        lower_limit = ((words >> np.uint64(64 - _BITS)).astype(np.float64) + 1.0) * 2.0**-_BITS * (1.0 + self.decay)
        powers = [self.decay]  # b, b^2, b^4, ...
        while powers[-1] * powers[-1] >= 2.0**-_BITS:
            powers.append(powers[-1] * powers[-1])
        reached, distance = np.ones(len(words)), np.zeros(len(words))
        for bit in reversed(range(len(powers))):
            further = reached * powers[bit]
            is_within = further >= lower_limit
            reached[is_within] = further[is_within]
            distance[is_within] += float(1 << bit)
        return np.where(words & np.uint64(1), -distance, distance)

    def estimate(self, h: Callable[[Reals], Reals], y: Reals, x: Reals) -> Reals:
        """Return k of the module docstring, an unbiased estimate of h(n) for each cell; shape (cells,), as y and x."""
        w, c, b = x - y, self.variance / 2, self.decay
        up = np.where(w > 0, 2 / b, np.where(w < 0, 2 * b, b * (1 - b)))  # u of the module docstring
        down = np.where(w > 0, 2 * b, np.where(w < 0, 2 / b, b * (1 - b)))  # d
        h_at_y = h(y)
        return np.asarray(h_at_y - c * (up * (h(y + 1) - h_at_y) + down * (h(y - 1) - h_at_y)))

    def estimate_errors(self, trips: Integers, y: Reals, x: Reals) -> Reals:
        """Return unbiased estimates of the smoothed absolute errors of a table's trips; shape (cells,)."""
        return self.estimate(lambda n: self.compute_error(trips - n), y, x)

    def show_trips(self, y: Reals, x: Reals) -> Shown:
        """Return k for h(n) = n, and its variance, estimated without bias by k^2 minus k for h(n) = n^2.

        This estimate depends only on whether W is 0.
        """
        w, b = x - y, self.decay
        without, with_noise = b * b / (1 - b), 2 * (1 + b + b * b) / ((1 - b) * (1 - b))
        mean = (without + b * with_noise) / (1 + b)
        return Shown(y - np.sign(w) * ((1 + b) / (1 - b)), mean, np.where(w == 0, without, with_noise))

    def estimate_losses(self, y: Reals, x: Reals, tables: Tables) -> Losses:
        """Return the losses estimated by k without bias, so that an estimated share may be below 0."""
        errors, absences = [0.0, 0.0], [0.0, 0.0]
        for first in range(0, len(y), _BLOCK):
            block = slice(first, first + _BLOCK)
            ends = np.array([0, len(y[block])])
            absent = self.estimate(self.compute_absence, y[block], x[block])
            for k, trips in enumerate(tables):
                error = self.estimate_errors(trips[block], y[block], x[block])
                errors[k] += float(sum_runs(error, ends)[0])
                absences[k] += float(sum_runs((trips[block] > 0) * absent, ends)[0])
        cells_with_trips = (max(int(np.count_nonzero(trips > 0)), 1) for trips in tables)
        return errors, [number / cells for number, cells in zip(absences, cells_with_trips, strict=True)]

    def compute_error(self, distance: Reals) -> Reals:
        """Return the absolute error, smoothed near 0: the mean of |e + j| over all whole j within the half-width."""
        size, half = np.abs(distance), self.half_width
        return np.where(size > half, size, (size * size + half * (half + 1)) / (2 * half + 1))

    def compute_absence(self, trips: Reals) -> Reals:
        """Return the degree to which trips are absent: 1 for 0 trips, falling linearly to 0 at :attr:`few` trips."""
        return np.clip(1 - trips / self.few, 0, 1)


def compute_decay(variance: float) -> float:
    """Return the decay a of discrete Laplace noise, given its variance 2 a / (1 - a)^2."""
    return variance / (variance + 1 + math.sqrt(2 * variance + 1))


HALVES: Mapping[str, Callable[[float], HeldOutNoise]] = {"gaussian": GaussianHalves, "laplace": LaplaceHalves}
"""Classes by noise distribution. Each is called with the variance of the measurements that are divided."""


def has_noise(variance: float) -> bool:
    """Return whether measurements with this variance can be divided: exact ones have 0, absent ones infinity."""
    return 0 < variance < math.inf


def iterate_halves(
    levels: Sequence[MeasuredLevel], areas: MeasuredTotals, distribution: str, turn: int = 0
) -> Iterator[tuple[list[MeasuredLevel], MeasuredTotals]]:
    """Yield the levels and area totals with the noisy values y + W, and then those with y - W.

    Their variances are doubled. ``turn`` is the number of earlier releases of the series; each has a W of its own.
    """
    for sign in (1, -1):
        words = np.random.Philox(_SEED).jumped(turn)  # from the beginning again: both halves have the same W

        def add_noise(measured: Reals, variance: float, words: np.random.Philox = words, sign: int = sign) -> Reals:
            noisy = measured.copy()
            for first in range(0, len(noisy) if has_noise(variance) else 0, _BLOCK):
                block = noisy[first : first + _BLOCK]
                block += sign * HALVES[distribution](variance).draw(words.random_raw(len(block)))
            return noisy

        # The order in which noise is drawn decides which words each level has: levels first, top down, then sides.
        half = [
            MeasuredLevel(
                level.nodes, level.offsets, level.divided, add_noise(level.noisy, level.noise), 2 * level.noise
            )
            for level in levels
        ]
        yield half, {side: (add_noise(noisy, noise), 2 * noise) for side, (noisy, noise) in areas.items()}


def show_trips(distribution: str, variance: float, y: Reals, x: Reals) -> Shown:
    """Return unbiased estimates of true trips from measurements y, given the x that tables are made from.

    ``variance`` is that of y. Measurements that are not divided, since they are exact or absent, are returned as y.
    """
    return HALVES[distribution](variance).show_trips(y, x) if has_noise(variance) else Shown(y, 2 * variance)


@cache
def compute_normal_quantiles() -> Reals:
    """Return 65,536 quantiles of the normal distribution, rounded so that they are the same on every machine."""
    normal = NormalDist()
    return np.array([round(normal.inv_cdf((k + 0.5) / 65536) * 1024) / 1024 for k in range(65536)])


def _estimate_losses_by_group(noise: GridNoise, y: Reals, tables: Tables) -> Losses:
    """Return the estimated losses of two tables, given measurements y with ``noise`` that are independent of both.

    Leaves with y above the grid say nothing of the distribution of the true trips in their group.
    """
    code, point = _classify_cells(noise, y, *tables)
    group = assign_bins(np.bincount(code, minlength=(len(_SIZE_EDGES) + 1) ** 2), _MIN_CELLS_PER_GROUP)[code]
    known, groups = point < noise.points, int(group.max(initial=0)) + 1
    counts = np.bincount(group[known] * noise.points + point[known], minlength=groups * noise.points)
    counts = counts.reshape(groups, noise.points)
    by_x = np.ascontiguousarray(noise.likelihood.T)
    start = maximise_likelihood(noise, counts.sum(axis=0), None, _ITERATIONS)  # of all groups together
    losses, zeros = [], []
    for of_group in counts:
        prior = maximise_likelihood(noise, of_group, start, _ITERATIONS)
        loss, zero = _compute_posterior_losses(by_x, prior, of_group)
        losses.append(loss)
        zeros.append(zero)
    errors, false_shares = [], []
    for trips in tables:
        error, share = _compute_expected_losses(noise.step, y, trips, group, point, np.array(losses), np.array(zeros))
        errors.append(error)
        false_shares.append(share)
    return errors, false_shares


def _classify_cells(noise: GridNoise, y: Reals, base: Integers, table: Integers) -> tuple[Integers, Integers]:
    """Return the number of each cell's pair of sizes in two tables, and the grid point of its y; shape (cells,) each.

    Noisy values below the grid have its first point. Those above it have numbers beyond its last point.
    """
    by_base, by_table = (np.searchsorted(_SIZE_EDGES, trips / noise.sigma) for trips in (base, table))
    point = np.floor((y + noise.step // 2) / noise.step).astype(np.int64) - noise.low
    return by_base * (len(_SIZE_EDGES) + 1) + by_table, np.maximum(point, 0)


def _compute_expected_losses(
    step: int, y: Reals, trips: Integers, group: Integers, point: Integers, loss: Reals, zero: Reals
) -> tuple[float, float]:
    """Return a table's expected total error in trips, and its expected share of false discoveries.

    ``group`` and ``point`` are the group of each cell and the point of its y on the grid, whose points are ``step``
    trips apart; ``loss`` and ``zero`` are the results of :func:`_compute_posterior_losses` by group. A cell with y
    beyond the grid has its distance from y as its error, and is no false discovery.
    """
    error, is_false = np.abs(trips - y), np.zeros(len(y))
    on_grid = np.flatnonzero(point < zero.shape[1])
    group, point, steps = group[on_grid], point[on_grid], trips[on_grid] / float(step)
    below = np.minimum(steps.astype(np.int64), loss.shape[2] - 2)
    loss_below, loss_above = loss[group, point, below], loss[group, point, below + 1]
    error[on_grid] = (loss_below + (steps - below) * (loss_above - loss_below)) * step  # interpolated
    is_false[on_grid] = np.where(trips[on_grid] > 0, zero[group, point], 0.0)  # with this probability
    ends = np.array([0, len(y)])
    (total_error,), (false_discoveries,) = sum_runs(error, ends), sum_runs(is_false, ends)
    return float(total_error), float(false_discoveries) / max(int(np.count_nonzero(trips > 0)), 1)


def _compute_posterior_losses(by_x: Reals, prior: Reals, counts: Integers) -> tuple[Reals, Reals]:
    """Return the expected error E|s - n| of a table that states s, in grid steps, and the probability of n = 0.

    Both are of the true count n given x, and 0 where ``counts`` has no x; shapes (points of x, points of s) and (points
    of x,). ``by_x`` has the likelihood of n, shape (points of x, points of n), and ``prior`` that of n, shape (points
    of n,). The points of s are those of n.
    """
    weight = prior * by_x
    below = np.cumsum(weight, axis=1)
    whole, error_of_0 = below[:, -1:], np.cumsum(np.arange(len(prior)) * weight, axis=1)[:, -1:]
    # Until the division by ``whole``, all are sums of weights. From E|s - n| to E|s + 1 - n|: + 1 for each n of at most
    # s, - 1 for the others.
    error = np.cumsum(np.hstack((error_of_0, 2.0 * below[:, :-1] - whole)), axis=1)
    known = (counts[:, np.newaxis] > 0) & (whole > 0.0)
    loss = np.divide(error, whole, out=np.zeros_like(error), where=known)
    return loss, np.divide(weight[:, :1], whole, out=np.zeros_like(whole), where=known)[:, 0]
