"""DAF-Homogeneity (Shaham et al., section 4.3, corrected): nodes are cut where their parts are most even."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.privacy.budget import exact_fraction
from od_core.privacy.keystream import Keystream
from od_core.stops.choice import choice_scale, noisy_minimum
from od_core.stops.density_tree import ROOT_SHARE, DensityTree, number_of_part
from od_core.stops.filled_cells import Rows
from od_core.stops.grid import Counts
from od_core.stops.heterogeneity import heterogeneity
from od_core.stops.nodes import Nodes
from od_core.stops.options import whole_number
from od_core.stops.path import Path

MOST_CANDIDATES = 1000
"""The work grows with them, the gain hardly does."""


@dataclass(frozen=True)
class DAFHomogeneity(DensityTree):
    """The tree of algorithm 3: of some random ways to cut a node, the one whose parts are most even, with noise.

    The cuts are those of p random candidates whose parts are most even (``heterogeneity.py``), chosen with noise
    (``choice.py``). The paper differs in what would break the promise: its noise is 2 / (p epsilon) wide, and its root
    chooses without a charge; and in what would not work: it draws m cuts and sums m + 1 parts. Here the choice comes
    after the test whether a node stops, so that a leaf keeps what it would have cost, and the root pays for its own. A
    node that goes on in one part, with nothing to choose, pays all the same, so that a depth has one path.

    Attributes:
        rounding: see :class:`DensityTree`.
        candidates: p, the number of ways to cut that are looked at.
        choosing_share: q, of the share of a depth, what the choice is charged.
    """

    candidates: int = 10
    choosing_share: Fraction = Fraction(3, 10)

    name: ClassVar[str] = "daf_homogeneity"

    def __post_init__(self) -> None:
        super().__post_init__()
        share = exact_fraction("the share of the choice", self.choosing_share)
        object.__setattr__(self, "choosing_share", share)
        candidates = whole_number(self.candidates)
        if candidates is None or not 1 <= candidates <= MOST_CANDIDATES or not 0 < share < 1:
            raise OdError(
                "OD-STOPS-CHOICE",
                f"there must be 1 to {MOST_CANDIDATES} candidates, and a share of the choice above 0 and below 1",
                next_step="correct the mechanism's options",
            )
        object.__setattr__(self, "candidates", candidates)

    @property
    def options(self) -> dict[str, str]:
        """Options as public text."""
        more = {"candidates": str(self.candidates), "choosing_share": str(self.choosing_share)}
        return super().options | more

    def scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Those of the number of all trips and of the root's choice; see ``StopsMechanism``."""
        choice = choice_scale(ROOT_SHARE * epsilon, sensitivity)
        return {**super().scales(epsilon, sensitivity), "root_choice": choice}

    def choosing(self, depth: int, share: Fraction) -> Fraction:
        """The share of the choice; at the root as much as its count."""
        return self.choosing_share * share if depth else share

    def cuts(
        self, rows: Rows, nodes: Nodes, depth: int, parts: Counts, length: int, choosing: Fraction, path: Path
    ) -> NDArray[np.int32]:
        """First cells of the parts of the chosen candidates; see :class:`DensityTree`."""
        candidates = random_parts(parts, length, self.candidates)
        scores = heterogeneity(rows, nodes, depth, parts, candidates)
        chosen, is_cut = np.zeros(len(parts), dtype=np.int64), parts > 1
        chosen[is_cut] = noisy_minimum(scores[is_cut], choosing, path)
        begins: NDArray[np.int32] = candidates[np.repeat(chosen, parts), np.arange(parts.sum())]
        return begins


def random_parts(parts: Counts, length: int, candidates: int) -> NDArray[np.int32]:
    """Random first cells of the parts of every node, of so many candidates; shape (candidates, sum of parts).

    The cut before part j is uniform on the cells within half a part of j / m, where an equal cut would be: these
    stretches are disjoint and have a cell at least, so the cuts are distinct. Drawn by a key of the operating system's
    for this call alone, and no function of the trips but through the numbers of parts, which have noise.
    """
    of, part = np.repeat(parts, parts), number_of_part(parts)
    low, high = (-(-((2 * part + side) * length) // (2 * of)) for side in (-1, 1))  # least cells at or after the ends
    words = (Keystream().words(64, candidates * len(part)) >> np.uint64(33)).astype(np.int64)
    begins = low + (words.reshape(candidates, len(part)) * (high - low) >> 31)
    return np.where(part == 0, 0, begins).astype(np.int32)
