"""What the mechanisms of the paper have in common (Boninsegna & Silvestri, section 5)."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from od_core.mechanisms.mechanism import Measures


class PaperMechanism:
    """Defaults of a mechanism that measures every level with equal shares, and takes each estimate as it is."""

    name: ClassVar[str]
    measures: ClassVar[Measures] = "every_level"
    most_pairs: ClassVar[int | None] = None
    default_conversion: ClassVar[str] = "tight"
    default_shares: ClassVar[str] = "uniform"
    refines: ClassVar[bool] = False

    @property
    def options(self) -> dict[str, str]:
        """None."""
        return {}

    @property
    def keep_all_cap(self) -> int:
        """None is kept that the level above rules out."""
        return 0

    @property
    def leaf_dial(self) -> Fraction | None:
        """None: the leaves are projected as every other level is."""
        return None
