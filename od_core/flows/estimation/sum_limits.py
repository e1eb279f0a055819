"""Refuse noisy values that are so large that their sums may not fit 64 bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.estimation.least_squares import MeasuredLevel
from od_core.flows.estimation.refinement_kernels import LIMIT


def refuse_large_levels(levels: Sequence[MeasuredLevel]) -> None:
    """Raise OdError if a noisy value is so large that the sum of its level may not fit 64 bits."""
    for level in levels:
        refuse_large(level.noisy, LIMIT // max(1, len(level.noisy)))


def refuse_large(values: NDArray[np.int64] | NDArray[np.float64], limit: int) -> None:
    """Raise OdError if the magnitude of a value is ``limit`` or larger, so that sums may not fit 64 bits."""
    if values.size and (values.max() >= limit or values.min() <= -limit):
        raise overflow()


def overflow() -> OdError:
    """Return the error for sums that may not fit 64 bits."""
    return OdError(
        "OD-REFINEMENT-OVERFLOW",
        "the noisy values are too large for 64-bit sums",
        next_step="use mechanism inftda, or less noise",
        spent="draws already made stay charged",
    )
