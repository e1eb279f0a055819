"""Estimate a measured flow tree by hierarchical empirical Bayes, which learns from all nodes to estimate each one.

Least squares (:mod:`od_core.flows.estimation.least_squares`) estimate a node from the measurements on its path alone.
This module also uses how the trips of *other* nodes divide among their children. It depends on public values alone and
costs no privacy. It needs more assumptions than least squares, so the published intervals do not use it.

Let c be the trips of a node and n_i those of its child i. The model is

    n_i = p_i c + e_i,

where p_i is the predicted share of the child (:mod:`od_core.flows.estimation.families`) and e_i has the mean 0 and the
variance d_i. Let z_i be the estimate of n_i from itself and the levels below it, with the variance v_i, and let h_i
be the least-squares estimate from all levels. The steps are:

1.  Compute the shares p (:func:`od_core.flows.estimation.families.compute_gravity_shares`).
2.  Estimate how well they predict: d is the mean of r_i^2 - w_i over the cells of one level and size, divided by
    the mean of 1 - p_i, where r_i = h_i - p_i h and w_i is the variance that noise alone gives to r_i. A cell that the
    shares predict worse has its own d_i = max(d, r_i^2 - w_i), so that no prediction overrules a clear measurement.
3.  Combine the levels from the bottom up. With a_i = v_i + d_i, the children say about their parent's c:

        J = sum p^2/a + (sum p d/a)^2 / sum(d v/a)                         1/J is the variance
        C = [sum p z/a + (sum p d/a) (sum d z/a) / sum(d v/a)] / J         the estimate of c

    This is the best linear estimate under the model, given that the e of a family sum to 0. For large d, it is the sum
    of the z, as in least squares.
4.  Make integers from the top down. The child i of a node with c trips gets p_i c + (z_i - p_i c) d_i / (d_i + v_i).
    The result is rounded and projected, so that the children are at least 0 and sum to c, as in every refinement.
    Levels of fewer than 1,000 cells are estimated by least squares, in both directions: they have too few families to
    learn from.
5.  If origins and destinations have the same geography, repeat steps 1 to 4 with blended shares, which also use the
    trips in the opposite direction that the first round found. If there is an earlier table of the same areas, the
    shares of both rounds are first blended with it, at each level where it clearly explains something.

Step 4 has another form, for tables in which most pairs of zones have no trips: the deviations e have a mixture of
distributions, and the results are rounded in lumps.

**Mixture.** Let q be the trips that the shares predict for a node, z the estimate of its trips from itself and the
levels below it, and v the variance of z. In units of the standard deviation of z, the deviation of the true trips from
q has a distribution that is a mixture of normal distributions with mean 0,

    (n - q) / sqrt v  ~  sum_j pi_j N(0, lambda_j),   so   t = (z - q) / sqrt v  ~  sum_j pi_j N(0, 1 + lambda_j).

The weights pi are estimated for nodes of similar size, by expectation-maximisation [dempster1977em]. The posterior mean
of n is then

    q + (z - q) g(t),   g(t) = sum_j omega_j lambda_j / (1 + lambda_j),   omega_j ~ pi_j N(t; 0, 1 + lambda_j).

Leaves with Laplace noise have t of other distributions: those of the sum of a normal number with the variance lambda_j
and a Laplace number with the variance 1, of which lambda_j / (1 + lambda_j) becomes the part that is expected given t.

Where most nodes are as predicted, g is small for small t: what is near q is noise. A node far from q keeps its
measurement, because only a wide component explains it. The posterior mean moves at most 1 standard deviation of z, or
1.5 in the leaves, from the linear estimate z_i + (c - sum z) v_i / sum v.

**Lumps.** Small fractions become a few flows that probably have trips. The estimates, which may be negative, are first
changed as little as possible to sum to the parent's trips. Let sigma be the standard deviation of the noise of the
leaves, and u the option of the mechanism. Every estimate of at least u sigma is rounded. The remaining trips are
divided into lumps of floor(u sigma), which are assigned to the children below u sigma, largest estimate first. A
remainder of less than a lump is added to the children that were rounded.

The result is the same on every machine and for any number of threads: real numbers come from single operations of IEEE
754, one after the other, in compiled loops that neither fuse nor reorder them, and from correctly rounded decimal
exponentials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache, cached_property, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from od_core.flows.arrays import Integers, Reals
from od_core.flows.estimation.area_totals import include_area_totals
from od_core.flows.estimation.families import (
    SIZES,
    Families,
    Places,
    PredictedFamilies,
    assign_bins,
    blend_shares,
    compute_cell_size,
    compute_deviation,
    compute_gravity_shares,
    find_return_positions,
    iterate_families,
    pool_sums_by_bin,
    sum_leaves_by_node,
    sum_trips_by_node,
    take_trips,
)
from od_core.flows.estimation.least_squares import MeasuredLevel, combine_bottom_up
from od_core.flows.estimation.levels import MeasuredTotals, Measurement, list_side_totals, select_area_totals
from od_core.flows.plan import ReleasePlan
from od_core.flows.projection.onto_area_totals import (
    SMALL_FLOW_DEVIATIONS,
    EstimatedTotals,
    give_in_turn,
    hold_exact_totals,
    project_to_area_totals,
)
from od_core.flows.projection.onto_parents import project_to_total
from od_core.geography.flow_tree import Nodes, sum_runs
from od_core.kernels import kernel

_VARIANCES = ("0.001", "0.02", "0.06", "0.15", "0.4", "1", "2.5", "6", "16", "50", "200", "1000", "10000")
_LAMBDAS = tuple(map(Decimal, _VARIANCES))
"""Variances lambda_j of the components of the mixture, in variances of z."""

_CONTEXT = Context(prec=28)
"""Decimal arithmetic of the densities, so that they do not depend on the caller's context."""

