"""State how many trips the contribution bounds of a release, or of the releases of a sum, leave out."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from od_core.flows.confidence import lower_bound, upper_bound
from od_core.flows.release import Release


def uncounted_facts(releases: Sequence[Release], counted: int) -> dict[str, Any]:
    """Return the fact of a certificate on the trips that releases together do not count.

    The noise of the releases is independent, so the numbers and their variances add up.

    Args:
        releases: releases whose numbers are added.
        counted: number of released trips.

    Returns:
        The fact by its name; empty if a release did not measure the number.
    """
    steps, numbers = [one.plan.uncounted_step for one in releases], [one.uncounted for one in releases]
    known = [(step, number) for step, number in zip(steps, numbers, strict=True) if step and number is not None]
    if len(known) < len(releases):
        return {}
    trips = sum(number for _, number in known)
    variance = sum((step.variance for step, _ in known), Fraction(0))
    estimate, variances, left_out = np.array([float(trips)]), np.array([float(variance)]), max(trips, 0)
    facts = {
        "trips": trips,
        "lower": int(lower_bound(estimate, variances)[0]),
        "upper": int(upper_bound(estimate, variances)[0]),
        "share": round(left_out / max(left_out + counted, 1), 4),
        "max_trips": max(step.max_trips for step, _ in known),
        "variance_exact": str(variance),
        "rho_exact": str(sum((step.charge.as_rho for step, _ in known), Fraction(0))),
    }
    return {"uncounted": facts}
