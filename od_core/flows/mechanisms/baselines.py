"""Baseline mechanisms that InfTDA is compared with [boninsegna2025inftda, section 5]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from od_core.flows.mechanisms.mechanism import Measures, PaperMechanism
from od_core.flows.projection.euclidean import project_children_euclidean


@dataclass(frozen=True)
class TDAL2(PaperMechanism):
    """A top-down pass that changes the noisy counts by the least sum of squares, and then rounds with the same sums.

    The TopDown algorithm of the US census differs in two ways. It weights squares by inverse variance, which makes no
    difference if all children of a node have equal noise. It rounds by a second optimisation.
    """

    name: ClassVar[str] = "tda_l2"

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the integers nearest to each parent's noisy children in Euclidean distance that sum to its total.

        For arguments and shapes, see :meth:`od_core.flows.mechanisms.mechanism.Mechanism.project`.
        """
        return project_children_euclidean(noisy, totals, offsets)


@dataclass(frozen=True)
class TDALinf(PaperMechanism):
    """A top-down pass that minimises the same distance as InfTDA, with a mixed-integer solver (HiGHS).

    Several integer tables can be optimal. IntOpt, the projection of InfTDA, defines which of them it returns; the
    solver may return any. A comparison with InfTDA shows how much accuracy and speed IntOpt gains.
    """

    name: ClassVar[str] = "tda_linf"
    most_pairs: ClassVar[int | None] = 100_000_000  # above it, the solver takes hours: at least 1 ms per node

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the counts of the children that solve one mixed-integer problem per parent.

        For arguments and shapes, see :meth:`od_core.flows.mechanisms.mechanism.Mechanism.project`.
        """
        from od_core.flows.projection.mixed_integer import project_children_mixed_integer  # importing SciPy takes 0.5 s

        return project_children_mixed_integer(noisy, totals, offsets)


@dataclass(frozen=True)
class VanillaGauss(PaperMechanism):
    """Discrete Gaussian noise on every public pair of zones, released as measured.

    The released counts are unbiased, and some are negative. The leaves have the whole budget. Nothing is projected, so
    the table does not sum to the true number of trips. At a level above the leaves, the noise of all leaf pairs below a
    node adds up [boninsegna2025inftda, Proposition 1].
    """

    name: ClassVar[str] = "vanilla_gauss"
    measures: ClassVar[Measures] = "all_leaves"
    most_pairs: ClassVar[int | None] = 50_000_000  # nearly every pair is in the table and takes 16 bytes of memory

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the noisy counts unchanged; see :meth:`od_core.flows.mechanisms.mechanism.Mechanism.project`."""
        return noisy


@dataclass(frozen=True)
class StabilityHistogram(PaperMechanism):
    """Discrete Laplace noise on the pairs of zones with trips, and a threshold below which pairs are dropped.

    This is the stability histogram of [bun2019simultaneous], as in [boninsegna2025inftda, Theorem 8]. It never releases
    a pair without a true trip. Its guarantee is (epsilon, delta) and has no rho. Delta bounds the probability that a
    pair with trips of only one privacy unit is released (``docs/explanation/noise.md``).
    """

    name: ClassVar[str] = "stability_histogram"
    measures: ClassVar[Measures] = "present_leaves"

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the noisy counts unchanged. Counts below the threshold have been dropped before."""
        return noisy
