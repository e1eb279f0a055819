"""Give the geographies of origins and destinations the same number of levels, as a flow tree requires."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography


def equally_deep(origin: Geography, destination: Geography) -> tuple[Geography, Geography]:
    """Return both geographies with as many levels as the deeper of the two.

    Copies of the first level are inserted below the first level of the other geography, as ``<level>_2``, ``<level>_3``
    and so on. Each area of a copy is the only child of the same area in the level above. Copies cost no budget under
    the rule of shares ``geography``. The coarsest level is copied, because a copied fine level would cause small cells
    high in the flow tree.

    Raises:
        OdError: a level with the name of a copy exists already.
    """
    depth = max(origin.depth, destination.depth)
    return _repeated(origin, depth - origin.depth), _repeated(destination, depth - destination.depth)


def repeated_levels(geography: Geography) -> list[str]:
    """Return the names of the levels whose codes are exactly those of the level above."""
    return [
        name
        for name, (above, codes) in zip(geography.levels[1:], pairwise(geography.codes[1:]), strict=True)
        if codes == above
    ]


def repetition_sentence(tree: FlowTree) -> str | None:
    """Return a sentence that names the repeated levels of a flow tree, or None if there are none."""
    sides = {"origins": repeated_levels(tree.origin), "destinations": repeated_levels(tree.destination)}
    if not any(sides.values()):
        return None
    said = [f"of the {side} {' and '.join(levels)}" for side, levels in sides.items() if levels]
    return (
        "Origins and destinations must have the same number of levels, so some levels repeat the areas of the level"
        f" above: {', '.join(said)}. Flows at such a level equal those at the level above."
    )


def _repeated(geography: Geography, times: int) -> Geography:
    """Return the geography with ``times`` copies of its first level inserted below the first level."""
    if times == 0:
        return geography
    first, codes, names = geography.levels[0], geography.codes[1], geography.names
    itself = np.arange(len(codes), dtype=np.int32)
    return replace(
        geography,
        levels=(first, *(f"{first}_{copy}" for copy in range(2, times + 2)), *geography.levels[1:]),
        codes=(*geography.codes[:2], *[codes] * times, *geography.codes[2:]),
        parents=(*geography.parents[:2], *[itself] * times, *geography.parents[2:]),
        names=None if names is None else (*names[:2], *[names[1]] * times, *names[2:]),
    )
