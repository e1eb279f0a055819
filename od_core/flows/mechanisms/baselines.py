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
    """A top-down pass that minimises the sum of squares, then makes whole numbers by controlled rounding.

    The TopDown algorithm of the US census differs in two ways. It weights by inverse variance, which cancels where all
    children of a node have equal noise, and it rounds by a second optimisation.
    """

    name: ClassVar[str] = "tda_l2"

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Project every parent's children onto the simplex, then round."""
        return project_children_euclidean(noisy, totals, offsets)


@dataclass(frozen=True)
class TDALinf(PaperMechanism):
    """A top-down pass with InfTDA's objective, at whichever optimum a mixed-integer solver (HiGHS) finds.

    It shows what IntOpt's choice among the optima gains, in accuracy and in speed.
    """

    name: ClassVar[str] = "tda_linf"
    most_pairs: ClassVar[int | None] = 100_000_000  # above it, the solver takes hours: at least 1 ms a node

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Solve one mixed-integer problem for every parent."""
        from od_core.flows.projection.mixed_integer import project_children_mixed_integer  # SciPy takes half a second

        return project_children_mixed_integer(noisy, totals, offsets)


@dataclass(frozen=True)
class VanillaGauss(PaperMechanism):
    """Discrete Gaussian noise on every public pair of zones, released as measured: unbiased, and negative in places.

    The leaves take the whole budget. Nothing is projected, so the table does not sum to n. At a level above, the noise
    of all leaf pairs below a node adds up [boninsegna2025inftda, Proposition 1].
    """

    name: ClassVar[str] = "vanilla_gauss"
    measures: ClassVar[Measures] = "all_leaves"
    most_pairs: ClassVar[int | None] = 50_000_000  # nearly every pair is in the table and takes 16 bytes of memory

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the measured counts unchanged."""
        return noisy


@dataclass(frozen=True)
class StabilityHistogram(PaperMechanism):
    """Discrete Laplace noise on the pairs of zones with trips, and a threshold that hides the rare pairs.

    This is the stability histogram of [bun2019simultaneous], stated as [boninsegna2025inftda, Theorem 8]. It never
    releases a pair without a true trip. Its guarantee is (epsilon, delta) and has no rho: delta bounds the probability
    that a pair used by one privacy unit alone is released (``docs/explanation/noise.md``).
    """

    name: ClassVar[str] = "stability_histogram"
    measures: ClassVar[Measures] = "present_leaves"

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the counts that reached the threshold, as measured."""
        return noisy
