"""All neighbours of a tiny input, which differ in the records of one unit, and what changes between them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, combinations_with_replacement
from typing import Any

import numpy as np
import pandas as pd

from od_core import Geography, PrivacyUnit, ReleasePlan
from od_core.records.counting import count_trips
from od_core.records.counts import TripCounts
from tests.od_core.strategies import text

LISTED = Geography.from_frame(pd.DataFrame({"zone": ["a", "b"]}), ["zone"])
UNKNOWN = Geography.from_frame(pd.DataFrame({"zone": ["a", "b", "?"]}), ["zone"], unknown="?")

Rows = tuple[tuple[Any, ...], ...]
"""Records: origin, destination, a category of each breakdown, weight, and user in column ``id``."""


def counted(plan: ReleasePlan, rows: Iterable[tuple[Any, ...]]) -> TripCounts:
    """Count some records for a plan."""
    names = ["origin", "destination", *(one.name for one in plan.breakdowns)]
    columns = dict(zip([*names, "weight", "id"], zip(*rows, strict=True), strict=True))
    frame = pd.DataFrame({name: text(columns[name]) for name in names})
    if plan.tree.has_one_side:
        frame = frame.rename(columns={"origin": "area"}).drop(columns="destination")
    if plan.unit.max_weight is not None:
        frame["weight"] = columns["weight"]
    if plan.unit.kind != "trip":
        frame["id"] = text(columns["id"])
    threshold, breakdowns = plan.acceptance.fault_threshold, plan.breakdowns
    given = {"key": bytes(range(32)), "period": "2001-06", "fault_threshold": threshold, "breakdowns": breakdowns}
    return count_trips(frame, plan.tree, unit=plan.unit, **given)


def of_one_unit(unit: PrivacyUnit, rows: Sequence[tuple[Any, ...]]) -> Iterator[Rows]:
    """Yield none, one or several records of a unit, and more than are counted of it."""
    sizes = range(2) if unit.kind == "trip" else range(unit.contribution_bound + 2)
    return chain.from_iterable(combinations_with_replacement(rows, size) for size in sizes)


def changes(plan: ReleasePlan, inputs: Mapping[Rows, Mapping[Any, np.ndarray]]) -> Iterator[dict[Any, np.ndarray]]:
    """Yield by query, for each two neighbours, the change of what is answered to them."""
    if plan.unit.neighbours == "bounded":
        pairs = combinations([rows for rows in inputs if rows or plan.unit.kind != "trip"], 2)
    else:
        pairs = (((), rows) for rows in inputs)
    for one, other in pairs:
        yield {query: values - inputs[other][query] for query, values in inputs[one].items()}


def squared_changes(plan: ReleasePlan, inputs: Mapping[Rows, Mapping[Any, np.ndarray]]) -> Iterator[dict[Any, int]]:
    """Yield by query, for each two neighbours, the squared change of what is answered to them."""
    for changed in changes(plan, inputs):
        yield {query: int((change**2).sum()) for query, change in changed.items()}
