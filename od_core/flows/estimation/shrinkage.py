"""Estimate a measured flow tree by hierarchical empirical Bayes, which learns from all nodes to estimate each one.

Least squares (:mod:`od_core.flows.estimation.least_squares`) estimate a node from the measurements on its path alone.
This module also uses how the trips of *other* nodes divide among their children. It depends on public values alone and
costs no privacy. It needs more assumptions than least squares, so the published intervals do not use it.

Let c be the trips of a node and n_i those of its child i. The model is

    n_i = p_i c + e_i,

where p_i is the predicted share of the child (:mod:`od_core.flows.estimation.families`) and e_i has the mean 0 and the
variance d_i. Let z_i be the estimate of n_i from itself and the levels below it, with the variance v_i, and let h_i
be the least-squares estimate from all levels. The steps are:

1.  Compute the shares p.
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
    shares of both rounds are first blended with it.

Step 4 has another form, for tables in which most pairs of zones have no trips. The deviations e then have the
distribution of :mod:`od_core.flows.estimation.deviation_mixture`, whose posterior mean moves at most 1 standard
deviation of z_i, or 1.5 in the leaves, from the linear estimate z_i + (c - sum z) v_i / sum v. The results are rounded
in lumps (:mod:`od_core.flows.estimation.lumps`), so that small fractions become a few flows that probably have trips.

The result is the same on every machine and for any number of threads: real numbers come from single operations of IEEE
754, one after the other, in compiled loops that neither fuse nor reorder them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from od_core.flows.estimation.deviation_mixture import deviation_mixture, kept_part
from od_core.flows.estimation.families import (
    SIZES,
    Families,
    blended_shares,
    deviation,
    families_of,
    gravity_shares,
    pooled,
    size_of,
    trips_of_nodes,
)
from od_core.flows.estimation.least_squares import FittedLevel, combined
from od_core.flows.estimation.lumps import project_to_total, round_in_lumps
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import Nodes
from od_core.geography.flow_tree_kernels import run_sums
from od_core.kernels import kernel

_Values = NDArray[np.int64]
_Reals = NDArray[np.float64]

_LEAST_DISPERSION = 1e-3
"""Smallest d, in variances of the noise of the level."""

_FURTHEST = (1.0, 1.5)
"""Largest distance of an estimate by the mixture from the linear estimate, in standard deviations: at inner levels, and
in the leaves."""


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
        return "least_squares" if not self.learns else "normal" if self.u is None else "mixture"


def shrink(
    plan: ReleasePlan, levels: Sequence[FittedLevel], rule: Rule = Rule(), earlier: Nodes | None = None
) -> list[_Values]:
    """Return the trips of all nodes of each level, top level first; shape (nodes,) each.

    Trips are integers of at least 0, and the children of a node sum to its trips. Dropped nodes have 0 trips.

    Args:
        levels: All levels with their least-squares estimates, top level first.
        rule: How deviations are estimated.
        earlier: Leaves of an earlier release with their trips, in tree order; None or empty if there is none.
    """
    families = list(families_of(plan, levels))
    shares = [gravity_shares(each) for each in families]
    if earlier is not None and len(earlier):
        shares = blended(families, shares, trips_of_nodes(plan, levels, earlier))
    trips = _estimated(plan, levels, families, shares, rule)
    if not rule.learns or plan.tree.origin.digest != plan.tree.destination.digest:
        return trips
    leaves = levels[-1].nodes
    table = Nodes(plan.tree.depth, leaves.origin, leaves.destination, trips[-1])
    shares = blended(families, shares, trips_of_nodes(plan, levels, table, opposite=True))
    return _estimated(plan, levels, families, shares, rule)


def blended(families: Sequence[Families], shares: Sequence[_Reals], other: Sequence[_Reals]) -> list[_Reals]:
    """Return the shares of each level, blended with the trips of another table at its nodes."""
    return [blended_shares(*each, weight=families[-1].sigma) for each in zip(families, shares, other, strict=True)]


def _estimated(
    plan: ReleasePlan,
    levels: Sequence[FittedLevel],
    families: Sequence[Families],
    shares: Sequence[_Reals],
    rule: Rule,
) -> list[_Values]:
    """Return the trips of all nodes of each level, given the shares of the children of each family; steps 2 to 4."""
    learns = [rule.learns and each.learns for each in families]
    none = np.empty(0)
    dispersions = [
        _dispersion(each, p) if learned else none for each, p, learned in zip(families, shares, learns, strict=True)
    ]
    z, v = _rise(levels, families, shares, dispersions, learns)
    trips = [np.maximum(np.floor(z[0] + 0.5), 0).astype(np.int64)]
    for each, learned, p, d, own_z, own_v in zip(families, learns, shares, dispersions, z[1:], v[1:], strict=True):
        totals, runs = trips[-1][each.parents], np.searchsorted(each.kept, each.offsets)
        if learned and rule.u is not None:
            is_leaf, least = each is families[-1], float(rule.u) * families[-1].sigma
            trips.append(_by_mixture(each, p, own_z, own_v, totals, runs, _FURTHEST[is_leaf], least))
            continue
        if learned:
            estimate = np.empty(len(each.kept))
            _descend(*each.deviations(p), d, each.kept, runs, own_z, own_v, totals, estimate)
        else:
            estimate = _shared_out(own_z[each.kept], own_v[each.kept], totals, runs)
        own = np.zeros(len(each.h), dtype=np.int64)
        own[each.kept] = plan.mechanism.project(np.floor(estimate + 0.5).astype(np.int64), totals, runs)
        trips.append(own)
    return trips


def _by_mixture(
    families: Families,
    p: _Reals,
    z: _Reals,
    v: _Reals,
    totals: _Values,
    runs: _Values,
    furthest: float,
    least: float,
) -> _Values:
    """Return the trips of the children of each family by a mixture of deviations, in lumps; shape (children,).

    Args:
        p, z, v: The share, estimate and variance of each child; shape (children,).
        totals: Trips of the parents; shape (families,).
        runs: The kept children of family ``f`` are those at ``kept[runs[f]:runs[f + 1]]``; shape (families + 1,).
        furthest: Largest distance of an estimate from the linear estimate, in standard deviations.
        least: Smallest number of trips that a small node receives.
    """
    mixture, trips = deviation_mixture(families, p), np.zeros(len(p), dtype=np.int64)
    given = p, families.sigma, families.kept, runs, z, v, totals, mixture.bin_of, mixture.kept
    _descend_by_mixture(*given, furthest, least, max(1, math.floor(least)), trips)
    return trips


def _dispersion(families: Families, p: _Reals) -> _Reals:
    """Return d, the variance of the deviations from the shares p; shape (sizes,)."""
    excess, rest, cells = np.zeros(SIZES), np.zeros(SIZES), np.zeros(SIZES, dtype=np.int64)
    _deviate(*families.deviations(p), excess, rest, cells)
    excess, rest = pooled(cells, excess, rest)
    d = np.divide(excess, rest, out=np.zeros_like(rest), where=rest > 0)
    return np.maximum(d, _LEAST_DISPERSION * families.sigma**2)


def _shared_out(z: _Reals, v: _Reals, totals: _Values, runs: _Values) -> _Reals:
    """Return z plus a part of what each family lacks to its total, in proportion to v; shape as z."""
    lacking = (totals - run_sums(z, runs)) / run_sums(v, runs)
    return z + np.repeat(lacking, np.diff(runs)) * v


def _rise(
    levels: Sequence[FittedLevel],
    families: Sequence[Families],
    shares: Sequence[_Reals],
    dispersions: Sequence[_Reals],
    learns: Sequence[bool],
) -> tuple[list[_Reals], list[_Reals]]:
    """Return z and v of all nodes of each level under the model, top level first; step 3."""
    z, v = [levels[-1].noisy], [np.full(len(levels[-1].nodes), levels[-1].noise)]
    below = zip(levels[:-1], families, shares, dispersions, learns, strict=True)
    for level, each, p, d, learned in reversed(list(below)):
        if learned:
            sums, spread = np.empty(len(each.parents)), np.empty(len(each.parents))
            _combine(*each.deviations(p), d, z[0], v[0], sums, spread)
        else:
            sums, spread = run_sums(z[0], each.offsets), run_sums(v[0], each.offsets)
        own_z, own_v = combined(level, sums, spread)
        z.insert(0, own_z)
        v.insert(0, own_v)
    return z, v


@kernel
def _deviate(  # type: ignore[no-untyped-def]  # compiled
    offsets, h, v, siblings, p, parent_h, parent_variance, sigma, excess, rest, cells
):
    """Add r^2 - w and 1 - p of the children of every family, and their number, by size."""
    for family in range(len(offsets) - 1):
        first, last = offsets[family], offsets[family + 1]
        if last - first < 2:
            continue
        for i in range(first, last):
            r, noise = deviation(h[i], v[i], p[i], parent_h[family], siblings[family], parent_variance[family])
            size = size_of(p[i] * parent_h[family], sigma)
            excess[size] += r * r - noise
            rest[size] += 1.0 - p[i]
            cells[size] += 1


@kernel
def _dispersions(  # type: ignore[no-untyped-def]  # compiled
    first, last, h, v, siblings, p, parent_h, parent_variance, sigma, d, own
):
    """Write d_i of the children of one family into ``own[: last - first]``."""
    for i in range(first, last):
        r, noise = deviation(h[i], v[i], p[i], parent_h, siblings, parent_variance)
        own[i - first] = max(d[size_of(p[i] * parent_h, sigma)], r * r - noise)


@kernel
def _combine(  # type: ignore[no-untyped-def]  # compiled
    offsets, h, v, siblings, p, parent_h, parent_variance, sigma, d, own_z, own_v, sums, spread
):
    """Write C and 1/J of every family into ``sums`` and ``spread``."""
    own_d = np.empty(np.max(np.diff(offsets)))
    for family in range(len(offsets) - 1):
        first, last = offsets[family], offsets[family + 1]
        total, spread_of_total = parent_h[family], parent_variance[family]
        _dispersions(first, last, h, v, siblings[family], p, total, spread_of_total, sigma, d, own_d)
        pp, pd, dv, pz, dz = 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(first, last):
            own = own_d[i - first]
            a = own_v[i] + own
            pp += p[i] * p[i] / a
            pd += p[i] * own / a
            dv += own * own_v[i] / a
            pz += p[i] * own_z[i] / a
            dz += own * own_z[i] / a
        precision = pp + pd * pd / dv
        sums[family] = (pz + pd * dz / dv) / precision
        spread[family] = 1.0 / precision


@kernel
def _descend(  # type: ignore[no-untyped-def]  # compiled
    offsets, h, v, siblings, p, parent_h, parent_variance, sigma, d, kept, runs, own_z, own_v, totals, estimate
):
    """Write the estimates of the kept children of every family, given its trips, into ``estimate``."""
    own_d = np.empty(np.max(np.diff(offsets)))
    for family in range(len(offsets) - 1):
        first, last = offsets[family], offsets[family + 1]
        total, spread_of_total = parent_h[family], parent_variance[family]
        _dispersions(first, last, h, v, siblings[family], p, total, spread_of_total, sigma, d, own_d)
        whole = 0.0
        for k in range(runs[family], runs[family + 1]):
            whole += p[kept[k]]
        for k in range(runs[family], runs[family + 1]):
            i = kept[k]
            mean = p[i] * (totals[family] / whole) if whole > 0.0 else 0.0
            own = own_d[i - first]
            estimate[k] = mean + (own_z[i] - mean) * (own / (own + own_v[i]))


@kernel
def _descend_by_mixture(  # type: ignore[no-untyped-def]  # compiled
    p, sigma, kept, runs, own_z, own_v, totals, bin_of, kept_parts, furthest, least, lump, trips
):
    """Write the trips of the kept children of every family, given its trips, into ``trips``.

    Estimates are at most ``furthest`` standard deviations from the linear estimate z + (c - sum z) v / sum v.
    """
    widest = np.max(np.diff(runs))
    w, even, own = np.empty(widest), np.ones(widest), np.empty(widest, dtype=np.int64)
    for family in range(len(totals)):
        first, size, total = runs[family], runs[family + 1] - runs[family], totals[family]
        if total == 0 or size == 0:
            continue
        whole, z, v = 0.0, 0.0, 0.0
        for k in range(first, first + size):
            whole += p[kept[k]]
            z += own_z[kept[k]]
            v += own_v[kept[k]]
        for k in range(size):
            i = kept[first + k]
            mean = p[i] * (total / whole) if whole > 0.0 else 0.0
            spread = math.sqrt(own_v[i])
            part = kept_part((own_z[i] - mean) / spread, kept_parts[bin_of[size_of(mean, sigma)]])
            linear = own_z[i] + (total - z) * own_v[i] / v
            estimate = mean + (own_z[i] - mean) * part
            w[k] = min(max(estimate, linear - furthest * spread), linear + furthest * spread)
        project_to_total(w[:size], even[:size], float(total))
        round_in_lumps(w[:size], total, least, lump, own[:size])
        for k in range(size):
            trips[kept[first + k]] = own[k]
