"""Estimate the top code K from the data, at a cost in epsilon [kuo2018countofcounts, section 4.3, footnote 6].

K is the largest size plus one draw of discrete Laplace noise plus a public margin. The largest size has sensitivity 1
for both unbounded and bounded neighbours: adding or removing a member changes one size by one, and replacing a member
lowers one size by one and raises another by one. If each size changes by at most one, then the maximum changes by at
most one, and so does the maximum capped at a public bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from od_core.errors import OdError
from od_core.privacy.budget import exact_fraction
from od_core.privacy.stability import least_reach

MAX_TOP_CODE = 1 << 31
"""Exclusive upper bound of a top code. Below it, the positions in a histogram fit 32 bits."""

SENSITIVITY_OF_LARGEST = 1
"""The most by which the size of the largest group changes when one member is added, removed or replaced."""

MISSED = Fraction(1, 1000)
"""Largest accepted probability that a largest size of up to ``TopCodeEstimate.most`` exceeds the estimated top code."""


@dataclass(frozen=True)
class TopCodeEstimate:
    """A rule that estimates the top code K: the noisy largest size plus a margin, clipped to 1 to ``most``.

    Attributes:
        share: share of the budget's epsilon that the draw costs. A float is read as the decimal number that it prints.
        most: public upper bound of K. It also limits the memory that a table needs. Larger sizes count as this size.

    Raises:
        OdError: the share is not between 0 and 1, or the bound is not an integer from 1 to 2^31 - 1.
    """

    share: Fraction = Fraction(1, 20)
    most: int = 10_000

    def __post_init__(self) -> None:
        share, most = exact_fraction("the share of the top code", self.share), as_top_code(self.most)
        if not 0 < share < 1:
            raise OdError(
                "OD-GROUPS-TOP-CODE",
                "the share of the budget that estimates the top code must be between 0 and 1",
                next_step="correct the share",
            )
        if most is None:
            raise OdError(
                "OD-GROUPS-TOP-CODE",
                "the bound of an estimated top code must be a whole number from 1 to 2^31 - 1",
                next_step="give the largest size that may be distinguished",
            )
        object.__setattr__(self, "share", share)
        object.__setattr__(self, "most", most)

    @property
    def facts(self) -> dict[str, str | int]:
        """Public facts of the estimate, ready for JSON. :meth:`from_facts` is the inverse."""
        return {"estimated_with_share": str(self.share), "most": self.most, "missed": str(MISSED)}

    @classmethod
    def from_facts(cls, facts: dict[str, str | int]) -> TopCodeEstimate:
        """Create the estimate from the public facts that :attr:`facts` returns."""
        return cls(Fraction(facts["estimated_with_share"]), int(facts["most"]))

    def top_code(self, noisy_largest: int, scale: Fraction) -> int:
        """Return the top code K, computed from the noisy largest size and the scale of its noise. All are public."""
        return min(max(noisy_largest + margin(scale), 1), self.most)


def margin(scale: Fraction) -> int:
    """Return the margin m that is added to the noisy largest size, so that the sum is rarely below the largest size.

    m is the least integer with P(Z < -m) <= ``MISSED``, where Z is discrete Laplace noise of this scale. The noise
    distribution is symmetric, so P(Z < -m) = P(Z >= m + 1) = a^(m + 1) / (1 + a) with a = exp(-1 / scale).
    """
    return least_reach(scale, 1, MISSED) - 1


def as_top_code(value: object) -> int | None:
    """Return the value as an int, or None if it is not an integer from 1 to 2^31 - 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return None
    return int(value) if 1 <= value < MAX_TOP_CODE else None