_VARIANCE_EDGES = (
    "0",
    "0.01",
    "0.03",
    "0.06",
    "0.1",
    "0.2",
    "0.3",
    "0.5",
    "0.75",
    "1",
    "1.5",
    "2",
    "3",
    "4",
    "6",
    "8",
    "11",
)
"""Edges of the ranges of variances of the normal distributions whose mixture is a Laplace distribution."""

MIN_T, CELLS_PER_T, _MAX_T = -7, 10, 14
"""Smallest and largest t of the grid, and the number of its cells per unit of t."""

_DISTANCES = 2 * _MAX_T * CELLS_PER_T + 1
"""Number of distances from 0 at which densities are computed: whole multiples of half a cell of the grid of t."""

_MIN_CELLS_PER_BIN = 100
"""Smallest number of nodes by which weights are estimated. Neighbouring sizes with fewer nodes share a bin."""

_ITERATIONS = 100
"""Number of iterations of expectation-maximisation."""

_PSEUDO_COUNT, _WIDE_COMPONENTS = 3.0, 3
"""Number of nodes that every iteration adds to each of the widest components, and the number of these components. They
keep some weight, so that a later large deviation is not taken for noise."""


@dataclass(frozen=True, eq=False)
class Deviations:
    """The deviations of the children of a level from the shares that are predicted, by the size of the children.

    Attributes:
        families: The families of the level.
        p: Share of each child; shape (children,).
    """

    families: Families
    p: Reals

    def _attach_predicted_shares(self, block: Families, places: Places) -> PredictedFamilies:
        """Return some families with the predicted shares of their children, at the given positions in the level."""
        return block.with_shares(self.p[places.children])

    @cached_property
    def d(self) -> Reals:
        """The variance d of the deviations by size of the children, shape (sizes,), never 0; step 2 of the module."""
        excess, rest, cells = np.zeros(SIZES), np.zeros(SIZES), np.zeros(SIZES, dtype=np.int64)
        for predicted in self.families.map_blocks(self._attach_predicted_shares):
            add_deviations_by_size(predicted, excess, rest, cells)
        excess, rest = pool_sums_by_bin(cells, excess, rest)  # of r^2 - w and of 1 - p
        d = np.divide(excess, rest, out=np.zeros_like(rest), where=rest > 0)
        return np.maximum(d, _MIN_DISPERSION * self.families.sigma**2)

    @cached_property
    def mixture(self) -> tuple[Integers, Reals]:
        """The bin of each size, shape (sizes,), and g at each point of the grid of t by bin, shape (bins, points)."""
        table = np.zeros(
            (SIZES, (_MAX_T - MIN_T) * CELLS_PER_T), dtype=np.int64
        )  # children by size and cell of the grid

        def tabulate_block(block: Families, places: Places) -> Integers:
            counts = np.zeros_like(table)
            _tabulate(self._attach_predicted_shares(block, places), counts)
            return counts

        for counts in self.families.map_blocks(tabulate_block):
            table += counts
        bin_of = assign_bins(table.sum(axis=1), _MIN_CELLS_PER_BIN)
        densities_at_centres, _ = _compute_densities(1, self.families.has_laplace_noise)
        densities, part = _compute_densities(0, self.families.has_laplace_noise)
        remaining_parts = np.empty((int(bin_of[-1]) + 1, len(densities)))
        for number in range(len(remaining_parts)):
            counts_of_bin = table[bin_of == number].sum(axis=0)
            weighted = densities * _estimate_weights(densities_at_centres, counts_of_bin)
            # The last cumulative sums are sums in a fixed order, unlike those of np.sum.
            remaining_parts[number] = np.cumsum(weighted * part, axis=1)[:, -1] / np.cumsum(weighted, axis=1)[:, -1]
        return bin_of, remaining_parts


