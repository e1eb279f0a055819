"""DAF-Entropy (Shaham et al., section 4.2): nodes are cut into equal parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from od_core.stops.density_tree import DensityTree


@dataclass(frozen=True)
class DAFEntropy(DensityTree):
    """The tree of algorithm 2, each node cut into nearly equal parts."""

    name: ClassVar[str] = "daf_entropy"
