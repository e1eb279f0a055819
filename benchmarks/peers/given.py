"""Write what every contender is given: the trips, the public areas, and the budget.

``trips.parquet`` has one row a trip, with the codes of its origin and destination at every level (``origin_LEVEL`` and
``destination_LEVEL``). ``areas_LEVEL.csv`` lists the public areas of a level, ``zones.csv`` each zone with the areas
that contain it, and ``settings.json`` the levels, top level first, epsilon, delta, and the rho that exact accounting
permits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.peers.measures import summed
from od_core import Budget, Geography, PrivacyUnit, plan_release
from od_core.evaluation.known_flows import KnownFlows
from od_core.evaluation.metrics import make_leaf_nodes
from od_core.privacy.accounting import round_up_to_float
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
    geography, leaves = data.geography, make_leaf_nodes(data.tree, data.trips)
    zones = len(geography.codes[-1])
    true = [np.zeros((zones, zones))]
    true[0][leaves.origin, leaves.destination] = leaves.trips
    for parents, above in zip(geography.parents[:1:-1], geography.codes[-2:0:-1], strict=True):
        true.insert(0, summed(true[0], parents, len(above)))
    return Levels(geography.levels, geography.codes[1:], geography.parents[2:], tuple(true))


TRIP = PrivacyUnit("trip", neighbours="unbounded")


def permitted_rho(geography: Geography, epsilon: str, unit: PrivacyUnit = TRIP) -> float:
    """Return the rho of Gaussian noise that exact accounting permits, for one unit that is added or removed."""
    plan = plan_release(geography, unit=unit, budget=Budget(epsilon, DELTA), acceptance=NO_FAULTS)
    return round_up_to_float(plan.spent.rho)


def write_given(folder: Path, data: KnownFlows, epsilon: str) -> None:
    """Write the files of a data set and of a budget to a folder; see the module docstring."""
    levels = levels_of(data)
    origin, destination = np.nonzero(levels.true[-1])
    trips = levels.true[-1][origin, destination].astype(np.int64)
    zones = write_public(folder, levels, epsilon, {"rho": permitted_rho(data.geography, epsilon)})
    write_trips(folder / "trips.parquet", zones, origin, destination, trips)


def write_public(folder: Path, levels: Levels, epsilon: str, settings: Mapping[str, Any]) -> pd.DataFrame:
    """Write all files but the trips to a new folder, and return the zones with the areas that contain them.

    ``settings`` are more settings, such as rho.
    """
    folder.mkdir(parents=True)
    zones: dict[str, Any] = {levels.names[-1]: np.arange(len(levels.codes[-1]))}
    for name, parents in zip(levels.names[-2::-1], levels.parents[::-1], strict=True):
        zones = {name: parents[next(iter(zones.values()))], **zones}
    listed = pd.DataFrame({name: np.array(levels.codes[k])[at] for k, (name, at) in enumerate(zones.items())})
    listed.to_csv(folder / "zones.csv", index=False)
    for name, codes in zip(levels.names, levels.codes, strict=True):
        pd.DataFrame({"area": codes}).to_csv(folder / f"areas_{name}.csv", index=False)
    known = {"levels": levels.names, "epsilon": float(epsilon), "delta": float(DELTA), **settings}
    (folder / "settings.json").write_text(json.dumps(known), encoding="utf-8")
    return listed


def write_trips(
    file: Path,
    zones: pd.DataFrame,
    origin: NDArray[np.intp],
    destination: NDArray[np.intp],
    trips: NDArray[np.int64],
    columns: Mapping[str, NDArray[Any]] = MappingProxyType({}),
) -> None:
    """Write one row a trip, given the trips of pairs of zones by the numbers of their rows in ``zones``.

    ``columns`` are more columns of the pairs, such as the users.
    """
    codes = {name: pa.array(zones[name]) for name in zones}
    ends, more = {"origin": origin, "destination": destination}, {name: pa.array(at) for name, at in columns.items()}
    fields = [(f"{side}_{name}", pa.string()) for side in ends for name in codes]
    schema = pa.schema([*fields, *((name, at.type) for name, at in more.items())])
    part = trips.cumsum() // AT_ONCE
    with pq.ParquetWriter(file, schema) as writer:
        for pairs in np.split(np.arange(len(trips)), np.flatnonzero(np.diff(part)) + 1):
            rows = pa.array(pairs.repeat(trips[pairs]))
            numbers = {side: pa.array(at).take(rows) for side, at in ends.items()}
            taken = [code.take(numbers[side]) for side in ends for code in codes.values()]
            writer.write_table(pa.table([*taken, *(at.take(rows) for at in more.values())], schema=schema))
