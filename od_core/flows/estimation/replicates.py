"""Simulate the error of the least-squares estimates of a release with public noise.

The estimate h of a table (:mod:`od_core.flows.estimation.least_squares`) is linear in the noisy values. So its error is
the least-squares fit of their noise. Let e_r be this fit of fresh noise of the same variances, number r. A *replicate*
is the table h - e_r (``docs/explanation/replicates.md``). Its spread around h is that of h around the truth, as with
the replicate weights of survey statistics [wolter2007variance, section 1.3].

If nodes were dropped, the noise of the others was selected, which biases h. Then h is the noisy value of each leaf, and
e_r is the noise of the leaves alone: a noisy value was drawn after the nodes above it had been selected. The trips of
dropped nodes are in no replicate.

The noise is public, and normal or, of measurements with Laplace noise, of the Laplace distribution. It is a function of
the noisy values, of r, and of the node. Each number is one of 65,536 quantiles, chosen by 16 bits of the generator
Philox [salmon2011parallel], whose numbers can be computed in any order, and scaled so that the variance is exact. All
arithmetic is of single operations of IEEE 754, in tree order.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from od_core.errors import OdError
from od_core.flows.arrays import Reals
from od_core.flows.estimation.fitted_tree import FittedTree
from od_core.flows.estimation.held_out import compute_normal_quantiles
from od_core.flows.estimation.intervals import Intervals, compute_dropped_bounds
from od_core.flows.estimation.least_squares import FamilyFit
from od_core.geography.flow_tree import sum_runs
from od_core.geography.geography import Numbers
from od_core.parallel import map_in_order, read_memory_limit

_NODES_PER_STEP = 16
"""Number of nodes whose noise comes from one step of the counter of Philox: four words of 64 bits."""

_BLOCK = 1 << 21
"""Approximate number of values that one thread makes at a time."""


class Replicates:
    """The replicates of a release.

    Attributes:
        ends: Origins and destinations of the measured leaves, the rows of all replicates, in tree order.
        estimate: The estimate h of each leaf, around which the replicates spread; shape (leaves,).
    """

    def __init__(self, fitted: FittedTree, *, has_laplace_noise: bool = False) -> None:
        self._fitted, self._levels, self._leaf = fitted, fitted.levels, fitted.levels[-1]
        self._are_fitted = fitted.nothing_dropped and len(fitted.levels) > 1
        self.ends: tuple[Numbers, Numbers] = (self._leaf.nodes.origin, self._leaf.nodes.destination)
        self.estimate: Reals = self._leaf.estimate if self._are_fitted else self._leaf.noisy
        self._system = fitted.totals_system
        self._families = FamilyFit(fitted.levels) if self._are_fitted else None
        if self._system is not None:
            m = self._system.solution
            correction = _Fit(self._system.compute_family_shortfalls(m), self._system.split_by_side(m))
            self.estimate = self.estimate + self._compute_leaf_corrections(correction, 0, len(self.estimate))
        digest = hashlib.sha256(b"od_core replicates")
        for level in fitted.levels:
            digest.update(level.noisy.astype("<f8").tobytes())
        for noisy, _ in fitted.area_totals.values():
            digest.update(noisy.astype("<f8").tobytes())
        self._key = np.frombuffer(digest.digest()[:16], dtype="<u8").astype(np.uint64)  # 128 bits, as Philox takes
        quantiles = compute_laplace_quantiles() if has_laplace_noise else compute_normal_quantiles()
        # They are scaled to the variance 1. The sum of their squares is an exact real number, in any order.
        self._quantiles = quantiles / math.sqrt(float(np.square(quantiles).sum()) / len(quantiles))

    @cached_property
    def unseen(self) -> int:
        """Upper bound of the trips that no replicate contains, because their nodes were dropped; 0 if none was."""
        (whole,) = Intervals([self._fitted]).estimate_begun_trips(0)
        return int(compute_dropped_bounds(whole)[0])

    def tables(self, number: int) -> Iterator[Reals]:
        """Return an iterator of the first ``number`` replicates; shape (leaves,) each."""
        return map_in_order(
            lambda r: self._compute_leaves(self._fit_noise(r), r, 0, len(self._leaf.nodes)), range(number)
        )

    def blocks(self, number: int) -> Iterator[tuple[int, Reals]]:
        """Return an iterator of consecutive leaves in the first ``number`` replicates, a block of leaves at a time.

        A block is the position of its first leaf, and an array (replicates, leaves). Of each replicate, a value for
        each parent of leaves is in memory, too.

        Raises:
            OdError: If the values of the parents do not fit into memory.
        """
        needed = 8 * number * len(self._leaf.siblings) if self._are_fitted else 0
        if needed > read_memory_limit():
            raise OdError(
                "OD-LEVEL-MEMORY",
                f"{number:,} replicates need about {needed / 1e9:,.0f} GB of memory; this process may use"
                f" {read_memory_limit() / 1e9:,.0f} GB",
                next_step="ask for fewer replicates, or use a larger machine",
            )
        fits = list(map_in_order(self._fit_noise, range(number)))

        def compute_block(ends: tuple[int, int]) -> tuple[int, Reals]:
            first, last = ends
            return first, np.array([self._compute_leaves(fit, r, first, last) for r, fit in enumerate(fits)])

        return map_in_order(compute_block, self._iterate_runs(max(1, _BLOCK // number)))

    def _iterate_runs(self, most: int) -> Iterator[tuple[int, int]]:
        """Yield the first position and the end of runs of about ``most`` leaves.

        If the leaves are fitted, siblings are in the same run, because they share a correction.
        """
        leaves, starts = len(self._leaf.nodes), np.arange(0, len(self._leaf.nodes), most)
        if self._are_fitted:
            starts = np.unique(self._leaf.offsets[np.searchsorted(self._leaf.offsets, starts, side="right") - 1])
        return pairwise([*starts.tolist(), leaves])

    def _draw_level_noise(self, r: int, position: int, first: int, last: int) -> Reals:
        """Return the noise of replicate r of the nodes ``first:last`` of a level, by its position; shape (nodes,)."""
        return self._draw_noise(r, position, self._levels[position].noise, first, last)

    def _draw_noise(self, r: int, vector: int, noise: float | Reals, first: int, last: int) -> Reals:
        """Return the values ``first:last`` of a vector of noise of replicate r; shape (values,).

        ``vector`` is the number of the vector: the position of a level or, after those, of a side with area totals.
        ``noise`` is the variance of all values of the vector, or that of each of the values asked for. They are 0 if
        the variance is 0, or infinite, as nothing was measured.
        """
        drawn = np.zeros(last - first)
        if len(drawn) and np.any(noise) and np.all(np.isfinite(noise)):
            first_step, end_step = first // _NODES_PER_STEP, math.ceil(last / _NODES_PER_STEP)
            counter = np.array([first_step, vector, r, 0], dtype=np.uint64)
            words = np.random.Philox(key=self._key, counter=counter).random_raw(4 * (end_step - first_step))
            bits = words.astype("<u8", copy=False).view("<u2")  # 16 bits for each value, from the first step on
            skipped = first - _NODES_PER_STEP * first_step
            np.multiply(self._quantiles.take(bits[skipped : skipped + len(drawn)]), np.sqrt(noise), out=drawn)
        return drawn

    def _fit_noise(self, r: int) -> _Fit:
        """Return the fit of the noise of replicate r; an empty one if the leaves are not fitted."""
        if self._families is None:
            return _Fit(np.empty(0))
        levels, leaves = self._levels, self._draw_level_noise(r, len(self._levels) - 1, 0, len(self._leaf.nodes))
        sums = sum_runs(leaves, self._leaf.offsets)
        h = self._families.estimate_families(
            sums, lambda position: self._draw_level_noise(r, position, 0, len(levels[position].nodes))
        )
        if self._system is None:
            return _Fit(h - sums)
        totals = {
            side: self._draw_noise(r, len(levels) + side, noise, 0, len(noisy))
            for side, (noisy, noise) in self._fitted.area_totals.items()
        }
        m = self._system.compute_multipliers(leaves, h, totals)
        return _Fit(h - sums + self._system.compute_family_shortfalls(m), self._system.split_by_side(m))

    def _compute_leaf_corrections(self, fit: _Fit, first: int, last: int) -> Reals:
        """Return the numbers that a fit adds to the values of the leaves ``first:last``; shape (leaves,)."""
        begin, end = np.searchsorted(self._leaf.offsets, [first, last])  # runs have whole families
        siblings = np.diff(self._leaf.offsets[begin : end + 1])
        corrections = np.repeat(fit.lacking[begin:end] / siblings, siblings)  # in equal parts: leaves have one variance
        if fit.multipliers is None:
            return corrections
        origin, destination = (ends[first:last] for ends in self.ends)
        of_origins, of_destinations = fit.multipliers
        return corrections + self._leaf.noise * (of_origins[origin] + of_destinations[destination])

    def _compute_leaves(self, fit: _Fit, r: int, first: int, last: int) -> Reals:
        """Return the leaves ``first:last`` of replicate r, h - e_r; shape (leaves,). ``fit`` is that of its noise."""
        leaves = self._draw_level_noise(r, len(self._levels) - 1, first, last)
        if self._are_fitted:
            leaves += self._compute_leaf_corrections(fit, first, last)  # e_r, which is replaced by h - e_r
        np.subtract(self.estimate[first:last], leaves, out=leaves)
        return leaves


@dataclass(frozen=True, eq=False)
class _Fit:
    """What a least-squares fit makes of the values of the leaves."""

    lacking: Reals  # fitted value of each parent of leaves minus the sum of the values of its leaves
    multipliers: tuple[Reals, Reals] | None = None  # m of the measured area totals by side; None without such totals


def compute_laplace_quantiles() -> Reals:
    """Return 65,536 quantiles of the Laplace distribution, rounded so that they are the same on every machine."""
    above = [round(-math.log(1 - (k + 0.5) / 32768) * 1024) / 1024 for k in range(32768)]
    return np.array([*(-value for value in reversed(above)), *above])
