"""Compile the loops over families that :mod:`od_core.flows.estimation.shrinkage` runs; its steps have the symbols."""

from __future__ import annotations

import math

import numpy as np

from od_core.flows.estimation.deviation_mixture import kept_part
from od_core.flows.estimation.families import deviation, size_of
from od_core.flows.estimation.lumps import project_to_total, round_in_lumps
from od_core.kernels import kernel


@kernel
def deviate(  # type: ignore[no-untyped-def]  # compiled
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
def dispersions(  # type: ignore[no-untyped-def]  # compiled
    first, last, h, v, siblings, p, parent_h, parent_variance, sigma, d, own
):
    """Write d_i of the children of one family into ``own[: last - first]``."""
    for i in range(first, last):
        r, noise = deviation(h[i], v[i], p[i], parent_h, siblings, parent_variance)
        own[i - first] = max(d[size_of(p[i] * parent_h, sigma)], r * r - noise)


@kernel
def combine(  # type: ignore[no-untyped-def]  # compiled
    offsets, h, v, siblings, p, parent_h, parent_variance, sigma, d, own_z, own_v, sums, spread
):
    """Write C and 1/J of every family into ``sums`` and ``spread``."""
    own_d = np.empty(np.max(np.diff(offsets)))
    for family in range(len(offsets) - 1):
        first, last = offsets[family], offsets[family + 1]
        total, spread_of_total = parent_h[family], parent_variance[family]
        dispersions(first, last, h, v, siblings[family], p, total, spread_of_total, sigma, d, own_d)
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
def descend(  # type: ignore[no-untyped-def]  # compiled
    offsets, h, v, siblings, p, parent_h, parent_variance, sigma, d, kept, runs, own_z, own_v, totals, estimate
):
    """Write the estimates of the kept children of every family, given its trips, into ``estimate``."""
    own_d = np.empty(np.max(np.diff(offsets)))
    for family in range(len(offsets) - 1):
        first, last = offsets[family], offsets[family + 1]
        total, spread_of_total = parent_h[family], parent_variance[family]
        dispersions(first, last, h, v, siblings[family], p, total, spread_of_total, sigma, d, own_d)
        whole = 0.0
        for k in range(runs[family], runs[family + 1]):
            whole += p[kept[k]]
        for k in range(runs[family], runs[family + 1]):
            i = kept[k]
            mean = p[i] * (totals[family] / whole) if whole > 0.0 else 0.0
            own = own_d[i - first]
            estimate[k] = mean + (own_z[i] - mean) * (own / (own + own_v[i]))


@kernel
def descend_by_mixture(  # type: ignore[no-untyped-def]  # compiled
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
