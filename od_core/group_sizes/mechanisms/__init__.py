"""List the mechanisms for group-size tables by name, and choose one from public numbers."""

from __future__ import annotations

import math

from od_core.errors import OdError
from od_core.group_sizes.groups import Frame
from od_core.group_sizes.mechanisms.baselines import CumulativeDP, Histogram, HistogramRelaxed, Naive
from od_core.group_sizes.mechanisms.bottom_up import BottomUp, BottomUpPosterior
from od_core.group_sizes.mechanisms.cumulative import Cumulative
from od_core.group_sizes.mechanisms.mechanism import GroupSizeMechanism
from od_core.group_sizes.mechanisms.sizes import Sizes, SizesPosterior
from od_core.privacy.budget import Budget
from od_core.privacy.unit import PrivacyUnit
from od_core.registry import Registry

MECHANISMS: Registry[GroupSizeMechanism] = Registry(
    "group sizes",
    {
        "naive": Naive,
        "sizes": Sizes,
        "sizes_posterior": SizesPosterior,
        "cumulative": Cumulative,
        "bottom_up": BottomUp,
        "bottom_up_posterior": BottomUpPosterior,
        "histogram": Histogram,
        "histogram_relaxed": HistogramRelaxed,
        "cumulative_dp": CumulativeDP,
    },
)

BIASED = 150
"""Least s m / L^2 at which the biases of leaf areas outweigh the extra noise of measuring further levels.

s is the noise scale, m the number of leaf areas per top area, and L the number of levels; see :func:`chosen`."""

SHARED = 200
"""Least ratio of a top area's number of groups to sqrt(K), for a top code K, at which the noise averages out there."""

DENSE = 30
"""Least ratio of a top area's number of groups to the top code at which cumulative counts have smaller errors than
sorted sizes."""

VISIBLE = 2
"""Largest ratio of noise scale to step height at which a step in the cumulative counts of a leaf area is distinguished
from the noise."""


def chosen(frame: Frame, unit: PrivacyUnit, budget: Budget) -> GroupSizeMechanism:
    """Return the mechanism that a rule selects for a table from public numbers alone.

    Let K be the top code, and s the scale of the noise if only the leaf areas are measured. Nothing but K is known
    about the sizes, so the rule assumes that they take about sqrt(K) different values, the geometric mean of 1 and K.

    - The levels above the leaf areas are measured only if two conditions hold. First, s m / L^2 is at least ``BIASED``,
      where m is the number of leaf areas per top area and L the number of levels. Strong noise makes the estimate of a
      leaf area biased, and the biases of the m leaf areas add up in their top area. A measurement of the top area has
      no such bias, but if L levels are measured, each level has L times the noise. Second, at least ``SHARED`` groups
      of a top area have the same size on average, so that their noise averages out.
    - If these levels are measured, there is noise on each of K cumulative counts, or on each of G sorted sizes, in an
      area with G groups. ``cumulative`` is chosen if a top area has on average at least ``DENSE`` times K groups, else
      ``sizes_posterior``.
    - If only the leaf areas are measured, h groups of one size in a leaf area form a step of height h in its cumulative
      counts. Cumulative counts are measured if s is at most ``VISIBLE`` times this height, else sorted sizes.
    - For the leaf areas and for sorted sizes, the mechanism with posterior means is chosen, because its errors are
      smaller than those of the other mechanism with the same measurements.

    The four constants are fitted to flights and to synthetic groups. ``docs/explanation/group-sizes.md`` has the errors
    of the mechanisms, and describes for which data the choice is wrong, because public numbers do not contain the sizes
    of the groups.

    Args:
        frame: the public facts of the table.
        unit: the privacy unit. Bounded neighbours double the scale of the noise.
        budget: a pure epsilon (delta is 0).

    Raises:
        OdError: the budget has no epsilon.
    """
    if budget.epsilon is None:
        raise OdError("OD-BUDGET-KIND", "the rule needs a pure epsilon", next_step="give the budget as epsilon alone")
    scale = unit.differing_units / float(budget.epsilon)  # of cumulative counts and of sorted sizes
    tops, leaves, depth = frame.geography.size(1), len(frame.groups), frame.geography.depth
    sizes = math.sqrt(frame.top_code)
    groups = int(frame.groups.sum())
    biased = scale * (leaves / tops) / depth**2 >= BIASED
    if biased and depth > 1 and groups / tops / sizes >= SHARED:
        return Cumulative() if groups / tops >= DENSE * frame.top_code else SizesPosterior()
    return BottomUpPosterior("cumulative" if scale <= VISIBLE * groups / leaves / sizes else "sizes")


def mechanism_for(
    mechanism: str | GroupSizeMechanism | None, frame: Frame, unit: PrivacyUnit, budget: Budget
) -> GroupSizeMechanism:
    """Return the given mechanism, the mechanism with the given name, or that of :func:`chosen` if none is given.

    Raises:
        OdError: there is no mechanism with this name, or the budget has no epsilon.
    """
    if mechanism is None:
        return chosen(frame, unit, budget)
    return MECHANISMS.make(mechanism)
