"""Compute the changes of flows between two releases, with 90 % intervals, and say what else may have made them."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from od_core.errors import OdError
from od_core.flows.arrays import Reals
from od_core.flows.estimators import ESTIMATORS, find_estimator
from od_core.flows.interval_ends import DEVIATIONS
from od_core.flows.release import Release
from od_core.geography.geography import Geography
from od_core.languages import translate
from od_core.meaning.subject import Subject
from od_core.publication.certificate import Certificate
from od_core.publication.comparability import Comparability, check_comparability
from od_core.publication.templates import render_data
from od_core.records.segments import find_breakdown

_PAIR = ["origin", "destination"]
PER_DAY = {name: f"{name}_per_day" for name in ("before", "after", "change", "lower", "upper")}
"""Columns of changes per day, by those of whole periods."""

_COMPUTED = ("before", "after", "change", "significant", *PER_DAY.values())
"""Computed columns of changes. If a breakdown has one of these names, its column is renamed."""

_EXAMPLES = 3
"""Largest number of areas that an error message names."""

_UNKNOWN: Any = MappingProxyType({})
"""A certificate that is not known."""


def describe_cautions(
    subject: Subject, before: Certificate = _UNKNOWN, after: Certificate = _UNKNOWN, *, lengths: bool = True
) -> str:
    """Return sentences on what may change released flows other than travel; an empty text if nothing is known.

    A space precedes each sentence. The ``subject`` may bound a user's trips in a year, which affects later periods. If
    the certificates ``before`` and ``after`` are given, the sentences also state why the releases are not comparable
    (:func:`check_comparability`), the days of their periods unless ``lengths`` is False, and that their mechanisms or
    rules of estimation differ.
    """
    differing_rules: list[str] = []
    comparability = Comparability()
    if before and after:
        comparability = check_comparability(before, after)
        (mechanism, rule), (new_mechanism, new_rule) = name_mechanism_and_rule(before), name_mechanism_and_rule(after)
        if mechanism != new_mechanism:
            differing_rules = [mechanism, new_mechanism]
        elif rule != new_rule:
            differing_rules = [rule, new_rule]
    values = {
        "subject": subject,
        "comparable": comparability,
        "rules": differing_rules,
        "before": before,
        "after": after,
        "lengths": lengths,
    }
    return "".join(f" {sentence}" for sentence in render_data("changes.yaml", **values).values() if sentence)


def name_mechanism_and_rule(certificate: Certificate) -> tuple[str, str]:
    """Return the name of the mechanism of a release, and the name of its rule of estimation.

    The rule is the one that was chosen from the measurements or, if none was chosen, the declared one. If the rule has
    the option u of empirical Bayes, the name states it.
    """
    options = certificate["mechanism"]["options"]
    rule, u = find_estimator(options), options.get("u")
    if "estimation" in certificate:
        rule, u = ESTIMATORS[certificate["estimation"]["rule"]], certificate["estimation"]["u"]
    name = rule.texts["name"]
    rule_name = translate(name)
    if u is not None:
        rule_name = translate("{rule} with u = {u}").format(rule=rule_name, u=u)
    return certificate["mechanism"]["name"], rule_name


def changes(
    before: Release,
    after: Release,
    origin_level: str,
    destination_level: str,
    segment: str | None = None,
    days: tuple[int, int] = (1, 1),
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

    Readers look at large changes, which noise may have made large. To allow for this selection, the lower end of an
    increase is, without the cut,

        c - sqrt(max(x' - l', k (u' - x'))^2 + (k (u - x))^2),

    and the upper end of a decrease accordingly. Here, k is the number of deviations for selected changes
    (:class:`od_core.flows.interval_ends.Selection`), divided by the number of deviations without selection. It follows
    from the release with more flows above 0, of whose changes readers are taken to read the hundred largest. It is 1 if
    at most a hundred flows are public and all are above 0, or if the intervals of a release do not allow for selection,
    as in early bundles. ``docs/how-to/read-a-release.md`` reports how often the intervals contained the true change.

    If the periods have different numbers of days d and d', the changes per day are added. They are computed from x / d
    in [l / d, u / d] and x' / d' in [l' / d', u' / d'], and rounded outwards to whole trips in lcm(d, d') days.

    Args:
        before, after: two different releases between the same areas, whose noise must be independent.
        origin_level, destination_level: names of levels.
        segment: name of a breakdown of both releases, to compare the flows in each of its categories.
        days: numbers of days of the two periods, which a release itself does not know. If they are equal, they make no
            difference.

    Returns:
        One row for each pair (and category) that either release lists: origin, destination, with ``segment`` a column
        of that name (if another one has it, such as change: ``change_category``), before, after, change (trips, int64),
        lower, upper (Int64), significant (whether 0 lies outside the interval). The bounds are missing if one release
        does not list the pair, which happens only at levels with more than
        :data:`od_core.publication.columns.MOST_LISTED` public pairs. Of the pairs that did not change, up to one in ten
        is still marked as significant. With periods of different numbers of days there are also the columns of
        :data:`PER_DAY` (Float64), and ``significant`` and the order are those of changes per day.

    Raises:
        OdError: a level or the breakdown is unknown, a release has no intervals, or the categories or the areas differ.
    """
    for side in _PAIR:
        _refuse_other_areas(side, getattr(before.plan.tree, side), getattr(after.plan.tree, side))
    if segment is not None:
        categories, other_categories = (
            {*find_breakdown(release.plan.breakdowns, segment).categories} for release in (before, after)
        )
        differing = sorted(categories ^ other_categories)
        if differing:
            raise OdError(
                "OD-SEGMENT-OTHER",
                f"the two releases have different categories of {segment!r}: "
                f"{_format_examples_with_verb(differing)} only in one of them",
                next_step="compare releases with the same categories, or compare the totals",
            )
    tree = before.tree
    levels = tree.origin.find_level_number(origin_level), tree.destination.find_level_number(destination_level)
    old, new = (
        release.flows_at(origin_level, destination_level, segment=segment, interval=True) for release in (before, after)
    )
    deviations = min(release.make_selection(levels, segment).deviations_of_changes for release in (before, after))
    return compute_table_changes(old, new, _PAIR if segment is None else [*_PAIR, segment], deviations, days)


