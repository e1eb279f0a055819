"""Rebuild the leaves, the segments and the measurements of a release from its published tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.flows.estimation.fitted_tree import find_pairs
from od_core.flows.estimation.top_down import Measurement
from od_core.flows.plan import ReleasePlan
from od_core.flows.step import GaussianStep, SegmentStep
from od_core.geography.codes import positions
from od_core.geography.flow_tree import FlowTree, Nodes, Pairs
from od_core.ledger.measurements import NoisyVector
from od_core.publication.read_back import changed
from od_core.records.segments import find


@dataclass(frozen=True, eq=False)
class PublishedTables:
    """The published tables of a release of flows.

    Attributes:
        areas: areas of the geographies.
        flows: flows between zones, without those of 0 trips.
        measurements: noisy measurements of the totals.
        segments: flows between zones by category, without those of 0 trips; empty if there are no breakdowns.
        segment_measurements: noisy measurements by category; empty if there are no breakdowns.
    """

    areas: pd.DataFrame
    flows: pd.DataFrame
    measurements: pd.DataFrame
    segments: pd.DataFrame
    segment_measurements: pd.DataFrame


def leaves_of(plan: ReleasePlan, flows: pd.DataFrame) -> Nodes:
    """Return the leaves of a table of flows between zones, in tree order.

    Raises:
        OdError: If a zone is not in the geography.
    """
    tree = plan.tree
    leaves = _pairs(tree, tree.depth, flows)
    order = np.argsort(tree.first_rank(leaves), kind="stable")
    trips = flows["trips"].to_numpy(dtype=np.int64)
    return Nodes(tree.depth, leaves.origin[order], leaves.destination[order], trips[order])


def segments_of(plan: ReleasePlan, leaves: Nodes, segments: pd.DataFrame) -> dict[str, NDArray[np.int64]]:
    """Return the trips of each leaf in the categories of each breakdown; shape (leaves, categories).

    Raises:
        OdError: If a zone, a leaf or a category is unknown, or if the categories of a leaf do not sum to its trips.
    """
    tree, found = plan.tree, {}
    width = len(tree.destination.zones)
    for breakdown in plan.breakdowns:
        rows = segments[segments["breakdown"] == breakdown.name]
        cells = _pairs(tree, tree.depth, rows)
        category = positions(rows["category"], breakdown.categories)
        place = find_pairs(leaves.origin, leaves.destination, cells.origin, cells.destination, width)
        if np.any(category < 0) or np.any(place < 0):
            raise changed("segments")
        trips = np.zeros((len(leaves), len(breakdown.categories)), dtype=np.int64)
        np.add.at(trips, (place, category), rows["trips"].to_numpy(dtype=np.int64))
        if np.any(trips.sum(axis=1) != leaves.trips):
            raise changed("segments")
        found[breakdown.name] = trips
    return found


def measurements_of(plan: ReleasePlan, tables: PublishedTables, levels: list[dict[str, Any]]) -> Iterator[Measurement]:
    """Yield the measurement of each step of a plan.

    Args:
        plan: The plan of the release.
        tables: The published tables.
        levels: What the certificate states of each step.

    Raises:
        OdError: If the measured cells are not those that the plan and the cells themselves give, or if their number is
            not the stated one.
    """
    for step, stated in zip(plan.steps, levels, strict=True):
        if isinstance(step, SegmentStep):
            rows, cells = _of_segments(plan, step, tables.segment_measurements)
        else:
            rows = tables.measurements[tables.measurements["level"] == step.level]
            cells = rows
        measurement = _measurement(plan, step, cells, rows)
        if len(rows) != stated["measured_cells"] or measurement.cells(plan) != len(cells):
            raise changed("measurements")
        yield measurement


def _of_segments(plan: ReleasePlan, step: SegmentStep, table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of a step, and the first row of each cell. Each cell must have a row for each category."""
    categories = find(plan.breakdowns, step.breakdown).categories
    rows = table[(table["level"] == step.level) & (table["breakdown"] == step.breakdown)]
    first = rows[:: len(categories)]
    expected = {
        "category": np.tile(np.array(categories, dtype=object), len(first)),
        **{side: np.repeat(first[side].to_numpy(dtype=object), len(categories)) for side in ("origin", "destination")},
    }
    if any(not np.array_equal(rows[name].to_numpy(dtype=object), values) for name, values in expected.items()):
        raise changed("measurements")
    return rows, first


def _measurement(plan: ReleasePlan, step: GaussianStep, cells: pd.DataFrame, rows: pd.DataFrame) -> Measurement:
    """Return the measurement of a step, given its measured cells and the rows of its noisy values."""
    return Measurement(
        step, _parents(plan, step, cells), NoisyVector.in_memory([rows["noisy"].to_numpy(dtype=np.int64)])
    )


def _parents(plan: ReleasePlan, step: GaussianStep, cells: pd.DataFrame) -> Pairs | None:
    """Return the parents of the measured cells, as the release had them; see :class:`Measurement`."""
    if step.level == 0:
        return None
    pairs = _pairs(plan.tree, step.level, cells)
    if plan.has_threshold:
        return pairs
    above = plan.tree.depth - 1 if plan.mechanism.measures == "all_leaves" else plan.level_above(step)
    return None if above is None else plan.tree.ancestors_of(pairs, above)


def _pairs(tree: FlowTree, level: int, table: pd.DataFrame) -> Pairs:
    """Return the area numbers of the codes in a table's columns ``origin`` and ``destination``, row by row.

    Raises:
        OdError: If a code is not in the geography.
    """
    o_level, d_level = tree.level_pair(level)
    pairs = Pairs(
        level,
        positions(table["origin"], tree.origin.codes[o_level]),
        positions(table["destination"], tree.destination.codes[d_level]),
    )
    if np.any(pairs.origin < 0) or np.any(pairs.destination < 0):
        raise changed("areas")
    return pairs