@cache
def _compute_densities(half: int, has_laplace_noise: bool) -> tuple[Reals, Reals]:
    """Return the density of t, up to a factor, and the remaining part at t, under each component of the mixture.

    The remaining part is E(deviation | t) / t, in units of the standard deviation of z. The values of t are the points
    of the grid if ``half`` is 0, and the middles between them if it is 1. The shape is (values, components); without
    Laplace noise, the remaining parts do not depend on t, and have the shape (components,).
    """
    points = range((_MAX_T - MIN_T) * CELLS_PER_T + 1 - half)
    distance = np.abs(2 * (MIN_T * CELLS_PER_T + np.array(points)) + half)  # of t from 0, in half steps
    densities, parts = np.empty((2, len(distance), len(_LAMBDAS)))
    with localcontext(_CONTEXT):
        noise = _list_laplace_variances() if has_laplace_noise else [(Decimal(1), Decimal(1))]
        for j, variance in enumerate(_LAMBDAS):
            # At each distance: the density, and that density times the remaining part.
            total, remaining = [Decimal(0)] * _DISTANCES, [Decimal(0)] * _DISTANCES
            for noise_variance, weight in noise:
                for k, density in enumerate(_compute_normal_densities(noise_variance + variance)):
                    total[k] += weight * density
                    remaining[k] += weight * density * variance / (noise_variance + variance)
            part = [float(of_distance / density) for of_distance, density in zip(remaining, total, strict=True)]
            densities[:, j] = np.array(list(map(float, total)))[distance]
            parts[:, j] = np.array(part)[distance]
        if has_laplace_noise:
            return densities, parts
        return densities, np.array([float(variance / (1 + variance)) for variance in _LAMBDAS])


def _compute_normal_densities(variance: Decimal) -> list[Decimal]:
    """Return the density of a normal distribution, up to a factor, at ``_DISTANCES`` distances from 0, in half steps.

    The density at distance k is a constant times r^(k^2), so that it changes by the factors r, r^3, r^5 and so on.
    """
    exact = Context(prec=40)
    first = exact.exp(-1 / exact.multiply(2 * variance, Decimal((2 * CELLS_PER_T) ** 2)))
    density, factor, change = exact.divide(Decimal(1), exact.sqrt(variance)), first, exact.multiply(first, first)
    densities = []
    for _ in range(_DISTANCES):
        densities.append(density)
        density, factor = exact.multiply(density, factor), exact.multiply(factor, change)
    return densities


def _list_laplace_variances() -> list[tuple[Decimal, Decimal]]:
    """Return variances and weights of normal distributions whose mixture is nearly the Laplace distribution.

    The Laplace distribution with the variance 1 is a mixture of normal distributions whose variances x have the density
    e^-x. Each part of that density, between two edges a < b, is replaced by its mean. Its mass is e^-a - e^-b, its
    integral of x e^-x is (a + 1) e^-a - (b + 1) e^-b, and the mean is their ratio. After the last edge, b is infinite,
    and both terms in b are 0. The caller must have set the decimal context ``_CONTEXT``, in which results are rounded.
    """
    edges = [Decimal(edge) for edge in _VARIANCE_EDGES]
    mass_above = [(-edge).exp() for edge in edges] + [Decimal(0)]
    moment_above = [(edge + 1) * mass for edge, mass in zip(edges, mass_above, strict=False)] + [Decimal(0)]
    masses = [above - beyond for above, beyond in pairwise(mass_above)]
    moments = [above - beyond for above, beyond in pairwise(moment_above)]
    return [(moment / mass, mass) for mass, moment in zip(masses, moments, strict=True)]


@kernel
def _tabulate(families: PredictedFamilies, table: Integers) -> None:
    """Add 1 to ``table`` for each child, by its size and by the cell of the grid with its t; shape (sizes, cells).

    Children without siblings, or with t outside the grid, are left out. Here, t is r / root(w) of step 2.
    """
    offsets, h, v, siblings, p, parent_h, parent_variance, sigma = families
    points = table.shape[1]
    for family in range(len(offsets) - 1):
        first, last = offsets[family], offsets[family + 1]
        if last - first < 2:
            continue
        for i in range(first, last):
            r, noise = compute_deviation(h[i], v[i], p[i], parent_h[family], siblings[family], parent_variance[family])
            point = math.floor((r / math.sqrt(noise) - MIN_T) * CELLS_PER_T)
            if 0 <= point < points:
                table[compute_cell_size(p[i] * parent_h[family], sigma), int(point)] += 1