def compute_table_changes(
    old: pd.DataFrame,
    new: pd.DataFrame,
    cell: list[str] = _PAIR,
    deviations: float = DEVIATIONS,
    days: tuple[int, int] = (1, 1),
) -> pd.DataFrame:
    """Return the :func:`changes` between two tables of flows with intervals, for all rows of either table.

    The noise of the tables must be independent. ``cell`` names the columns that identify a row. ``deviations`` are the
    deviations of changes of the selected flows (:class:`od_core.flows.interval_ends.Selection`), and ``days`` the
    numbers of days of the two periods.
    """
    merged = old.merge(new, how="outer", on=cell, suffixes=(" old", " new"))  # a space, as in no breakdown's name
    table = merged[cell].rename(columns={name: f"{name}_category" for name in _COMPUTED})
    old_numbers, new_numbers = _select_numbers(merged, "old"), _select_numbers(merged, "new")
    for name, (trips, _lower, _upper) in (("before", old_numbers), ("after", new_numbers)):
        table[name] = np.nan_to_num(trips).astype(np.int64)
    change, lower, upper = _compute_changes(old_numbers, new_numbers, deviations)
    table["change"] = change.astype(np.int64)
    table["lower"] = pd.Series(lower).astype("Int64")
    table["upper"] = pd.Series(upper).astype("Int64")
    ordered_by = "change"
    old_days, new_days = days
    if old_days != new_days:
        ordered_by = PER_DAY["change"]
        common_days = math.lcm(*days)
        table[PER_DAY["before"]] = (table["before"] / old_days).astype("Float64")
        table[PER_DAY["after"]] = (table["after"] / new_days).astype("Float64")
        # Whole numbers of trips in the common number of days, so that ends are rounded outwards to whole trips.
        old_scaled, new_scaled = old_numbers * (common_days // old_days), new_numbers * (common_days // new_days)
        change, lower, upper = _compute_changes(old_scaled, new_scaled, deviations)
        for name, values in (("change", change), ("lower", lower), ("upper", upper)):
            table[PER_DAY[name]] = pd.Series(values / common_days).astype("Float64")
    table["significant"] = (lower > 0) | (upper < 0)
    return table.sort_values(ordered_by, key=lambda column: -column.abs(), kind="stable", ignore_index=True)


def use_numbers_per_day(changed: pd.DataFrame) -> pd.DataFrame:
    """Return a table of :func:`changes` in which changes per day, if there are any, replace those of whole periods."""
    if PER_DAY["change"] not in changed:
        return changed
    return changed.drop(columns=[*PER_DAY]).rename(columns={per_day: name for name, per_day in PER_DAY.items()})


def _compute_changes(old: Reals, new: Reals, deviations: float) -> tuple[Reals, Reals, Reals]:
    """Return the changes and the lower and upper ends of their intervals; shape (pairs,) each. See :func:`changes`.

    ``old`` and ``new`` are flows with the ends of their intervals, as :func:`_select_numbers` returns them. A flow that
    a release does not list counts as 0, and the ends of its change are NaN. In the code, ``down`` is x - l, ``up`` is
    u - x, and k widens intervals for selection.
    """
    trips, down, up, reach_down = _compute_reaches(old)
    new_trips, new_down, new_up, new_reach_down = _compute_reaches(new)
    change = new_trips - trips
    lower = change - np.minimum(_compute_root(new_reach_down, up), new_down + up)
    upper = change + np.minimum(_compute_root(new_up, reach_down), new_up + down)
    k = deviations / DEVIATIONS
    if k > 1:
        lower = np.where(change > 0, change - _compute_root(np.maximum(new_down, k * new_up), k * up), lower)
        upper = np.where(change < 0, change + _compute_root(k * new_up, np.maximum(down, k * up)), upper)
    return change, lower, upper


def _compute_root(leg: Reals, other_leg: Reals) -> Reals:
    """Return sqrt(leg^2 + other_leg^2), rounded up to whole numbers."""
    return np.ceil(np.sqrt(leg**2 + other_leg**2))


def _select_numbers(merged: pd.DataFrame, suffix: str) -> Reals:
    """Return the flows and the ends of their intervals in the columns with a suffix; shape (3, pairs), NaN if absent.

    The suffix, ``old`` or ``new``, names the release.
    """
    columns = [merged[f"{name} {suffix}"] for name in ("trips", "lower", "upper")]
    return np.stack([column.to_numpy(np.float64, na_value=np.nan) for column in columns])


def _compute_reaches(numbers: Reals) -> tuple[Reals, Reals, Reals, Reals]:
    """Return four arrays: the flows x, 0 if absent; x - l; u - x; and x - l of an interval without a cut at 0.

    ``numbers`` has the rows x, l and u; shape (3, pairs). Each array has the shape (pairs,). Where an interval was cut
    at 0, the larger of x - l and u - x stands for the last.
    """
    trips, lower, upper = numbers
    down, up = trips - lower, upper - trips
    reach_down = np.where(lower == 0, np.maximum(down, up), down)
    return np.nan_to_num(trips), down, up, reach_down


def _refuse_other_areas(side: str, before: Geography, after: Geography) -> None:
    """Raise OdError if two geographies differ. The message names the side and the first level that differs."""
    if before.digest == after.digest:
        return
    if before.levels != after.levels:
        named = (", ".join(geography.levels) or "none" for geography in (before, after))
        raise _make_geography_error(f"the {side} levels are {' and '.join(named)}")
    for level, name in enumerate(before.levels, start=1):
        first, second = _index_parents(before, level), _index_parents(after, level)
        for areas, other_areas, where in ((first, second, "first"), (second, first, "second")):
            missing = sorted(areas.keys() - other_areas.keys())
            if missing:
                raise _make_geography_error(
                    f"of {side} level {name!r} {_format_examples_with_verb(missing)} only in the {where} release"
                )
        moved = sorted(area for area, parent in first.items() if second[area] != parent)
        if moved:
            raise _make_geography_error(
                f"of {side} level {name!r} {_format_examples_with_verb(moved)} in other areas of the level above"
            )
    raise _make_geography_error(f"the {side} zones for unknown places are {before.unknown!r} and {after.unknown!r}")


def _index_parents(geography: Geography, level: int) -> dict[str, str]:
    """Return a mapping from the code of each area of a level to the code of the area that contains it."""
    above = geography.codes[level - 1]
    return {area: above[parent] for area, parent in zip(geography.codes[level], geography.parents[level], strict=True)}


def _format_examples_with_verb(areas: list[str]) -> str:
    """Return the first areas of a list, the number of further areas, and the verb "is" or "are", as text."""
    more = f" and {len(areas) - _EXAMPLES} more" if len(areas) > _EXAMPLES else ""
    return f"{', '.join(areas[:_EXAMPLES])}{more} {'is' if len(areas) == 1 else 'are'}"


def _make_geography_error(message: str) -> OdError:
    """Return the OdError for releases with different areas; ``message`` says which differ."""
    return OdError(
        "OD-CHANGES-GEOGRAPHY",
        f"the two releases have different areas: {message}",
        next_step="compare releases that have the same geography",
    )
