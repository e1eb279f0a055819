"""Into how many parts a dimension is cut, from a noisy count (Shaham et al., equation 19)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError, nearest_known
from od_core.stops.geometry.grid import Counts

Rounding = Literal["nearest", "up", "down", "times_1.5"]
"""How the formula's m becomes a whole number; ``times_1.5`` is the nearest to 3/2 m."""


def fan_out(noisy: Counts, epsilon: Fraction, dimensions: int, length: int, rounding: Rounding) -> Counts:
    """M = (N epsilon / sqrt 2)^(2 / (3 d)) parts for each noisy count N, from 1 to the cells there are; 1 for N <= 1.

    At this m the entropy of the noise on m^d parts is what the cut into m^d parts loses (equation 18).

    Args:
        noisy: N; shape (boxes,).
        epsilon: one over the scale of the noise that the parts will have.
        dimensions: d, those that are still to be cut.
        length: cells of the dimension.
        rounding: of m.
    """
    exact = parts_of(np.maximum(noisy, 1), float(epsilon), dimensions)
    if rounding == "up":
        whole = np.ceil(exact)
    elif rounding == "down":
        whole = np.floor(exact)
    else:
        whole = np.floor(exact * (1.5 if rounding == "times_1.5" else 1) + 0.5)
    parts: Counts = np.where(noisy > 1, np.clip(whole, 1, length), 1).astype(np.int64)
    return parts


def parts_of(noisy: Counts, epsilon: float, dimensions: int) -> NDArray[Any]:
    """M before it is rounded; arguments as :func:`fan_out`."""
    exact: NDArray[Any] = (noisy * (epsilon / math.sqrt(2))) ** (2 / (3 * dimensions))
    return exact


def check_rounding(rounding: str) -> None:
    """Refuse a rounding that does not exist. Raises OdError with the nearest known one."""
    known = get_args(Rounding)
    if rounding not in known:
        raise OdError(
            "OD-STOPS-ROUNDING",
            f"there is no rounding {rounding!r} ({nearest_known(str(rounding), known)})",
            next_step="correct the mechanism's options",
        )
