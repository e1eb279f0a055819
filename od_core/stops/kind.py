"""Trips with stops as a kind of release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from od_core.publication.kind import Kind, Look
from od_core.stops.database import differing_stops, store_stops
from od_core.stops.partition import fill_the_grid
from od_core.stops.publication import open_stops, stops_facts, stops_files, stops_notes, stops_sentences
from od_core.stops.release import StopsRelease, flat_boxes
from od_core.stops.report import stops_pictures, stops_report


def _made_anew(public: StopsRelease, _stated: dict[str, Any]) -> tuple[StopsRelease, Mapping[str, Look]]:
    """Reading a bundle makes its counts anew, and refuses one that is not what is published."""
    return public, {"invariants": lambda: _invariants(public)}


def _invariants(public: StopsRelease) -> Iterator[str]:
    """The boxes fill the grid; whole counts of at least 0, in sum the noisy ones, or 0."""
    boxes, counts = public.measured, public.counts
    if not fill_the_grid(boxes.lower, boxes.upper, public.plan.grid):
        yield "the boxes leave a gap or overlap"
    if (counts < 0).any():
        yield "a count is below 0"
    if int(counts.sum()) != max(0, int(boxes.noisy.sum())):
        yield "the counts do not sum to the noisy total"


def _summary(release: StopsRelease) -> pd.DataFrame:
    """Boxes, trips, and the noise on each kind of measurement."""
    boxes, plan = release.measured, release.plan
    sides = (boxes.upper.astype(np.float64) - boxes.lower + 1).prod(axis=1)
    return pd.DataFrame(
        [
            {
                "level": plan.step.level,
                "dimensions": plan.grid.dimensions,
                "boxes": len(boxes),
                "boxes_with_trips": int((release.counts > 0).sum()),
                "trips": int(release.counts.sum()),
                "median_cells_of_a_box": float(np.median(sides)),
                **{f"scale_of_{name}": round(float(scale), 3) for name, scale in plan.step.scales},
            }
        ]
    )


STOPS: Kind[StopsRelease] = Kind(
    contents="boxes",
    format="od-release stops certificate 1",
    guarantee=stops_sentences,
    summary=_summary,
    facts=stops_facts,
    files=stops_files,
    notes=stops_notes,
    report=stops_report,
    pictures=stops_pictures,
    store=store_stops,
    open=open_stops,
    measured=lambda release: [(release.plan.step, flat_boxes(release.measured))],
    made_anew=_made_anew,
    stored=differing_stops,
)
