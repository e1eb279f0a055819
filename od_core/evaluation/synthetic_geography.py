"""Make the geographies of synthetic flows: codes of digits, and codes as in Italy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from od_core.geography.codes import WHOLE_SPACE
from od_core.geography.geography import Geography

Counts = NDArray[np.int64]

TOWN = 3
"""Level of the towns in Italian geographies."""


def digit_geography(fan_outs: Sequence[Counts]) -> Geography:
    """Return a geography in which an area's code is its parent's code and one more digit.

    ``fan_outs`` has the number of children of each area, in one array per level, from the whole space down.
    """
    codes = [[""]]
    for counts in fan_outs:
        codes.append(
            [f"{above}{child}" for above, count in zip(codes[-1], counts, strict=True) for child in range(count)]
        )
    return _geography([f"level_{level}" for level in range(1, len(codes))], codes[1:], fan_outs)


def italian_geography(*fan_outs: Counts) -> Geography:
    """Return a geography with codes as in Italy: a town's code begins with its province's, a section's with its town's.

    ``fan_outs`` has the number of children of each area, in one array per level, from the regions down.
    """
    province_counts, town_counts, *_ = fan_outs
    fan_outs = (np.array([len(province_counts)]), *fan_outs)
    codes = [_numbered([""], [len(province_counts)], 2), _numbered([""], [len(town_counts)], 3)]
    codes.append(_numbered(codes[-1], town_counts, 3))
    if len(fan_outs) > TOWN:
        area_counts, section_counts = fan_outs[TOWN:]
        first_area = np.cumsum(area_counts) - area_counts
        codes.append(_numbered(codes[-1], area_counts, 3))
        codes.append(_numbered(codes[TOWN - 1], np.add.reduceat(section_counts, first_area), 6))
    return _geography(["region", "province", "town", "section_area", "section"][: len(codes)], codes, fan_outs)


def _numbered(prefixes: Sequence[str], counts: Sequence[int] | Counts, width: int) -> list[str]:
    """Return each prefix followed by the numbers 1 to its count, in ``width`` digits."""
    return [
        f"{prefix}{n:0{width}d}" for prefix, count in zip(prefixes, counts, strict=True) for n in range(1, count + 1)
    ]


def _geography(levels: Sequence[str], codes: Sequence[Sequence[str]], fan_outs: Sequence[Counts]) -> Geography:
    parents = [np.repeat(np.arange(len(counts), dtype=np.int32), counts) for counts in fan_outs]
    return Geography(tuple(levels), ((WHOLE_SPACE,), *map(tuple, codes)), (np.empty(0, dtype=np.int32), *parents))
