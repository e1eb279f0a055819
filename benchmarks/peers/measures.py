"""Measure the tables of a contender, level by level, against the true trips. The results are NOT private."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Table = NDArray[np.float64]
"""A value for each pair of areas of a level; shape (areas, areas)."""

EQUAL = 1e-6
"""Largest difference of two numbers of trips that are equal: some contenders publish real numbers."""


@dataclass(frozen=True)
class Released:
    """A published table of a level, with its 90 % intervals, which are NaN where there is none."""

    trips: Table
    lower: Table
    upper: Table


def read_released(file: Path, codes: Sequence[str]) -> Released:
    """Read a table that a contender published. A pair of areas that it does not list has 0 trips and no interval.

    Raises ValueError if a pair is listed twice, or an area is unknown.
    """
    frame, index = pd.read_parquet(file), pd.Index(codes)
    origin, destination = (index.get_indexer(pd.Index(frame[side].astype(str))) for side in ("origin", "destination"))
    if frame.duplicated(["origin", "destination"]).any() or min([*origin, *destination], default=0) < 0:
        raise ValueError(f"{file.name} lists a pair twice, or an unknown area")

    def table(name: str, otherwise: float) -> Table:
        values = np.full((len(codes), len(codes)), otherwise)
        if name in frame:
            values[origin, destination] = frame[name].to_numpy(dtype=np.float64)
        return values

    return Released(table("trips", 0.0), table("lower", np.nan), table("upper", np.nan))


def summed(table: Table, parents: NDArray[np.int32], areas: int) -> Table:
    """Return the sums of a table between the parents of its areas; shape (areas, areas)."""
    sums = np.zeros((areas, areas))
    np.add.at(sums, (parents[:, np.newaxis], parents[np.newaxis, :]), table)
    return sums


def consistent_share(tables: Sequence[Table], parents: Sequence[NDArray[np.int32]]) -> float:
    """Return the share of pairs of areas above the last level that equal the sum of the pairs within them.

    Pairs that are 0, and have nothing but 0 within, are left out. The share is NaN if no pair remains.

    Args:
        tables: trips of all levels, top level first.
        parents: for each level but the first, the number of each area's parent.
    """
    equal = pairs = 0
    for above, below, at in zip(tables, tables[1:], parents, strict=False):
        used = (above != 0) | (summed(np.abs(below), at, len(above)) != 0)
        same = np.abs(above - summed(below, at, len(above))) <= EQUAL
        equal, pairs = equal + int((same & used).sum()), pairs + int(used.sum())
    return equal / pairs if pairs else float("nan")


def level_measures(released: Released, true: Table) -> dict[str, float]:
    """Return the measures of a level.

    ``error`` is the total absolute error per trip, ``error_cut`` the same with negative numbers set to 0, and
    ``largest`` the largest absolute error in trips. ``negative`` is the share of pairs below 0; ``false_discoveries``
    the share of pairs above 0 that have no trips, and ``false_negatives`` the share of pairs with trips that are not
    above 0. ``covered`` is the share of the intervals that contain the true trips, and ``width`` their mean width in
    trips. A share of nothing is NaN.
    """
    trips, listed = released.trips, ~np.isnan(released.lower)
    lower, upper, inside = released.lower[listed], released.upper[listed], true[listed]
    return {
        "error": float(np.abs(trips - true).sum() / true.sum()),
        "error_cut": float(np.abs(np.maximum(trips, 0) - true).sum() / true.sum()),
        "largest": float(np.abs(trips - true).max()),
        "negative": float((trips < 0).mean()),
        "false_discoveries": _mean((true == 0)[trips > 0]),
        "false_negatives": _mean((trips <= 0)[true > 0]),
        "covered": _mean((lower <= inside) & (inside <= upper)),
        "width": _mean(upper - lower),
    }


def _mean(values: NDArray[np.bool_] | NDArray[np.float64]) -> float:
    return float(values.mean()) if values.size else float("nan")