@kernel
def _estimate_weights(densities: Reals, cells: Integers) -> Reals:
    """Return the weights pi of the components after expectation-maximisation; shape (components,).

    ``densities`` has the density of t under each component at each point, shape (points, components), and ``cells`` the
    number of children with t at each point, shape (points,).
    """
    points, components = densities.shape
    weights, sums = np.full(components, 1.0 / components), np.empty(components)
    for _ in range(_ITERATIONS):
        for j in range(components):
            sums[j] = _PSEUDO_COUNT if j >= components - _WIDE_COMPONENTS else 0.0
        for k in range(points):
            if cells[k] == 0:
                continue
            whole = 0.0
            for j in range(components):
                whole += densities[k, j] * weights[j]
            for j in range(components):
                sums[j] += cells[k] * (densities[k, j] * weights[j] / whole)
        whole = 0.0
        for j in range(components):
            whole += sums[j]
        for j in range(components):
            weights[j] = sums[j] / whole
    return weights


@kernel
def interpolate_remaining_part(t: float, parts: Reals) -> float:
    """Return g(t), the part of a deviation that remains, by linear interpolation; 1 where t is outside the grid.

    ``parts`` has g at the points of the grid for one bin; shape (points,).
    """
    grid_position = (t - MIN_T) * CELLS_PER_T
    if not (grid_position >= 0.0 and grid_position < len(parts) - 1):
        return 1.0
    point = int(grid_position)
    return parts[point] + (grid_position - point) * (parts[point + 1] - parts[point])  # type: ignore[no-any-return]


@kernel
def round_in_lumps(w: Reals, total: int, least: float, lump: int, trips: Integers) -> None:
    """Round ``w`` to whole numbers of at least 0 that sum to ``total``, and write them into ``trips``; shape (cells,).

    The sum of ``w`` must be about ``total``. ``least`` is u sigma, and ``lump`` is floor(u sigma),
    at least 1. Large cells, of at least ``least``, are rounded; the remainder of each is added to the next, so that
    their sum changes by at most half a trip. The trips that are left go to the small cells in lumps. A rest of less
    than a lump goes to the large cells in equal parts or, if there are none, to a small one.
    """
    left, large, carry = total, 0, 0.0
    for i in range(len(w)):
        trips[i] = 0
        if w[i] >= least:
            trips[i] = np.int64(math.floor(w[i] + carry + 0.5))
            carry += w[i] - trips[i]
            left -= trips[i]
            large += 1
    small = len(w) - large
    if small > 0 and (left >= lump or large == 0):
        order = np.argsort(np.where(w >= least, 1.0, -w), kind="mergesort")  # small cells first, ties by position
        in_lumps = left if large == 0 else left - left % lump
        give_in_turn(trips, order[:small], in_lumps, lump)
        left -= in_lumps
    largest = np.argmax(trips)
    for i in range(len(w)):
        if left > 0 and w[i] >= least:
            part = left // large
            trips[i] += part
            left -= part
            large -= 1
    trips[largest] += left  # floating-point error of totals near the limit


@kernel
def add_deviations_by_size(families: PredictedFamilies, excess: Reals, rest: Reals, cells: Integers) -> None:
    """Add r^2 - w, 1 - p and 1 for each child to ``excess``, ``rest`` and ``cells`` by its size; shape (sizes,) each.

    Children without siblings are left out. The letters are those of step 2 of the module docstring.
    """
    offsets, h, v, siblings, p, parent_h, parent_variance, sigma = families
    for family in range(len(offsets) - 1):
        first, last = offsets[family], offsets[family + 1]
        if last - first < 2:
            continue
        for i in range(first, last):
            r, noise = compute_deviation(h[i], v[i], p[i], parent_h[family], siblings[family], parent_variance[family])
            size = compute_cell_size(p[i] * parent_h[family], sigma)
            excess[size] += r * r - noise
            rest[size] += 1.0 - p[i]
            cells[size] += 1


@kernel
def compute_dispersions(families: PredictedFamilies, family: int, d: Reals, d_of_children: Reals) -> None:
    """Write d_i = max(d, r^2 - w) of the children of one family to the beginning of ``d_of_children``.

    ``d`` has the variance of the deviations of children of each size; shape (sizes,).
    """
    h, v, p, first = families.h, families.v, families.p, families.offsets[family]
    total, siblings, variance = families.parent_h[family], families.siblings[family], families.parent_variance[family]
    for i in range(first, families.offsets[family + 1]):
        r, w = compute_deviation(h[i], v[i], p[i], total, siblings, variance)
        d_of_children[i - first] = max(d[compute_cell_size(p[i] * total, families.sigma)], r * r - w)


