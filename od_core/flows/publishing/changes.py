"""Compute the changes of flows between two releases, with 90 % intervals, and say what else may have made them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from od_core.errors import OdError
from od_core.flows.arrays import Integers, Reals
from od_core.flows.estimators import ESTIMATORS, declared_estimator
from od_core.flows.interval_ends import DEVIATIONS
from od_core.flows.release import Release
from od_core.geography.geography import Geography
from od_core.periods import Period
from od_core.publication.templates import filled_data
from od_core.records.segments import find

_PAIR = ["origin", "destination"]
_COMPUTED = ("before", "after", "change", "significant")
"""Columns of changes whose names a breakdown may have."""

_EXAMPLES = 3
"""Largest number of areas that an error message names."""

_BOUNDS = ("unit", "contribution_bound", "max_trips_pair", "max_trips_year", "max_weight")
"""Facts of a plan that say which trips of a user, or how many of a record, are counted."""

_UNKNOWN: Mapping[str, Any] = MappingProxyType({})
"""A certificate that is not known."""


def cautions(unit: str, before: Mapping[str, Any] = _UNKNOWN, after: Mapping[str, Any] = _UNKNOWN) -> str:
    """Return sentences on other causes of changes than travel, each after a space; an empty text if none is known.

    It is the bound of a user's trips in a year, by the kind of ``unit``, and different trips that are counted and
    different rules of estimation, by the certificates of the releases ``before`` and ``after``.
    """
    rules: list[str] = []
    alike = not (before and after) or counts_alike(before, after)
    if before and after:
        pairs = zip(rules_of(before), rules_of(after), strict=True)
        rules = next(([*pair] for pair in pairs if pair[0] != pair[1]), [])
    sentences = filled_data("changes.yaml", unit=unit, alike=alike, rules=rules, before=before, after=after)
    return "".join(f" {sentence}" for sentence in sentences.values() if sentence)


def counts_alike(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether two releases count the same trips of periods of one length, given their certificates.

    Those of derived flows, which have no plan of their own, are taken to count within the same bounds.
    """
    return compared(before) == compared(after)


def compared(certificate: Mapping[str, Any]) -> dict[str, Any]:
    """Return what two releases have in common if their flows are compared: what is counted, and in how much time."""
    period = Period(certificate["period"])
    months = len(period.parts("month"))
    return counted(certificate) | {"length": f"{months} months" if months else f"{period.days} days"}


def counted(certificate: Mapping[str, Any]) -> dict[str, Any]:
    """Return what says which trips of which records a release counts: bounds, the selection of records, and columns.

    Not compared are other columns and files, whose names may change with each period, and the codes that name no place,
    which only say in which area a record is counted. A breakdown selects records only if it leaves out unlisted ones.
    """
    plan, records = certificate.get("plan", {}), certificate.get("records") or {}
    return {
        "bounds": [plan.get(name) for name in _BOUNDS],
        "columns": [records.get("columns", {}).get(name) for name in ("trips", "weight")],
        "categories": {column: sorted(values) for column, values in records.get("categories", {}).items()},
        "columns.segments": {
            name: facts for name, facts in categorised(certificate).items() if facts["unknown"] is None
        },
    }


