"""Write what every contender is given: the trips, the public areas, and the budget.

``trips.parquet`` has one row a trip, with the codes of its origin and destination at every level (``origin_LEVEL`` and
``destination_LEVEL``). ``areas_LEVEL.csv`` lists the public areas of a level, ``zones.csv`` each zone with the areas
that contain it, and ``settings.json`` the levels, top level first, epsilon, delta, and the rho that exact accounting
permits.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.peers.measures import summed
from od_core import Budget, Geography, PrivacyUnit, plan_release
from od_core.evaluation.known_flows import KnownFlows
from od_core.evaluation.metrics import leaves_of
from od_core.privacy.accounting import float_above
from od_core.privacy.neighbours import NO_FAULTS

DELTA = "1e-6"
AT_ONCE = 5_000_000
"""Most trips that are held while they are written, but for those of one pair of zones."""


@dataclass(frozen=True)
class Levels:
    """The levels of a geography, top level first, with the true trips between their areas.

    Attributes:
        names: names of the levels.
        codes: codes of the areas of each level.
        parents: for each level but the first, the number of each area's parent; shape (areas,).
        true: trips between the areas of each level; shape (areas, areas).
    """

    names: tuple[str, ...]
    codes: tuple[tuple[str, ...], ...]
    parents: tuple[NDArray[np.int32], ...]
    true: tuple[NDArray[np.float64], ...]


def levels_of(data: KnownFlows) -> Levels:
    """Return the levels of the geography of a data set, with its true trips."""
    geography, leaves = data.geography, leaves_of(data.tree, data.trips)
    zones = len(geography.codes[-1])
    true = [np.zeros((zones, zones))]
    true[0][leaves.origin, leaves.destination] = leaves.trips
    for parents, above in zip(geography.parents[:1:-1], geography.codes[-2:0:-1], strict=True):
        true.insert(0, summed(true[0], parents, len(above)))
    return Levels(geography.levels, geography.codes[1:], geography.parents[2:], tuple(true))


def permitted_rho(geography: Geography, epsilon: str) -> float:
    """Return the rho of Gaussian noise that exact accounting permits, for one trip that is added or removed."""
    unit = PrivacyUnit("trip", neighbours="unbounded")
    plan = plan_release(geography, unit=unit, budget=Budget(epsilon, DELTA), acceptance=NO_FAULTS)
    return float_above(plan.spent.rho)


def write_given(folder: Path, data: KnownFlows, epsilon: str) -> None:
    """Write the files of a data set and of a budget to a folder; see the module docstring."""
    folder.mkdir(parents=True)
    levels, geography = levels_of(data), data.geography
    origin, destination = np.nonzero(levels.true[-1])
    repeats = levels.true[-1][origin, destination].astype(np.int64)
    zones: dict[str, Any] = {levels.names[-1]: np.arange(len(levels.codes[-1]))}
    for name, parents in zip(levels.names[-2::-1], levels.parents[::-1], strict=True):
        zones = {name: parents[next(iter(zones.values()))], **zones}
    listed = pd.DataFrame({name: np.array(geography.codes[k])[at] for k, (name, at) in enumerate(zones.items(), 1)})
    listed.to_csv(folder / "zones.csv", index=False)
    write_trips(folder / "trips.parquet", listed, origin, destination, repeats)
    for name, codes in zip(levels.names, levels.codes, strict=True):
        pd.DataFrame({"area": codes}).to_csv(folder / f"areas_{name}.csv", index=False)
    settings = {
        "levels": levels.names,
        "epsilon": float(epsilon),
        "delta": float(DELTA),
        "rho": permitted_rho(geography, epsilon),
    }
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")


def write_trips(
    file: Path, zones: pd.DataFrame, origin: NDArray[np.intp], destination: NDArray[np.intp], trips: NDArray[np.int64]
) -> None:
    """Write one row a trip, given the trips of pairs of zones by the numbers of their rows in ``zones``."""
    codes = {name: pa.array(zones[name]) for name in zones}
    ends = {"origin": origin, "destination": destination}
    schema = pa.schema([(f"{side}_{name}", pa.string()) for side in ends for name in codes])
    part = trips.cumsum() // AT_ONCE
    with pq.ParquetWriter(file, schema) as writer:
        for pairs in np.split(np.arange(len(trips)), np.flatnonzero(np.diff(part)) + 1):
            numbers = {side: pa.array(at[pairs].repeat(trips[pairs])) for side, at in ends.items()}
            columns = [code.take(numbers[side]) for side in ends for code in codes.values()]
            writer.write_table(pa.table(columns, schema=schema))