@kernel
def combine_families(families: PredictedFamilies, d: Reals, z: Reals, v: Reals, sums: Reals, spread: Reals) -> None:
    """Write C and 1/J of every family into ``sums`` and ``spread``, shape (families,); step 3 of the module docstring.

    ``d`` is the d of each size, shape (sizes,); ``z`` and ``v`` are those of the children, shape (children,).
    """
    offsets, p = families.offsets, families.p
    d_of_children = np.empty(np.max(np.diff(offsets)))
    for family in range(len(offsets) - 1):
        first, last = offsets[family], offsets[family + 1]
        compute_dispersions(families, family, d, d_of_children)
        pp, pd, dv, pz, dz = 0.0, 0.0, 0.0, 0.0, 0.0  # sum p^2/a, sum p d/a and so on
        for i in range(first, last):
            d_i = d_of_children[i - first]
            a = v[i] + d_i
            pp += p[i] * p[i] / a
            pd += p[i] * d_i / a
            dv += d_i * v[i] / a
            pz += p[i] * z[i] / a
            dz += d_i * z[i] / a
        precision = pp + pd * pd / dv
        sums[family] = (pz + pd * dz / dv) / precision
        spread[family] = 1.0 / precision


class Division(NamedTuple):
    """What kernels need to divide the trips of families among their kept children.

    Attributes:
        kept, runs: positions of the kept children, and ranges of these by family; see :attr:`Families.kept_children`.
        z, v: estimates and variances of all children, as of :meth:`Families.complete_child_estimates`.
        totals: trips of each family; shape (families,).
    """

    kept: Integers
    runs: Integers
    z: Reals
    v: Reals
    totals: Integers


@kernel
def shrink_children(families: PredictedFamilies, d: Reals, division: Division, estimate: Reals) -> None:
    """Write the estimates of the kept children of every family, given its trips c, into ``estimate``; shape (kept,).

    An estimate is p_i c + (z_i - p_i c) d_i / (d_i + v_i), where the p of the kept children are scaled to sum to 1.
    ``d`` is the d of each size; shape (sizes,).
    """
    kept, runs, z, v, totals = division
    p, d_of_children = families.p, np.empty(np.max(np.diff(families.offsets)))
    for family in range(len(totals)):
        first = families.offsets[family]
        compute_dispersions(families, family, d, d_of_children)
        share_of_kept = 0.0
        for k in range(runs[family], runs[family + 1]):
            share_of_kept += p[kept[k]]
        for k in range(runs[family], runs[family + 1]):
            i = kept[k]
            mean = p[i] * (totals[family] / share_of_kept) if share_of_kept > 0.0 else 0.0
            d_i = d_of_children[i - first]
            estimate[k] = mean + (z[i] - mean) * (d_i / (d_i + v[i]))


@kernel
def estimate_children_by_mixture(
    p: Reals, sigma: float, division: Division, bin_of: Integers, remaining_parts: Reals, max_distance: float, w: Reals
) -> None:
    """Write the estimates of the kept children of every family, given its trips c, into ``w``; shape (kept,).

    They are posterior means, but at most ``max_distance`` standard deviations of z from the linear estimate
    z + (c - sum z) v / sum v. ``p`` are the shares of all children, ``sigma`` is that of the noise of the level, and
    ``bin_of`` and ``remaining_parts`` are :attr:`Deviations.mixture`. Families without trips are left out.
    """
    kept, runs, z, v, totals = division
    for family in range(len(totals)):
        first, size, total = runs[family], runs[family + 1] - runs[family], totals[family]
        if total == 0 or size == 0:
            continue
        share_of_kept, sum_z, sum_v = 0.0, 0.0, 0.0
        for k in range(first, first + size):
            share_of_kept += p[kept[k]]
            sum_z += z[kept[k]]
            sum_v += v[kept[k]]
        for k in range(first, first + size):
            i = kept[k]
            mean = p[i] * (total / share_of_kept) if share_of_kept > 0.0 else 0.0
            deviation = math.sqrt(v[i])
            part = interpolate_remaining_part(
                (z[i] - mean) / deviation, remaining_parts[bin_of[compute_cell_size(mean, sigma)]]
            )
            linear = z[i] + (total - sum_z) * v[i] / sum_v
            estimate = mean + (z[i] - mean) * part
            w[k] = min(max(estimate, linear - max_distance * deviation), linear + max_distance * deviation)


