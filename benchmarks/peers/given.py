"""Write what every contender is given: the trips, the public areas, and the budget.

``trips.parquet`` has one row a trip, with the codes of its origin and destination at every level (``origin_LEVEL`` and
``destination_LEVEL``). ``areas_LEVEL.csv`` lists the public areas of a level, ``zones.csv`` each zone with the areas
that contain it, and ``settings.json`` the levels, top level first, epsilon, delta, and the rho that exact accounting
permits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.peers.measures import summed
from od_core import Budget, Geography, PrivacyUnit, plan_release
from od_core.evaluation.known_flows import KnownFlows
from od_core.evaluation.metrics import leaves_of
from od_core.privacy.accounting import float_above
from od_core.privacy.neighbours import NO_FAULTS

DELTA = "1e-6"


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


TRIP = PrivacyUnit("trip", neighbours="unbounded")


def permitted_rho(geography: Geography, epsilon: str, unit: PrivacyUnit = TRIP) -> float:
    """Return the rho of Gaussian noise that exact accounting permits, for one unit that is added or removed."""
    plan = plan_release(geography, unit=unit, budget=Budget(epsilon, DELTA), acceptance=NO_FAULTS)
    return float_above(plan.spent.rho)


def write_given(folder: Path, data: KnownFlows, epsilon: str) -> None:
    """Write the files of a data set and of a budget to a folder; see the module docstring."""
    levels = levels_of(data)
    ends = np.nonzero(levels.true[-1])
    repeats = levels.true[-1][ends].astype(np.int64)
    settings = {"rho": permitted_rho(data.geography, epsilon)}
    write_trips(folder, levels, [np.repeat(zones, repeats) for zones in ends], epsilon, settings, {})


def write_trips(
    folder: Path,
    levels: Levels,
    ends: Sequence[NDArray[np.int64]],
    epsilon: str,
    settings: Mapping[str, Any],
    columns: Mapping[str, Any],
) -> None:
    """Write the files of trips to a new folder; see the module docstring.

    Args:
        folder: folder that is made.
        levels: levels of the geography.
        ends: numbers of the zones of the origins and of the destinations; shape (trips,) each.
        epsilon: budget.
        settings: more settings, such as rho.
        columns: more columns of the trips, such as the users; shape (trips,) each.
    """
    folder.mkdir(parents=True)
    zones: dict[str, Any] = {levels.names[-1]: np.arange(len(levels.codes[-1]))}
    for name, parents in zip(levels.names[-2::-1], levels.parents[::-1], strict=True):
        zones = {name: parents[next(iter(zones.values()))], **zones}
    listed = pd.DataFrame({name: np.array(levels.codes[k])[at] for k, (name, at) in enumerate(zones.items())})
    listed.to_csv(folder / "zones.csv", index=False)
    areas: dict[str, Any] = {}
    for side, of_trips in zip(("origin", "destination"), ends, strict=True):
        for name in levels.names:
            areas[f"{side}_{name}"] = listed[name].to_numpy(dtype=object)[of_trips]
    pd.DataFrame({**areas, **columns}).to_parquet(folder / "trips.parquet", index=False)
    for name, codes in zip(levels.names, levels.codes, strict=True):
        pd.DataFrame({"area": codes}).to_csv(folder / f"areas_{name}.csv", index=False)
    known = {"levels": levels.names, "epsilon": float(epsilon), "delta": float(DELTA), **settings}
    (folder / "settings.json").write_text(json.dumps(known), encoding="utf-8")
