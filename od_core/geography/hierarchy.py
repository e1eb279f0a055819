"""Make levels from code prefixes or joined columns, and geographies of equal depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd

from od_core.errors import OdError, nearest_known
from od_core.geography.codes import COORDINATES, geography_fault, name_column, no_column, text_codes
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import BOUNDARY, Geography

JOINT = " / "
"""Separator between the codes of several columns that are joined into the code of one area."""


def with_prefixes(zones: pd.DataFrame, levels: Sequence[str], prefixes: Mapping[str, int]) -> pd.DataFrame:
    """Return a zone list with a further column for each level whose area codes are prefixes of the zone codes.

    The arguments are those of :func:`check_prefixes`. Raises OdError as it does; or if a level is also a column; the
    column of zone codes is missing, occurs twice or has an invalid code; or a code is shorter than a prefix.
    """
    if not prefixes:
        return zones
    check_prefixes(levels, prefixes)
    codes = _codes(zones, levels[-1], levels)
    longest = max(prefixes, key=lambda level: prefixes[level])
    short = next((code for code in codes if len(code) < prefixes[longest]), None)
    if short is not None:
        message = f"a zone's code is shorter than the {prefixes[longest]} characters of level {longest!r}"
        raise _fault(message, f"zone {short!r}")
    made = {level: [code[:size] for code in codes] for level, size in prefixes.items()}
    return _with_levels(zones, made, "a prefix of the zone's code")


def check_prefixes(levels: Sequence[str], prefixes: Mapping[str, int]) -> None:
    """Check the lengths of prefixes, by level. ``levels`` are coarse to fine; the last one is that of the zones.

    Raises OdError if a level with a prefix is not above the zones; a length is not a whole number of at least 1; or a
    prefix is not longer than that of a coarser level.
    """
    strange = [level for level in prefixes if level not in levels[:-1]]
    if strange:
        raise _fault(
            f"{strange[0]!r} has a prefix, but is not a level above the zones"
            f" ({nearest_known(strange[0], tuple(levels[:-1]))})"
        )
    above: str | None = None
    for level in levels[:-1]:
        size = prefixes.get(level)
        if size is None:
            continue
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise _fault(f"the prefix of level {level!r} is not a whole number of at least 1")
        if above is not None and size <= prefixes[above]:
            raise _fault(
                f"prefixes do not nest: the prefix of level {level!r} has {size} characters, which is not more than the"
                f" {prefixes[above]} characters of level {above!r} above it"
            )
        above = level


def with_joined(zones: pd.DataFrame, joined: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Return a zone list with an additional column for each level whose codes are joined from several columns.

    The codes are separated by ``JOINT``. ``joined`` has the columns to join, by level. Raises OdError if a level is
    also a column; a level has fewer than two columns; a column is missing or occurs twice; or a code contains ``JOINT``
    or is refused by :func:`od_core.geography.codes.check_codes`.
    """
    check_joined(joined)
    made = {}
    for level, columns in joined.items():
        parts = [_codes(zones, column, columns) for column in columns]
        for column, codes in zip(columns, parts, strict=True):
            holding = next((code for code in codes if JOINT in code), None)
            if holding is not None:
                message = f"column {column!r} has a code that contains {JOINT!r}, the separator in level {level!r}"
                raise _fault(message, f"code {holding!r}")
        made[level] = [JOINT.join(row) for row in zip(*parts, strict=True)]
    return _with_levels(zones, made, "a level joined from several columns")


def check_joined(joined: Mapping[str, Sequence[str]]) -> None:
    """Raise OdError if a joined level has fewer than two columns, or names a column twice."""
    for level, columns in joined.items():
        if isinstance(columns, str) or len(columns) < 2 or len(set(columns)) < len(columns):
            raise _fault(f"level {level!r} must be joined from at least two columns, each named once")


def _codes(zones: pd.DataFrame, column: str, expected: Sequence[str]) -> list[str]:
    """Return the codes of a column. Raises OdError if it is missing or occurs twice, or a code is not valid."""
    names = [str(name) for name in zones.columns]
    if column not in names:
        raise no_column("the zone list", column, names, expected)
    if names.count(column) > 1:
        raise geography_fault("OD-GEOGRAPHY-COLUMN", f"the list has column {column!r} more than once")
    return text_codes(zones[column], column)


def _with_levels(zones: pd.DataFrame, made: Mapping[str, Sequence[str]], other: str) -> pd.DataFrame:
    """Return a zone list with the codes of further levels. ``other`` says what they are, if one is also a column."""
    both = [level for level in made if level in zones.columns]
    if both:
        raise _fault(f"level {both[0]!r} is both a column of the zone list and {other}; rename the level")
    return zones.assign(**{level: pd.Series(codes, zones.index) for level, codes in made.items()})


def _fault(message: str, detail: str | None = None) -> OdError:
    return geography_fault("OD-GEOGRAPHY-LEVELS", message, detail)


def with_unknown_area(geography: Geography, code: str) -> Geography:
    """Return a geography with a further area at every level, all with the same code, for records from unlisted places.

    Raises OdError if the geography has an area with that code or a zone for unlisted places, or the code is not valid.
    """
    step = "choose another code, or name a listed zone"
    if geography.unknown is not None:
        message = f"the geography already has a zone for unknown places, {geography.unknown!r}"
        raise geography_fault("OD-GEOGRAPHY-UNKNOWN-ZONE", message, next_step=step)
    for level, codes in zip(geography.level_names, geography.codes, strict=True):
        if code in codes:
            raise geography_fault(
                "OD-GEOGRAPHY-UNKNOWN-ZONE",
                f"level {level!r} already has an area {code!r}, so it cannot be added for unknown places",
                next_step=step,
            )
    elsewhere = pd.DataFrame([dict.fromkeys(geography.levels, code)])
    return Geography.from_frame(
        pd.concat([geography.to_frame(), elsewhere], ignore_index=True),
        geography.levels,
        unknown=code,
        coordinates=None if geography.coordinates is None else COORDINATES,
        version=geography.version,
        names=None if geography.names is None else {level: name_column(level) for level in geography.levels},
        boundaries=None if geography.boundaries is None else BOUNDARY,
    )


def equally_deep(origin: Geography, destination: Geography) -> tuple[Geography, Geography]:
    """Return both geographies with as many levels as the deeper of the two.

    Copies of the first level are inserted below it, as ``<level>_2``, ``<level>_3`` and so on; each area of a copy is
    the only child of the same area in the level above. Copies cost no budget under the rule of shares ``geography``.
    The coarsest level is copied, because a copied fine level would cause small cells high in the flow tree. Raises
    OdError if a level with the name of a copy exists already.
    """
    depth = max(origin.depth, destination.depth)
    return _repeated(origin, depth - origin.depth), _repeated(destination, depth - destination.depth)


def level_up_to(geography: Geography, most: int) -> int:
    """Return the number of the finest level with at most ``most`` areas; 1 if every level has more."""
    fitting = [level for level in range(1, geography.depth + 1) if geography.size(level) <= most]
    return max(fitting, default=1)


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