@kernel
def divide_in_lumps(w: Reals, division: Division, least: float, lump: int, trips: Integers) -> None:
    """Write the trips of the kept children of every family into ``trips``, from their estimates ``w``.

    The estimates, shape (kept,), are overwritten with their projection onto w >= 0 with the family's total, which is
    then rounded by :func:`round_in_lumps`. ``trips`` has the shape (children,); those of other children, and of
    families without trips, stay as they are.
    """
    kept, runs, totals = division.kept, division.runs, division.totals
    widest = np.max(np.diff(runs))
    equal_deviations, rounded = np.ones(widest), np.empty(widest, dtype=np.int64)
    for family in range(len(totals)):
        first, size = runs[family], runs[family + 1] - runs[family]
        if totals[family] == 0 or size == 0:
            continue
        of_family = w[first : first + size]
        project_to_total(of_family, equal_deviations[:size], float(totals[family]))
        round_in_lumps(of_family, totals[family], least, lump, rounded[:size])
        for k in range(size):
            trips[kept[first + k]] = rounded[k]


_MIN_DISPERSION = 1e-3
"""Smallest d, in variances of the noise of the level."""

_MAX_DISTANCE, _MAX_DISTANCE_IN_LEAVES = 1.0, 1.5
"""Largest distance of an estimate by the mixture from the linear estimate, in standard deviations of z: at levels above
the leaves, and at the leaves."""

_MIN_SCORE = 2.0
"""Smallest score (:func:`od_core.flows.estimation.families.blend_shares`) of a level that learns from an earlier table.

Less than two standard deviations may be chance."""


@dataclass(frozen=True)
class Rule:
    """How the deviations from the predicted shares are estimated.

    Attributes:
        learns: False for least squares, which predict nothing, at every level.
        u: The smallest number of trips that a small node receives, in standard deviations of the noise of the leaves,
            if deviations follow a mixture. If None, they are normal, and every number of trips may be given.
    """

    learns: bool = True
    u: Fraction | None = None

    @property
    def name(self) -> str:
        """Name of the rule, as certificates state it."""
        if not self.learns:
            return "least_squares"
        return "normal" if self.u is None else "mixture"

    def facts(self) -> dict[str, str | None]:
        """Return the name and u, as certificates state them."""
        return {"rule": self.name, "u": None if self.u is None else str(self.u)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, str | None]) -> Rule:
        """Return the rule that :meth:`facts` states."""
        return cls(facts["rule"] != "least_squares", None if facts["u"] is None else Fraction(facts["u"]))


LEAST_SQUARES = Rule(learns=False)
"""The rule that learns nothing from other nodes."""


def shrink(
    plan: ReleasePlan,
    levels: Sequence[MeasuredLevel],
    rule: Rule = Rule(),
    earlier_flows: Nodes | None = None,
    areas: Sequence[Measurement] = (),
) -> list[Integers]:
    """Return the trips of all nodes of each level, top level first; shape (nodes,) each.

    Trips are integers of at least 0, and the children of a node sum to its trips. Dropped nodes have 0 trips.

    Args:
        rule: The rule of estimation; by default, normal deviations.
        earlier_flows: The leaves of an earlier release with their trips, in tree order; None or empty if there is none.
        areas: Measurements, of which those of area totals are used.
    """
    levels, families = fit_families(plan, levels, select_area_totals(areas))
    if not rule.learns:
        return estimate_trips_by_rule(plan, Prediction.from_shares(levels, families, ()), rule)
    others = None
    if earlier_flows is not None and len(earlier_flows):
        others = sum_trips_by_node(plan, levels, earlier_flows)
    first = predict_by_gravity(levels, families, others)
    trips = estimate_trips_by_rule(plan, first, rule)
    if not plan.tree.same_geography:
        return trips
    shares, leaves = first.shares, trips[-1]
    del first, trips  # a third of the memory
    others = sum_leaves_by_node(levels, take_trips(find_return_positions(plan, levels), leaves))
    del leaves
    shares = blend_shares_by_level(families, shares, others)
    del others
    return estimate_trips_by_rule(plan, Prediction.from_shares(levels, families, shares), rule)


def fit_families(
    plan: ReleasePlan, levels: Sequence[MeasuredLevel], measured_totals: MeasuredTotals
) -> tuple[list[MeasuredLevel], list[Families]]:
    """Return levels whose least-squares fit also uses the area totals, and the families of each, top level first.

    Known totals are those of the plan. The families are of the levels below the root.
    """
    fitted, totals_by_position = include_area_totals(plan, levels, list_side_totals(plan, measured_totals))
    families = []
    for position, of_level in enumerate(iterate_families(plan, fitted)):
        families.append(replace(of_level, of_areas=totals_by_position.get(position)))
    return fitted, families


