"""The top-down pass with Chebyshev projection by a solver (Boninsegna & Silvestri, section 5, "Baselines")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from od_core.mechanisms.paper import PaperMechanism

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
        from od_core.projection.mixed_integer import project_children_mixed_integer  # SciPy takes half a second

        return project_children_mixed_integer(noisy, totals, offsets)
