"""Name the published numbers whose accuracy determines a division of the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from od_core.errors import OdError
from od_core.geography.flow_tree import FlowTree
from od_core.records.segments import Breakdown

Part = Literal["all", "within", "outflow", "inflow"]


@dataclass(frozen=True)
class Quantity:
    """The flows of a pair of levels, or the trips within, from or to each area of a level.

    Attributes:
        name: text that names the quantity; see :meth:`named`.
        origin_level, destination_level: numbers of the levels.
        part: ``all`` pairs of areas; ``within``, the pairs of an area with itself; ``outflow`` and ``inflow``, the
            trips between an area and all other areas of its level.
        breakdown: breakdown by whose categories the trips are counted; None for all trips.
    """

    name: str
    origin_level: int
    destination_level: int
    part: Part = "all"
    breakdown: Breakdown | None = None

    @classmethod
    def named(cls, text: str, tree: FlowTree, breakdowns: Sequence[Breakdown] = ()) -> Quantity:
        """Return the quantity that a text names.

        Args:
            text: such as ``state x region``, ``state within``, ``state outflow``, ``state inflow``, or one of these
                followed by a breakdown, such as ``state x state by mode``.
            tree: flow tree of the release.
            breakdowns: breakdowns of the release.

        Raises:
            OdError: There is no such level, side or breakdown. The message names the most similar quantity.
        """
        known = _quantities(tree, breakdowns)
        name = " ".join(str(text).split())
        if name not in known:
            near = get_close_matches(name, known, 1)
            levels = ", ".join(dict.fromkeys((*tree.origin.level_names, *tree.destination.level_names)))
            raise OdError(
                "OD-QUANTITY-UNKNOWN",
                f"there is no quantity {name!r} ({f'did you mean {near[0]!r}?' if near else f'levels: {levels}'})",
                next_step="write it as 'state x region' or 'state outflow', and 'by' with a breakdown after it",
            )
        return known[name]


def _quantities(tree: FlowTree, breakdowns: Sequence[Breakdown]) -> dict[str, Quantity]:
    """Return all quantities of a release by name."""
    origins, destinations = tree.origin.level_names, tree.destination.level_names
    found = [
        Quantity(f"{origin} x {destination}", o, d)
        for o, origin in enumerate(origins)
        for d, destination in enumerate(destinations)
    ]
    if tree.origin.digest == tree.destination.digest:
        for level, name in list(enumerate(origins))[1:]:
            parts: tuple[Part, ...] = ("within", "outflow", "inflow")
            found += [Quantity(f"{name} {part}", level, level, part) for part in parts]
    every = {one.name: one for one in found}
    for breakdown in breakdowns:
        for one in found:
            name = f"{one.name} by {breakdown.name}"
            every[name] = Quantity(name, one.origin_level, one.destination_level, one.part, breakdown)
    return every
