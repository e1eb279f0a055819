"""Group-size tables as a kind of release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from od_core.group_sizes.database import differing_group_sizes, store_group_sizes
from od_core.group_sizes.publication import (
    group_size_facts,
    group_size_files,
    group_size_notes,
    group_size_sentences,
    open_group_sizes,
)
from od_core.group_sizes.release import GroupSizeRelease
from od_core.group_sizes.report import group_size_pictures, group_size_report
from od_core.privacy.accounting import float_above
from od_core.publication.kind import Kind, Look


def _made_anew(public: GroupSizeRelease, _stated: dict[str, Any]) -> tuple[GroupSizeRelease, Mapping[str, Look]]:
    """Reading a bundle makes its table anew, and refuses one that is not what is published."""
    return public, {"invariants": lambda: _invariants(public)}


def _invariants(public: GroupSizeRelease) -> Iterator[str]:
    """Whole numbers of at least 0; sums over the sizes and over the children, where the mechanism promises them."""
    mechanism, frame = public.plan.mechanism, public.frame
    for level, table in zip(frame.levels, public.histograms, strict=True):
        below = public.below(level)
        if (table < 0).any():
            yield f"level {level} has a number of groups below 0"
        if mechanism.keeps_totals and not np.array_equal(table.sum(axis=1), frame.totals(level)):
            yield f"level {level} has an area whose groups are not as many as it has"
        if mechanism.adds_up and below is not None and not np.array_equal(table, below):
            yield f"level {level} is not the sum of the level below"


def _summary(release: GroupSizeRelease) -> pd.DataFrame:
    """Areas, groups and released members of every level, and the noise where it was measured."""
    frame, scales = release.frame, {step.level: step.scale for step in release.plan.steps}
    sizes = np.arange(frame.top_code + 1)
    return pd.DataFrame(
        [
            {
                "level": frame.geography.levels[level - 1],
                "areas": len(table),
                "groups": int(table.sum()),
                "largest_size": int(sizes[table.any(axis=0)].max(initial=0)),
                "members": int(table.sum(axis=0) @ sizes),
                "noise_scale": "-" if level not in scales else f"{float_above(scales[level]):.6g}",
            }
            for level, table in zip(frame.levels, release.histograms, strict=True)
        ]
    )


GROUP_SIZES: Kind[GroupSizeRelease] = Kind(
    contents="group sizes",
    format="od-release group-size certificate 1",
    guarantee=group_size_sentences,
    summary=_summary,
    facts=group_size_facts,
    files=group_size_files,
    notes=group_size_notes,
    report=group_size_report,
    pictures=group_size_pictures,
    store=store_group_sizes,
    open=open_group_sizes,
    measured=lambda release: release.measured,
    made_anew=_made_anew,
    stored=differing_group_sizes,
)
