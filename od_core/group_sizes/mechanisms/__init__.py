"""The named mechanisms for group-size tables, and the rule that chooses one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from od_core.errors import OdError
from od_core.group_sizes.groups import Frame
from od_core.group_sizes.mechanisms.baselines import CumulativeDP, Histogram, HistogramRelaxed, Naive
from od_core.group_sizes.mechanisms.bottom_up import BottomUp, BottomUpPosterior
from od_core.group_sizes.mechanisms.cumulative import Cumulative
from od_core.group_sizes.mechanisms.mechanism import GroupSizeMechanism
from od_core.group_sizes.mechanisms.sizes import Sizes, SizesPosterior
from od_core.privacy.budget import Budget
from od_core.privacy.unit import PrivacyUnit
from od_core.registry import mechanism_of

MECHANISMS: dict[str, Callable[..., GroupSizeMechanism]] = {
    "naive": Naive,
    "sizes": Sizes,
    "sizes_posterior": SizesPosterior,
    "cumulative": Cumulative,
    "bottom_up": BottomUp,
    "bottom_up_posterior": BottomUpPosterior,
    "histogram": Histogram,
    "histogram_relaxed": HistogramRelaxed,
    "cumulative_dp": CumulativeDP,
}

BIASED = 150
"""s m / L^2 from which the biases of the leaf areas outweigh the noise of further levels."""

SHARED = 200
"""Groups of a top area for each of sqrt(K) sizes from which noise averages out at the top."""

DENSE = 30
"""Groups of a top area for each of K sizes from which cumulative counts are better than sorted sizes."""

VISIBLE = 2
"""Noise for each group of a step in a leaf area's cumulative counts up to which it is found."""


def mechanism_named(name: str, **options: Any) -> GroupSizeMechanism:
    """The mechanism of that name with its options. Raises OdError for an unknown name or option."""
    return mechanism_of(MECHANISMS, name, "group sizes", options)


def chosen(frame: Frame, unit: PrivacyUnit, budget: Budget) -> GroupSizeMechanism:
    """The mechanism for a table, by public numbers alone: K, the numbers of groups, the levels, epsilon and the unit.

    Let s be the scale of the noise if the leaf areas alone are measured, and suppose that sizes, of which no more is
    known than K, lie over about sqrt(K) values: the middle, by ratios, between one value and all of them.

    - Levels above the leaf areas are worth their share of the budget where three things come together. The noise
      exceeds what a leaf area can resolve, so that its estimate is biased, and the biases of the m leaf areas below a
      top area add up there; a measurement of the top area has none, but with L levels it costs L times the noise, at
      every level. So s m / L^2 counts. And many groups of the top area share a size, so that their noise averages out.
    - If they are measured: each of the K cumulative counts has noise, and so has each of the G sorted sizes. With many
      groups for every size that is told apart, ``cumulative``; else sorted sizes.
    - If not: a size that h groups of a leaf area share is a step of height h in its cumulative counts, which is found
      if it stands out of the noise. Then cumulative counts; else sorted sizes.
    - Of what measures the same, that with posterior means: its errors are smaller (``docs/group-sizes-estimators.md``).

    The four constants are fitted to the flights and to made-up groups (``docs/group-sizes.md``, which says where the
    choice is wrong: large groups that are few for their top code are not told from small ones by public numbers).

    Args:
        frame: what is public.
        unit: bounded neighbours double the noise.
        budget: a pure epsilon.

    Raises:
        OdError: a budget without epsilon.
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
    """The given mechanism, the one of that name, or, where none is given, the one that :func:`chosen` finds."""
    if mechanism is None:
        return chosen(frame, unit, budget)
    return mechanism_named(mechanism) if isinstance(mechanism, str) else mechanism
