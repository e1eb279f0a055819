"""The top-down pass with Euclidean projection (Boninsegna & Silvestri, section 5, "Baselines")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from od_core.flows.mechanisms.mechanism import Measures, PaperMechanism
from od_core.flows.projection.euclidean import project_children_euclidean


@dataclass(frozen=True)
class TDAL2(PaperMechanism):
    """InfTDA's pass with another objective: the least sum of squares, then whole numbers by controlled rounding.

    The TopDown algorithm of the United States' census differs in its weights, by inverse variance, which cancel where
    all children of a node have equal noise, and in a second optimisation for the rounding (spec 2).
    """

    name: ClassVar[str] = "tda_l2"

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Simplex projection for every parent, rounded."""
        return project_children_euclidean(noisy, totals, offsets)


# The top-down pass with Chebyshev projection by a solver (Boninsegna & Silvestri, section 5, "Baselines").


@dataclass(frozen=True)
class TDALinf(PaperMechanism):
    """InfTDA's pass and objective, with any optimum that a mixed-integer solver happens to find (HiGHS).

    It shows what IntOpt's choice among the optima is worth, and what its speed is.
    """

    name: ClassVar[str] = "tda_linf"
    most_pairs: ClassVar[int | None] = 100_000_000  # beyond, the solver would take hours: a millisecond or more a node

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """One mixed-integer problem for every parent."""
        from od_core.flows.projection.mixed_integer import project_children_mixed_integer  # SciPy takes half a second

        return project_children_mixed_integer(noisy, totals, offsets)


# Discrete Gaussian noise on every public pair of zones (Boninsegna & Silvestri, section 5, "Baselines").


@dataclass(frozen=True)
class VanillaGauss(PaperMechanism):
    """The whole budget on the leaves, released as they were measured: unbiased, negative counts and all.

    Nothing is projected, so the table does not sum to n, and at level l the noise of all leaf pairs below a node adds
    up (Proposition 1).
    """

    name: ClassVar[str] = "vanilla_gauss"
    measures: ClassVar[Measures] = "all_leaves"
    most_pairs: ClassVar[int | None] = 50_000_000  # nearly every pair is in the table, and takes 16 bytes of memory

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The measured counts themselves."""
        return noisy


# The stability histogram (Bun, Nissim & Stemmer 2019; Boninsegna & Silvestri, Theorem 8; spec 2).


@dataclass(frozen=True)
class StabilityHistogram(PaperMechanism):
    """Discrete Laplace noise on the pairs of zones with trips, and a threshold that hides the rare ones.

    It never releases a pair without a true trip. Its promise is (epsilon, delta) and has no rho: delta is the chance
    that a pair which one unit alone uses comes out (``docs/stability-histogram.md``).
    """

    name: ClassVar[str] = "stability_histogram"
    measures: ClassVar[Measures] = "present_leaves"

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The counts that reached the threshold, as they were measured."""
        return noisy
