"""Choose between rules of estimation by held-out noise, which shows which of them has less error on a table.

Estimates look good to themselves. An independent measurement would tell, but each costs budget. Gaussian noise can be
divided instead: if y is a measurement and W is new public noise of the same variance, then y + W and y - W are two
independent measurements of twice the variance, whose mean is y. A table is estimated from the first and compared with
the second, and the other way round, for each rule. The choice is a function of public values, so it is free.

The total absolute error of a table s is the sum of E|s - n| over the leaves, where n is the true number of trips.
Leaves are grouped by their sizes in both tables that are compared. The second measurement is independent of this
grouping given n. In each group, it gives the distribution of n by expectation-maximisation
(:mod:`od_core.flows.estimation.count_distribution`), and so E|s - n| and the probability of n = 0.

The rule with the least estimated error is chosen, among those with at most 1.1 times the false discoveries of least
squares. It must save at least 3 % of the error of least squares, or these are chosen.

The total error does not show whether a few large cells become worse, as where a prediction fails for them. So a rule is
also compared with least squares where it departs from them most: in the 100 cells of each level with the largest
differences. If d = r - b is the difference of the two tables in a cell, and y the held-out measurement with the
variance v, then

    (r - y)^2 - (b - y)^2

has the expectation (r - n)^2 - (b - n)^2, the increase of the squared error, and the variance 4 d^2 v. A rule is not
chosen if these increases add up to more than two standard deviations at any level.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from od_core.flows.estimation.count_distribution import GridNoise, maximised
from od_core.flows.estimation.least_squares import FittedLevel, MeasuredLevel, fit
from od_core.flows.estimation.shrinkage import Rule, shrink
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import Nodes
from od_core.kernels import kernel

_Values = NDArray[np.int64]
_Reals = NDArray[np.float64]

LEAST_SQUARES = Rule(learns=False)
RULES = (Rule(), *(Rule(u=Fraction(u)) for u in ("1/4", "1/2", "3/4", "1", "3/2", "2", "3")))
"""Rules that are compared with least squares."""

_MOST_FALSE = 1.1
"""Largest share of false discoveries, relative to that of least squares."""

_LEAST_GAIN = 0.03
"""Smallest part of the estimated error of least squares that a rule must save. Less may be chance."""

_LARGEST = 100
"""Number of cells of each level in which rules are compared with least squares one by one."""

_MOST_HARM = 2.0
"""Largest increase of the squared error of these cells, in standard deviations of its estimate."""

_EDGES = (0.0, 0.25, 1.0, 4.0)
"""Sizes by which leaves are grouped, in standard deviations of the held-out noise. Leaves of 0 are a group."""

_LEAST_CELLS, _ITERATIONS = 300, 150
_SEED = 20010101
"""Seed of the public noise. It decides no released number, only between rules that are close."""


def chosen_rule(plan: ReleasePlan, levels: Sequence[FittedLevel], earlier: Nodes | None = None) -> Rule:
    """Return the rule with the least held-out error: :data:`LEAST_SQUARES` or one of :data:`RULES`.

    Args:
        levels: All levels, top level first.
        earlier: Leaves of an earlier release that all rules but least squares learn from; None if there is none.
    """
    errors, false = np.zeros((2, len(RULES), 2))
    increase = np.zeros((2, len(RULES), len(levels)))
    for to_fit, held_out in _halves(levels):
        fitted = fit(to_fit)
        base = shrink(plan, fitted, LEAST_SQUARES)
        noise, y = GridNoise.of(Fraction(held_out[-1].noise)), held_out[-1].noisy
        for number, rule in enumerate(RULES):
            tables = shrink(plan, fitted, rule, earlier)
            found = _losses(noise, y, (base[-1], tables[-1]))
            errors[number] += found[0]
            false[number] += found[1]
            increase[:, number] += np.transpose(list(map(_increase, held_out, base, tables)))
    harmful = (increase[0] > _MOST_HARM * np.sqrt(increase[1])).any(axis=1)
    refused = harmful | (false[:, 1] > _MOST_FALSE * false[:, 0])
    saved = np.where(refused, 0.0, errors[:, 0] - errors[:, 1])
    best = int(np.argmax(saved))
    return RULES[best] if saved[best] > _LEAST_GAIN * errors[best, 0] else LEAST_SQUARES


def _halves(levels: Sequence[FittedLevel]) -> Iterator[tuple[list[MeasuredLevel], list[MeasuredLevel]]]:
    """Yield the levels measured with y + W, and those measured with y - W; then the same with W exchanged."""
    words = np.random.Philox(_SEED)
    public = []
    for level in levels:
        exact = level.noise == 0 or math.isinf(level.noise)
        size = 0 if exact else len(level.noisy)
        w = np.rint(_normal()[words.random_raw(size) >> np.uint64(48)] * math.sqrt(level.noise if size else 0.0))
        public.append(np.zeros(len(level.noisy)) if exact else w)
    for sign in (1, -1):
        halves = [
            MeasuredLevel(level.nodes, level.offsets, level.divided, level.noisy + sign * w, 2 * level.noise)
            for level, w in zip(levels, public, strict=True)
        ]
        others = [replace(a, noisy=b.noisy - sign * w) for a, b, w in zip(halves, levels, public, strict=True)]
        yield halves, others


def _increase(held_out: MeasuredLevel, base: _Values, table: _Values) -> tuple[float, float]:
    """Return the estimated increase of the squared error from one table of a level to another, and its variance.

    Only the cells with the largest differences count, and those with equal ones; see the module docstring. All terms
    are whole numbers, so the sums are exact, and the same on every machine.
    """
    size = np.abs(table - base)
    least = np.partition(size, -_LARGEST)[-_LARGEST] if len(size) > _LARGEST else 0
    most = np.flatnonzero(size >= max(1, least))
    if not len(most):
        return 0.0, 0.0
    difference = (table - base)[most].astype(np.float64)
    increase = difference @ (table[most] + base[most] - 2 * held_out.noisy[most])
    return float(increase), float(4 * held_out.noise * (difference @ difference))


@cache
def _normal() -> _Reals:
    """Return 65,536 quantiles of the normal distribution, rounded so that they are the same on every machine."""
    law = NormalDist()
    return np.array([round(law.inv_cdf((k + 0.5) / 65536) * 1024) / 1024 for k in range(65536)])


def _losses(noise: GridNoise, y: _Reals, tables: tuple[_Values, _Values]) -> tuple[list[float], list[float]]:
    """Return the estimated total error of each of two tables, and its estimated share of false discoveries."""
    code = np.zeros(len(y), dtype=np.int64)
    for table in tables:
        code = code * (len(_EDGES) + 1) + np.searchsorted(_EDGES, table / noise.sigma)
    cells = np.bincount(code, minlength=(len(_EDGES) + 1) ** 2)
    _, group_of = np.unique((np.cumsum(cells) - cells) // _LEAST_CELLS, return_inverse=True)
    points = np.maximum(np.floor((y + noise.step // 2) / noise.step).astype(np.int64) - noise.low, 0)
    counts = np.zeros((int(group_of[-1]) + 1, noise.points), dtype=np.int64)
    known = points < noise.points
    np.add.at(counts, (group_of[code[known]], points[known]), 1)
    by_x = np.ascontiguousarray(noise.likelihood.T)
    start = maximised(noise, counts.sum(axis=0), None, _ITERATIONS)
    mass = len(noise.likelihood)
    loss, zero = np.zeros((len(counts), noise.points, mass)), np.zeros((len(counts), noise.points))
    for number, own in enumerate(counts):
        _expect(by_x, maximised(noise, own, start, _ITERATIONS), own, loss[number], zero[number])
    found = [_sum(table, y, points, group_of[code], noise.step, loss, zero) for table in tables]
    return [one[0] for one in found], [one[1] for one in found]


@kernel
def _expect(by_x, prior, counts, loss, zero):  # type: ignore[no-untyped-def]  # compiled
    """Write E|s - n| for every x and s, in steps, into ``loss``, and the probability of n = 0 into ``zero``."""
    points, mass = by_x.shape
    weight = np.empty(mass)
    for x in range(points):
        whole, mean = 0.0, 0.0
        for n in range(mass):
            weight[n] = prior[n] * by_x[x, n]
            whole += weight[n]
            mean += n * weight[n]
        if counts[x] == 0 or not whole > 0.0:
            continue
        zero[x] = weight[0] / whole
        below, error = 0.0, mean
        for s in range(mass):  # from E|s - n| to E|s + 1 - n|: + 1 for each n of at most s, - 1 for the others
            loss[x, s] = error / whole
            below += weight[s]
            error += 2.0 * below - whole


@kernel
def _sum(table, y, points, group, step, loss, zero):  # type: ignore[no-untyped-def]  # compiled
    """Return the expected total error of a table, and its expected share of false discoveries."""
    mass = loss.shape[2]
    error, false, positive = 0.0, 0.0, 0
    for i in range(len(table)):
        if table[i] > 0:
            positive += 1
        if points[i] >= loss.shape[1]:
            error += abs(table[i] - y[i])
            continue
        place = table[i] / float(step)
        low = min(int(place), mass - 2)
        near, far = loss[group[i], points[i], low], loss[group[i], points[i], low + 1]
        error += (near + (place - low) * (far - near)) * step
        if table[i] > 0:
            false += zero[group[i], points[i]]
    return error, false / max(positive, 1)
