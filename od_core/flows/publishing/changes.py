"""Changes of flows between two releases, each with the interval that the two releases' own intervals give."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.release import Release
from od_core.geography.geography import Geography

_PAIR = ["origin", "destination"]
_EXAMPLES = 3
"""Areas that a message about unequal geographies names."""

Reals = NDArray[np.float64]


def changes(before: Release, after: Release, origin_level: str, destination_level: str) -> pd.DataFrame:
    """What changed between two releases of flows at a pair of levels, the largest change first.

    Where one release gives x with the interval [l, u] and the other x' with [l', u'], the change c = x' - x has

        [c - sqrt((x' - l')^2 + (u - x)^2),  c + sqrt((u' - x')^2 + (x - l)^2)],

    rounded outwards (Zou & Donner, "Construction of confidence limits about effect measures", Statistics in Medicine 27
    (2008), section 2). Where both errors are normal around 0 with standard deviations s and s', and the intervals are
    x +- z s, the error of c is normal with variance s^2 + s'^2, as the noise of two releases is independent: the
    interval is c +- z sqrt(s^2 + s'^2), and its level of confidence is that of the two, 90 %.

    An interval that is cut at 0 says less of the noise than that: as it stands the rule would then hold for 82 % where
    one release has five times the noise of the other. So below a bound of 0 the reach of the upper bound is taken,
    u - x for x - l, and the whole is cut at the plain difference [l' - u, u' - l], outside which the change lies in
    neither case. ``docs/reading.md`` says how often the interval was found to hold.

    Args:
        before, after: of the same areas, and not one release twice: its noise is not independent of itself.
        origin_level, destination_level: names of levels.

    Returns:
        One row a pair that either lists: origin, destination, before, after, change (trips, int64), lower, upper
        (Int64; missing where one of them does not list the pair, which is so above
        :data:`od_core.publication.columns.MOST_LISTED` public pairs alone), significant (whether 0 lies
        outside). Of pairs that did not change up to one in ten is significant all the same.

    Raises:
        OdError: an unknown level; geographies that differ, with the level and the areas that do.
    """
    for side in _PAIR:
        _refuse_other_areas(side, getattr(before.plan.tree, side), getattr(after.plan.tree, side))
    old, new = (release.flows_at(origin_level, destination_level, interval=True) for release in (before, after))
    return _changes(old, new)


def _changes(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """Of two tables with origin, destination, trips, lower, upper."""
    both = old.merge(new, how="outer", on=_PAIR, suffixes=("_old", "_new"))
    x, y = _Side.of(both, "old"), _Side.of(both, "new")
    change = y.trips - x.trips
    lower = change - np.minimum(_root_of_squares(y.reach_down, x.up), y.down + x.up)
    upper = change + np.minimum(_root_of_squares(y.up, x.reach_down), y.up + x.down)
    table = both[_PAIR].assign(before=x.trips, after=y.trips, change=change)
    table["lower"], table["upper"] = (pd.Series(bound).astype("Int64") for bound in (lower, upper))
    table["significant"] = ((table["lower"] > 0) | (table["upper"] < 0)).fillna(value=False).astype(bool)
    return table.sort_values("change", key=lambda column: -column.abs(), kind="stable", ignore_index=True)


@dataclass(frozen=True)
class _Side:
    """One release of two, by pair.

    Attributes:
        trips: released.
        down, up: how far its bounds are from that; not a number where the pair is not listed.
        reach_down: how far the noise reaches down: ``down``, or where that is cut at 0 as far as up.
    """

    trips: NDArray[np.int64]
    down: Reals
    up: Reals
    reach_down: Reals

    @classmethod
    def of(cls, both: pd.DataFrame, which: str) -> _Side:
        trips, lower, upper = (
            both[f"{name}_{which}"].to_numpy(np.float64, na_value=np.nan) for name in ("trips", "lower", "upper")
        )
        down, up = trips - lower, upper - trips
        reach_down = np.where(lower == 0, np.maximum(down, up), down)
        return cls(np.nan_to_num(trips).astype(np.int64), down, up, reach_down)


def _root_of_squares(one: Reals, other: Reals) -> Reals:
    """Of whole numbers, rounded up; a root that is whole stays what it is."""
    root: Reals = np.ceil(np.sqrt(one**2 + other**2))
    return root


def _refuse_other_areas(side: str, before: Geography, after: Geography) -> None:
    """Raises OdError where two geographies differ, with the first level that does."""
    if before.digest == after.digest:
        return
    if before.levels != after.levels:
        raise _other_areas(f"the {side} levels are {', '.join(before.levels)} and {', '.join(after.levels)}")
    for level, name in enumerate(before.levels, start=1):
        first, second = _parents(before, level), _parents(after, level)
        for one, other, where in ((first, second, "first"), (second, first, "second")):
            if missing := sorted(one.keys() - other.keys()):
                raise _other_areas(f"of {side} level {name!r} {_named(missing)} only in the {where} release")
        if moved := sorted(area for area, parent in first.items() if second[area] != parent):
            raise _other_areas(f"of {side} level {name!r} {_named(moved)} in other areas of the level above")
    raise _other_areas(f"the {side} zones for unknown places are {before.unknown!r} and {after.unknown!r}")


def _parents(geography: Geography, level: int) -> dict[str, str]:
    """The area above each area of a level."""
    above = geography.codes[level - 1]
    return {
        area: above[number]
        for area, number in zip(geography.codes[level], geography.parents[level].tolist(), strict=True)
    }


def _named(areas: list[str]) -> str:
    """The first areas of a list, and how many more there are."""
    more = f" and {len(areas) - _EXAMPLES} more" if len(areas) > _EXAMPLES else ""
    return f"{', '.join(areas[:_EXAMPLES])}{more} {'is' if len(areas) == 1 else 'are'}"


def _other_areas(message: str) -> OdError:
    return OdError(
        "OD-CHANGES-GEOGRAPHY",
        f"the two releases are not of the same areas: {message}",
        next_step="compare releases over one geography",
    )
