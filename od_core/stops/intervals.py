"""Compute the 90 % intervals of the trips in boxes from their published noisy counts, at no privacy cost."""

from __future__ import annotations

import numpy as np

from od_core.privacy.stability import laplace_reach
from od_core.stops.geometry.boxes import Boxes
from od_core.stops.geometry.grid import Counts
from od_core.stops.plan import StopsPlan


def count_intervals(plan: StopsPlan, boxes: Boxes, counts: Counts) -> tuple[Counts, Counts]:
    """Return the lower and upper ends of the 90 % intervals of the true number of trips in each box.

    Each noisy count is the true number plus discrete Laplace noise that is drawn after the boxes are fixed. So the
    interval is for the given boxes, however they were chosen: the noisy count plus and minus the 90 % quantile of the
    absolute noise. It is cut at 0 and widened to the released count.

    Args:
        plan: the plan of the release.
        boxes: the boxes with their noisy counts, as drawn.
        counts: released counts; shape (boxes,).

    Returns:
        Lower and upper ends, integers of at least 0; shape (boxes,) each.
    """
    scale = plan.mechanism.count_scale(boxes, plan.grid, plan.step.epsilon, plan.step.sensitivity)
    reach = laplace_reach(scale)
    lower, upper = np.maximum(boxes.noisy - reach, 0), np.maximum(boxes.noisy + reach, 0)
    return np.minimum(lower, counts), upper  # no count is released above its noisy count and 0