@dataclass(frozen=True, eq=False)
class Prediction:
    """What the same shares predict for all rules: the real estimates, before integers are made from the top down.

    Attributes:
        families: The families of each level below the root, top level first.
        shares: Share of each child, by level; shape (children,) each. Empty for least squares, which predict nothing.
        deviations: The deviations of each level that learns, by its position among ``families``.
        root: Estimate of the root under the model; shape (1,).
        estimates: Estimates z and variances v of the kept children of each of these levels, combined from the bottom up
            in step 3 of the module docstring; shape (kept,) each.
    """

    families: Sequence[Families]
    shares: Sequence[Reals]
    deviations: Mapping[int, Deviations]
    root: Reals
    estimates: Sequence[tuple[Reals, Reals]]

    @classmethod
    def from_shares(
        cls, levels: Sequence[MeasuredLevel], families: Sequence[Families], shares: Sequence[Reals]
    ) -> Prediction:
        """Return what given shares of the children predict; steps 2 and 3 of the module docstring.

        Args:
            levels: measured levels, top level first.
            families: families of each level below the root.
            shares: share of each child in the trips of its parent, by level; shape (children,) each. Empty for least
                squares.
        """
        deviations = {k: Deviations(families[k], p) for k, p in enumerate(shares) if families[k].learns}
        rules = {
            k + 1: partial(_estimate_parents_from_children, families[k], shares[k], of_level.d)
            for k, of_level in deviations.items()
        }
        z, estimates = np.empty(0), list[tuple[Reals, Reals]]()
        for level, (z, v, _) in zip(levels[::-1], combine_bottom_up(levels, rules), strict=True):
            estimates.insert(0, (z[level.divided], v[level.divided]))
        return cls(families, shares, deviations, root=z, estimates=estimates[1:])  # the root is combined last

    def select_leaf_families(self, chosen: Integers) -> Prediction:
        """Return the prediction with only the ``chosen`` families of leaves, ascending, and the deviations of all."""
        *above, last = self.families
        if len(chosen) == len(last.parents):
            return self
        shares = [*self.shares]
        if shares:  # least squares have none
            shares[-1] = shares[-1][last.list_child_positions(chosen)]
        return replace(self, families=[*above, last.select_leaf_families(chosen)], shares=shares)


def predict_by_gravity(
    levels: Sequence[MeasuredLevel], families: Sequence[Families], others: Sequence[Reals] | None
) -> Prediction:
    """Return the prediction from gravity shares, blended with the trips of another table at the nodes of each level.

    ``others`` has the trips of the nodes of each level in that table; None if there is no other table.
    """
    shares = [compute_gravity_shares(of_level) for of_level in families]
    if others is not None:
        shares = blend_shares_by_level(families, shares, others, _MIN_SCORE)
    return Prediction.from_shares(levels, families, shares)


def blend_shares_by_level(
    families: Sequence[Families], shares: Sequence[Reals], other: Sequence[Reals], least: float = -math.inf
) -> list[Reals]:
    """Return the shares of each level, blended with another table by :func:`blend_shares`; shape (children,) each.

    The weight of the ``shares`` without the table is as many trips as the standard deviation of the leaves' noise.
    ``other`` has the trips of the table at the children of each level; shape (children,) each.
    """
    blended, sigma = [], families[-1].sigma
    for of_level, p, trips in zip(families, shares, other, strict=True):
        blended.append(blend_shares(of_level, p, trips, sigma, least))
    return blended


def estimate_trips_by_rule(plan: ReleasePlan, prediction: Prediction, rule: Rule) -> list[Integers]:
    """Return the trips of all nodes of each level by a rule, top level first, shape (nodes,) each; step 4."""
    trips = [np.maximum(np.floor(prediction.root + 0.5), 0).astype(np.int64)]
    if plan.known_total is not None:
        trips[0][:] = plan.known_total
    for k in range(len(prediction.families)):
        trips.append(_estimate_child_trips(plan, prediction, k, rule, trips[-1]))
    return trips