def categorised(certificate: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return, by breakdown, what says which records are of which category: all but the name of the column."""
    sources = (certificate.get("records") or {}).get("columns", {}).get("segments", {})
    declared = certificate.get("plan", {}).get("segments", {}).get("breakdowns", [])
    return {
        one["name"]: one | sources.get(one["name"], {}) | {"column": None, "categories": sorted(one["categories"])}
        for one in declared
    }


def rules_of(certificate: Mapping[str, Any]) -> list[str]:
    """Return the names of the mechanism of a release and of its rule of estimation, the chosen or the declared one."""
    options = certificate["mechanism"]["options"]
    rule, u = declared_estimator(options), options.get("u")
    if "estimation" in certificate:
        rule, u = ESTIMATORS[certificate["estimation"]["rule"]], certificate["estimation"]["u"]
    return [certificate["mechanism"]["name"], rule.texts["name"] + ("" if u is None else f" with u = {u}")]


def changes(
    before: Release, after: Release, origin_level: str, destination_level: str, segment: str | None = None
) -> pd.DataFrame:
    """Return the changes between two releases of flows at a pair of levels, largest first.

    If one release gives x in [l, u] and the other x' in [l', u'], the interval of the change c = x' - x is

        [c - sqrt((x' - l')^2 + (u - x)^2),  c + sqrt((u' - x')^2 + (x - l)^2)],

    rounded outwards [zou2008construction, section 2]. Suppose that both errors are normal around 0 with standard
    deviations s and s', and that the intervals are x +- z s and x' +- z s', where z is a quantile of the normal
    distribution. The error of c is then normal with variance s^2 + s'^2, since the noise of two releases is
    independent. The interval is c +- z sqrt(s^2 + s'^2), with the same confidence as the two intervals, 90 %.

    If an interval is cut at 0, x - l is smaller than z s. With the formula above, the interval of the change would then
    contain the true change in only 82 % of cases if one release has five times the noise of the other. So if l is 0,
    the larger of x - l and u - x replaces x - l in the formula. The same applies to l', x' and u'. Finally, the
    interval is cut to [l' - u, u' - l], which contains the true change whenever both intervals contain the true counts.

    A change is read because it is large, and noise made it so. So, of an increase, the lower end is instead, uncut,

        c - sqrt(max(x' - l', k (u' - x'))^2 + (k (u - x))^2),

    where k is the ratio of the deviations of changes (:class:`od_core.flows.interval_ends.Selection`) to the deviations
    of an interval of what was not selected; and the upper end of a decrease accordingly. Most flows that are above 0 in
    either release differ, so the release with more of them tells how many were selected, of which the largest hundred
    are read. If at most a hundred flows are public, and all are above 0, or if one of the releases is of a bundle whose
    intervals do not allow for it, k is 1.
    ``docs/how-to/read-a-release.md`` reports how often the intervals contained the true change.

    Args:
        before, after: two different releases between the same areas, whose noise must be independent.
        origin_level, destination_level: names of levels.
        segment: name of a breakdown of both releases, to compare the flows in each of its categories.

    Returns:
        One row for each pair (and category) that either release lists: origin, destination, with ``segment`` a column
        of that name (if another one has it, such as change: ``change_category``), before, after, change (trips, int64),
        lower, upper (Int64), significant (whether 0 lies outside the interval). The bounds are missing if one release
        does not list the pair, which happens only at levels with more than
        :data:`od_core.publication.columns.MOST_LISTED` public pairs. Of the pairs that did not change, up to one in ten
        is still marked as significant.

    Raises:
        OdError: a level or the breakdown is unknown, a release has no intervals, or the categories or the areas differ.
    """
    for side in _PAIR:
        _refuse_other_areas(side, getattr(before.plan.tree, side), getattr(after.plan.tree, side))
    if segment is not None:
        listed, other = ({*find(release.plan.breakdowns, segment).categories} for release in (before, after))
        if differing := sorted(listed ^ other):
            raise OdError(
                "OD-SEGMENT-OTHER",
                f"the two releases have different categories of {segment!r}: {_named(differing)} only in one of them",
                next_step="compare releases with the same categories, or compare the totals",
            )
    tree = before.tree
    levels = tree.origin.level_number(origin_level), tree.destination.level_number(destination_level)
    old, new = (
        release.flows_at(origin_level, destination_level, segment=segment, interval=True) for release in (before, after)
    )
    deviations = min(release.selection(levels, segment).deviations_of_changes for release in (before, after))
    return changes_of_tables(old, new, _PAIR if segment is None else [*_PAIR, segment], deviations)


def changes_of_tables(
    old: pd.DataFrame, new: pd.DataFrame, cell: list[str] = _PAIR, deviations: float = DEVIATIONS
) -> pd.DataFrame:
    """Return the :func:`changes` between two tables of flows with intervals; ``cell`` names their keys.

    The noise of the tables must be independent. ``deviations`` are those of the flows that were selected.
    """
    merged = old.merge(new, how="outer", on=cell, suffixes=(" old", " new"))  # a space, as in no breakdown's name
    trips, down, up, reach_down = _ends(merged, "old")
    new_trips, new_down, new_up, new_reach_down = _ends(merged, "new")
    change = new_trips - trips
    lower = change - np.minimum(_root(new_reach_down, up), new_down + up)
    upper = change + np.minimum(_root(new_up, reach_down), new_up + down)
    if (k := deviations / DEVIATIONS) > 1:
        lower = np.where(change > 0, change - _root(np.maximum(new_down, k * new_up), k * up), lower)
        upper = np.where(change < 0, change + _root(k * new_up, np.maximum(down, k * up)), upper)
    table = merged[cell].rename(columns={name: f"{name}_category" for name in _COMPUTED})
    table = table.assign(before=trips, after=new_trips, change=change)
    table["lower"], table["upper"] = (pd.Series(bound).astype("Int64") for bound in (lower, upper))
    table["significant"] = ((table["lower"] > 0) | (table["upper"] < 0)).fillna(value=False).astype(bool)
    return table.sort_values("change", key=lambda column: -column.abs(), kind="stable", ignore_index=True)


def _root(one: Reals, other: Reals) -> Reals:
    """Return the roots of the sums of two squares, rounded up to whole numbers."""
    return np.ceil(np.sqrt(one**2 + other**2))


def _ends(both: pd.DataFrame, which: str) -> tuple[Integers, Reals, Reals, Reals]:
    """Return the flows of one of the two releases, and how far their intervals reach; shape (pairs,) each.

    The trips are 0, and the distances NaN, if the release does not list the pair. The distances are those to the lower
    and the upper bound, and that to the lower bound as if the interval were not cut at 0: if the lower bound is 0, the
    larger of both.
    """
    trips, lower, upper = (
        both[f"{name} {which}"].to_numpy(np.float64, na_value=np.nan) for name in ("trips", "lower", "upper")
    )
    down, up = trips - lower, upper - trips
    reach_down = np.where(lower == 0, np.maximum(down, up), down)
    return np.nan_to_num(trips).astype(np.int64), down, up, reach_down


def _refuse_other_areas(side: str, before: Geography, after: Geography) -> None:
    """Raise OdError if two geographies differ. The message names the side and the first level that differs."""
    if before.digest == after.digest:
        return
    if before.levels != after.levels:
        named = (", ".join(geography.levels) or "none" for geography in (before, after))
        raise _other_areas(f"the {side} levels are {' and '.join(named)}")
    for level, name in enumerate(before.levels, start=1):
        first, second = _parents(before, level), _parents(after, level)
        for areas, other_areas, where in ((first, second, "first"), (second, first, "second")):
            if missing := sorted(areas.keys() - other_areas.keys()):
                raise _other_areas(f"of {side} level {name!r} {_named(missing)} only in the {where} release")
        if moved := sorted(area for area, parent in first.items() if second[area] != parent):
            raise _other_areas(f"of {side} level {name!r} {_named(moved)} in other areas of the level above")
    raise _other_areas(f"the {side} zones for unknown places are {before.unknown!r} and {after.unknown!r}")


def _parents(geography: Geography, level: int) -> dict[str, str]:
    """Return a mapping from the code of each area of a level to the code of the area that contains it."""
    above = geography.codes[level - 1]
    return {area: above[parent] for area, parent in zip(geography.codes[level], geography.parents[level], strict=True)}


def _named(areas: list[str]) -> str:
    """Return the first areas of a list, the number of further areas, and the verb "is" or "are", as text."""
    more = f" and {len(areas) - _EXAMPLES} more" if len(areas) > _EXAMPLES else ""
    return f"{', '.join(areas[:_EXAMPLES])}{more} {'is' if len(areas) == 1 else 'are'}"


def _other_areas(message: str) -> OdError:
    return OdError(
        "OD-CHANGES-GEOGRAPHY",
        f"the two releases have different areas: {message}",
        next_step="compare releases that have the same geography",
    )
