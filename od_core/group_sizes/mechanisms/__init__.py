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
"""Least s m / L^2 at which the biases of the leaf areas outweigh the noise of further levels; see :func:`chosen`."""

SHARED = 200
"""Least number of groups per size, with sqrt(K) sizes in a top area, at which noise averages out at the top."""

DENSE = 30
"""Least number of groups per size, with K sizes in a top area, at which cumulative counts beat sorted sizes."""

VISIBLE = 2
"""Largest ratio of noise scale to step height at which a step in a leaf area's cumulative counts is found."""


def chosen(frame: Frame, unit: PrivacyUnit, budget: Budget) -> GroupSizeMechanism:
    """Choose the mechanism for a table from K, the numbers of groups, the levels, epsilon and the privacy unit alone.

    Let s be the scale of the noise if only the leaf areas are measured. Of the sizes only K is known, so the rule
    assumes that they take about sqrt(K) values, the geometric mean of one value and K values.

    - The levels above the leaf areas are measured only if two conditions hold. First, the biases at the top outweigh
      the extra noise. Noise that exceeds what a leaf area can resolve makes its estimate biased, and the biases of the
      m leaf areas below a top area add up there. A measurement of the top area has no such bias, but L measured levels
      have L times the noise at every level. So s m / L^2 decides. Second, many groups of a top area share a size, so
      that their noise averages out.
    - If these levels are measured, each of the K cumulative counts and each of the G sorted sizes has noise.
      ``cumulative`` is chosen if there are many groups per size, else sorted sizes.
    - If they are not, h groups of one size in a leaf area form a step of height h in its cumulative counts. Cumulative
      counts are chosen if such a step stands out from the noise, else sorted sizes.
    - Of two mechanisms with the same measurements, the one with posterior means is chosen, because its errors are
      smaller (``docs/explanation/group-sizes.md``).

    The four constants are fitted to flights and to synthetic groups. ``docs/explanation/group-sizes.md`` says where the
    choice is
    wrong: public numbers do not distinguish large groups that are few for their top code from small ones.

    Args:
        frame: the public facts of the table.
        unit: bounded neighbours double the noise.
        budget: a pure epsilon.

    Raises:
        OdError: The budget has no epsilon.
    """
    if budget.epsilon is None:
        raise OdError("OD-BUDGET-KIND", "the rule needs a pure epsilon", next_step="give the budget as epsilon alone")
    sensitivity = 2 if unit.neighbours == "bounded" else 1  # of the leaf methods
    scale = sensitivity / float(budget.epsilon)
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
    """Return the given mechanism, the one of that name, or the choice of :func:`chosen` if none is given."""
    if mechanism is None:
        return chosen(frame, unit, budget)
    return MECHANISMS.make(mechanism)