def _estimate_child_trips(plan: ReleasePlan, prediction: Prediction, k: int, rule: Rule, above: Integers) -> Integers:
    """Return the trips of all children of ``prediction.families[k]``, shape (children,); dropped children have 0.

    ``above`` has the trips of all nodes of the level above; shape (nodes above,).
    """
    families, sigma = prediction.families[k], prediction.families[-1].sigma
    trips = np.zeros(len(families.noisy), dtype=np.int64)
    least = None if rule.u is None or k not in prediction.deviations else float(rule.u) * sigma  # u sigma of a mixture
    estimate_block = _choose_estimator(prediction, k, is_mixture=least is not None)
    kept, _ = families.kept_children
    estimates = np.empty(0 if families.of_areas is None else len(kept))

    def process_block(block: Families, places: Places) -> None:
        z, v = block.complete_child_estimates(*(values[places.kept] for values in prediction.estimates[k]))
        division = Division(*block.kept_children, z, v, above[block.parents])
        estimate = estimate_block(block, places, division)
        if families.of_areas is not None:  # blocks have areas in common, so all are rounded together, below
            estimates[places.kept] = estimate
        elif least is not None:
            divide_in_lumps(estimate, division, least, max(1, math.floor(least)), trips[places.children])
        else:
            rounded = np.floor(estimate + 0.5).astype(np.int64)
            trips[places.children][division.kept] = plan.project(rounded, division.totals, division.runs)

    families.process_blocks(process_block)
    if families.of_areas is not None:
        small = float(SMALL_FLOW_DEVIATIONS if rule.u is None else rule.u) * sigma
        if plan.tree.possible is not None and rule.u is None and np.median(families.noisy) >= small:
            small = 0.0  # most of the pairs that can have trips have some, so small flows are no noise
        totals = above[families.parents]
        trips[kept] = _fit_to_area_totals(families, families.of_areas, estimates, totals, small, even=least is not None)
    return trips


def _fit_to_area_totals(
    families: Families, of_areas: EstimatedTotals, estimates: Reals, totals: Integers, least: float, *, even: bool
) -> Integers:
    """Return whole trips of the kept children of a level that agree with the totals of areas; shape (kept,).

    ``estimates`` are those of the kept children, which are overwritten, and ``totals`` the trips of each family. For
    ``least`` and ``even``, see :func:`od_core.flows.projection.onto_area_totals.project_to_area_totals`.
    """
    kept, runs = families.kept_children
    area_by_side = {side: area[kept] for side, area in zip(families.sides, families.area, strict=True)}
    areas = of_areas.number_areas(area_by_side)
    trips = project_to_area_totals(estimates, families.noise, runs, totals, areas, of_areas, least=least, even=even)
    hold_exact_totals(trips, estimates, runs, area_by_side, of_areas)
    return trips


def _choose_estimator(
    prediction: Prediction, k: int, *, is_mixture: bool
) -> Callable[[Families, Places, Division], Reals]:
    """Return the function that estimates the kept children of blocks of ``prediction.families[k]``, shape (kept,).

    If the level learns, its deviations are a mixture or, if ``is_mixture`` is false, normal. Otherwise, the function
    estimates by least squares.
    """
    if k not in prediction.deviations:
        return _estimate_by_least_squares
    shares, deviations = prediction.shares[k], prediction.deviations[k]
    mixture = deviations.mixture if is_mixture else None
    max_distance = _MAX_DISTANCE_IN_LEAVES if k == len(prediction.families) - 1 else _MAX_DISTANCE

    def estimate_block(block: Families, places: Places, division: Division) -> Reals:
        p, estimate = shares[places.children], np.empty(len(division.kept))
        if mixture is None:
            shrink_children(block.with_shares(p), deviations.d, division, estimate)
        else:
            estimate_children_by_mixture(p, block.sigma, division, *mixture, max_distance, estimate)
        return estimate

    return estimate_block


def _estimate_by_least_squares(_block: Families, _places: Places, division: Division) -> Reals:
    """Return z + (c - sum z) v / sum v of each kept child, where c are the family's trips; shape (kept,).

    The sums are over the kept children of the family.
    """
    z, v = division.z[division.kept], division.v[division.kept]
    lacking = (division.totals - sum_runs(z, division.runs)) / sum_runs(v, division.runs)
    return z + np.repeat(lacking, np.diff(division.runs)) * v


def _estimate_parents_from_children(families: Families, p: Reals, d: Reals, z: Reals, v: Reals) -> tuple[Reals, Reals]:
    """Return C and 1/J of step 3, the estimate of each parent from its children and its variance; (families,) each.

    ``d`` is that of each size; the shares ``p`` and the estimates ``z`` with the variances ``v`` are of all children.
    """

    def combine_block(block: Families, places: Places) -> tuple[Reals, Reals]:
        sums, spread = np.empty(len(block.parents)), np.empty(len(block.parents))
        z_of_block, v_of_block = z[places.children], np.ascontiguousarray(v[places.children])
        combine_families(block.with_shares(p[places.children]), d, z_of_block, v_of_block, sums, spread)
        return sums, spread

    of_blocks = list(families.map_blocks(combine_block))
    return np.concatenate([sums for sums, _ in of_blocks]), np.concatenate([spread for _, spread in of_blocks])
