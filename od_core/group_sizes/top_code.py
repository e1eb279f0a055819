"""The top code K as an estimate from the data, whose epsilon is charged (after Kuo et al., section 4.3, footnote 6).

One discrete Laplace draw on the largest size, and a public margin on top. The largest size has sensitivity 1, for
unbounded neighbours and for bounded ones: a member more or less moves one size by one, and a replaced member lowers one
size by one and raises another by one. Sizes that move by at most one each move their maximum by at most one. So does
the maximum capped at a public bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from od_core.errors import OdError
from od_core.privacy.budget import exact_fraction
from od_core.privacy.stability import least_reach

MAX_TOP_CODE = 1 << 31
"""Cells of an area's histogram must be countable."""

SENSITIVITY_OF_LARGEST = 1
"""Of the largest size, to one member more, less, or replaced."""

MISSED = Fraction(1, 1000)
"""Probability, at most, that the largest size is above the estimate (while it is within the public bound)."""


@dataclass(frozen=True)
class TopCodeEstimate:
    """K is estimated: the noisy largest size and a margin, within 1 to ``most``.

    Attributes:
        share: of the budget's epsilon, for the one draw; numbers are read as decimal.
        most: public bound of K, and so of memory; larger sizes count as it in any case.

    Raises:
        OdError: a share that is not between 0 and 1; a bound that is no number of members.
    """

    share: Fraction = Fraction(1, 20)
    most: int = 10_000

    def __post_init__(self) -> None:
        share, most = exact_fraction("the share of the top code", self.share), as_top_code(self.most)
        if not 0 < share < 1:
            raise OdError(
                "OD-GROUPS-TOP-CODE",
                "the share of the budget that estimates the top code is not between 0 and 1",
                next_step="correct the share",
            )
        if most is None:
            raise OdError(
                "OD-GROUPS-TOP-CODE",
                "the bound of an estimated top code is not a whole number from 1 to 2^31 - 1",
                next_step="give the most sizes that may be told apart",
            )
        object.__setattr__(self, "share", share)
        object.__setattr__(self, "most", most)

    @property
    def facts(self) -> dict[str, str | int]:
        """The estimate as JSON-ready public facts; see :meth:`from_facts`."""
        return {"estimated_with_share": str(self.share), "most": self.most, "missed": str(MISSED)}

    @classmethod
    def from_facts(cls, facts: dict[str, str | int]) -> TopCodeEstimate:
        """The estimate behind its facts."""
        return cls(Fraction(facts["estimated_with_share"]), int(facts["most"]))

    def top_code(self, noisy_largest: int, scale: Fraction) -> int:
        """K by the noisy largest size and the scale of its noise: a function of public values alone."""
        return min(max(noisy_largest + margin(scale), 1), self.most)


def margin(scale: Fraction) -> int:
    """The least whole number m such that noise Z of this scale has P(Z < -m) <= ``MISSED``.

    The law is symmetric, so P(Z < -m) = P(Z >= m + 1) = a^(m + 1) / (1 + a) with a = exp(-1 / scale).
    """
    return least_reach(scale, 1, MISSED) - 1


def as_top_code(value: object) -> int | None:
    """A value as a top code; None where it is no number of members that one can be."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return None
    return int(value) if 1 <= value < MAX_TOP_CODE else None
