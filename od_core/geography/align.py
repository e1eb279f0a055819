"""Geographies of origins and destinations made equally deep: a flow tree needs as many levels of both."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography, Numbers


def equally_deep(origin: Geography, destination: Geography) -> tuple[Geography, Geography]:
    """Both geographies with as many levels as the deeper one has.

    The first level of the shallower one is repeated below itself, as ``<level>_2``, ``<level>_3`` and so on: the same
    areas, each the only child of itself, which cost nothing under shares by the geography. Its coarse areas are
    repeated, since a repeated fine level would open small cells early in the tree.

    Raises:
        OdError: the shallower one has a level of such a name already.
    """
    depth = max(origin.depth, destination.depth)
    return _repeated(origin, depth - origin.depth), _repeated(destination, depth - destination.depth)


def repeated_levels(geography: Geography) -> list[str]:
    """Names of the levels whose areas are those of the level above, code by code."""
    return [
        name
        for name, (above, codes) in zip(geography.levels[1:], pairwise(geography.codes[1:]), strict=True)
        if codes == above
    ]


def repetition_sentence(tree: FlowTree) -> str | None:
    """What readers must know of levels that stand twice in a flow tree; None where there are none."""
    sides = {"origins": repeated_levels(tree.origin), "destinations": repeated_levels(tree.destination)}
    if not any(sides.values()):
        return None
    said = [f"of the {side} {' and '.join(levels)}" for side, levels in sides.items() if levels]
    return (
        "Origins and destinations have equally many levels, so that some have the areas of the level above once more:"
        f" {', '.join(said)}. Flows at such a level are those of the level above."
    )


def _repeated(geography: Geography, times: int) -> Geography:
    """The geography with its first level so many times more."""
    if times == 0:
        return geography
    first, codes = geography.levels[0], geography.codes[1]
    itself: Numbers = geography.parents[1].copy()
    itself[:] = range(len(codes))
    return replace(
        geography,
        levels=(first, *(f"{first}_{copy}" for copy in range(2, times + 2)), *geography.levels[1:]),
        codes=(*geography.codes[:2], *[codes] * times, *geography.codes[2:]),
        parents=(*geography.parents[:2], *[itself] * times, *geography.parents[2:]),
    )
