"""Estimate the cumulative histograms of many areas from their noisy values, with a Markov chain fitted to these values.

This is an empirical Bayes method. The Markov chain is that of :mod:`od_core.group_sizes.estimation.smoothing`. Its
probabilities are the same for all areas. They differ between classes of sizes: the sizes 0, 1, 2 and 3 are classes of
their own, and from size 4 on there are two classes per doubling of the size. The probabilities are fitted by
expectation maximisation [baum1970maximization], which increases the likelihood of the noisy values. The fit reads only
noisy values, so it spends no budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from od_core.group_sizes.estimation.smoothing import Reals, Smoothed, powers, smooth
from od_core.group_sizes.groups import Counts
from od_core.parallel import in_order

_ROUNDS = ((4, 64), (3, 256))
"""Stages of the fit: number of rounds, and largest number of areas that each of these rounds reads. The areas are
evenly spaced in tree order."""

_PIECE = 1 << 16
"""Number of cumulative counts that a thread works on at a time. Sums over areas are added piece by piece, so their
floating-point errors depend on this number."""


@dataclass(frozen=True, eq=False)
class NoisyAreas:
    """The noisy values of some areas, from which their histograms are estimated.

    Attributes:
        noisy: noisy values of one area after the other; shape (values,).
        offsets: values ``offsets[a]:offsets[a + 1]`` belong to area a. They are K noisy cumulative counts, or G noisy
            sizes; shape (areas + 1,).
        totals: G, the public number of groups of every area; shape (areas,).
        top_code: K, the largest size.
        of_sizes: true if the values are noisy sizes, false if they are noisy cumulative counts.
        scale: scale of the noise.
    """

    noisy: Counts
    offsets: Counts
    totals: Counts
    top_code: int
    of_sizes: bool
    scale: Fraction

    def histograms(self) -> Counts:
        """Return the estimated histograms of all areas; integers, shape (areas, K + 1).

        They are the differences of the posterior means of the cumulative counts, rounded half up.
        """
        histograms, done = np.empty((len(self.totals), self.top_code + 1), dtype=np.int64), 0
        for smoothed in self.smoothed(np.arange(len(self.totals)), self.fitted_chain()):
            some = slice(done, done + len(smoothed.means))
            histograms[some] = _rounded(smoothed.means, self.totals[some])
            done = some.stop
        return histograms

    def fitted_chain(self) -> Reals:
        """Return the fitted probabilities of the Markov chain for every class of sizes; shape (classes, 4).

        In each round, a probability becomes the ratio of expected events to expected chances under the previous
        probabilities (see :class:`Smoothed`). One chance is added to the chances, and the initial probability is added
        to the events. This keeps the ratio strictly between 0 and 1.
        """
        first = chain = first_chain(classes_of_sizes(self.top_code))
        for rounds, areas in _ROUNDS:
            some = np.unique(np.linspace(0, len(self.totals) - 1, min(areas, len(self.totals))).astype(np.int64))
            for _ in range(rounds):
                chances, events = np.ones_like(first), first.copy()
                for smoothed in self.smoothed(some, chain):
                    chances += smoothed.chances
                    events += smoothed.events
                chain = events / chances
        return chain

    def smoothed(self, areas: Counts, chain: Reals) -> Iterator[Smoothed]:
        """Yield the posterior of the cumulative histograms of some areas, in consecutive pieces of areas.

        Args:
            areas: numbers of the areas; shape (selected areas,).
            chain: probabilities of the Markov chain by class of sizes; shape (classes, 4).
        """
        decay, classes = powers(self.scale, int(self.totals.max(initial=0))), classes_of_sizes(self.top_code)
        rows = max(1, _PIECE // len(classes))

        def of_some(begin: int) -> Smoothed:
            some = areas[begin : begin + rows]
            first, last = self.offsets[some], self.offsets[some + 1]
            noisy = np.concatenate([self.noisy[a:b] for a, b in zip(first, last, strict=True)])
            offsets = np.concatenate([[0], np.cumsum(last - first)])
            return smooth(noisy, offsets, self.totals[some], self.of_sizes, decay, classes, chain)

        yield from in_order(of_some, range(0, len(areas), rows))


def _rounded(means: Reals, totals: Counts) -> Counts:
    """Round posterior mean cumulative counts half up, and return their differences, histograms of shape (areas, K + 1).

    Posterior means ascend, except for errors of floating-point sums. A running maximum removes these errors.
    """
    rounded = np.maximum.accumulate(np.floor(means + 0.5).astype(np.int64), axis=1)
    return np.diff(rounded, prepend=0, append=totals[:, np.newaxis], axis=1)


def classes_of_sizes(top_code: int) -> Counts:
    """Return the number of the class of sizes to which each size 0 to K belongs; shape (K + 1,).

    The classes begin at the sizes 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, ...
    """
    begins, power = [1, 2, 3], 4
    while power <= top_code:
        begins += [power, power + power // 2]
        power *= 2
    return np.searchsorted(np.array(begins), np.arange(top_code + 1), side="right").astype(np.int64)


def first_chain(classes: Counts) -> Reals:
    """Return the initial probabilities ``wake``, ``rest``, ``jump`` and ``more`` of the chain; shape (classes, 4).

    The chain is that of :mod:`od_core.group_sizes.estimation.smoothing`. ``wake``, the probability that the chain turns
    from quiet to busy, is divided by the number of sizes in the class, so that all classes are equally often busy.
    """
    widths = np.bincount(classes)
    return np.column_stack([0.3 / widths, *(np.full(len(widths), chance) for chance in (0.1, 0.5, 0.5))])
