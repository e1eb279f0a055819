"""What every mechanism asks of noisy values before it reads them: their shapes, and sums that fit 64 bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from od_core.errors import OdError
from od_core.group_sizes.frame import Counts, Frame
from od_core.group_sizes.mechanisms.mechanism import Query


def check_noisy(frame: Frame, query: Query, levels: Sequence[int], noisy: Sequence[Counts]) -> None:
    """Raise where the noisy values are not those of the query at these levels, or too large to add up."""
    if len(levels) * (int(frame.groups.sum()) + 1) >= 1 << 31 or frame.top_code >= 1 << 31:
        raise OdError(
            "OD-GROUPS-SIZE",
            "groups times levels, and the top code, must be below 2^31",
            next_step="release parts of the geography by themselves, or choose a smaller top code",
        )
    if len(noisy) != len(levels):
        raise _shape()
    for level, values in zip(levels, noisy, strict=True):
        totals = frame.totals(level)
        cells = {"histogram": frame.top_code + 1, "cumulative": frame.top_code}
        expected = (int(totals.sum()),) if query == "sizes" else (len(totals), cells[query])
        if values.shape != expected or values.dtype != np.int64:
            raise _shape()
        longest = int(totals.max(initial=1)) if query == "sizes" else cells[query]
        if max(int(values.max(initial=0)), -int(values.min(initial=0))) * longest >= 1 << 60:
            raise OdError(
                "OD-GROUPS-OVERFLOW",
                "the noisy values are too large for 64-bit sums",
                next_step="use a larger share of the budget, or a smaller top code",
                spent="what was drawn stays charged",
            )


def _shape() -> OdError:
    return OdError(
        "OD-GROUPS-SHAPE",
        "the noisy values have not the shape of what the mechanism measures",
        next_step="give whole numbers of 64 bits, one array a measured level, top first",
    )
