"""Collect the flows of all periods of a series, for the page on which a reader sees how they changed."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from numpy.typing import NDArray

from od_core.flows.arrays import Integers, Reals
from od_core.flows.interval_ends import CHOSEN_BEFORE, Selection
from od_core.flows.publishing.changes import compute_table_changes, describe_cautions, use_numbers_per_day
from od_core.geography.codes import WHOLE_SPACE
from od_core.geography.geography import Geography
from od_core.publication.certificate import (
    Certificate,
    is_selected,
    read_subject,
)
from od_core.publication.comparability import Comparability, check_comparability, count_period_days
from od_core.publication.tables import build_published_geography
from od_core.published.site_release import SIDES, VALUES, SiteRelease

MOST_NUMBERS = 300_000
"""Largest number of flows of all periods together that the page of a series has, each with its interval."""

MOST_ROWS = 300
"""Largest number of areas of a level that the page lists without a program, those with the most trips."""


@dataclass(frozen=True, eq=False)
class OverTime:
    """The flows between large areas in each period of a series of releases, which have noise of their own.

    Areas of a side are numbered through its levels, the whole space first. The first axis of an array has length 3:
    trips, and the lower and upper end of their interval. The second axis has the periods. A number is NaN where a
    release does not list a pair.

    Attributes:
        periods: texts of the periods, oldest first.
        compared: for each period but the first, whether and how it is compared with the one before.
        days: number of days of each period.
        certificates: certificates of the releases, oldest first.
        sides: the areas of origins and of destinations, which are those of the newest period.
        depths: for each side, number of the most detailed level between whose areas the page has flows.
        listed: for each side, number of the most detailed level of whose areas the page has totals.
        values: flows down to the levels of ``depths``; shape (3, periods, origins, destinations).
        totals: trips of each area down to the level of ``listed``, by side; shape (3, periods, areas).
        selected: for each period, whether its intervals hold for flows that are read because they were released.
        have_laplace_noise: for each period, whether its measurements have Laplace noise.
    """

    periods: tuple[str, ...]
    compared: tuple[Comparability, ...]
    days: tuple[int, ...]
    certificates: tuple[Certificate, ...]
    sides: tuple[Geography, ...]
    depths: tuple[int, int]
    listed: tuple[int, int]
    values: Reals
    totals: tuple[Reals, ...]
    selected: tuple[bool, ...]
    have_laplace_noise: tuple[bool, ...]

    @classmethod
    def from_releases(cls, newest: Sequence[SiteRelease]) -> OverTime:
        """Return the flows of releases with intervals, which are read from their bundles.

        ``newest`` has the last revision of each period, newest period first. The table of flows of each release is read
        once, and of it only the pairs of levels that the page has.
        """
        certificates = [release.certificate for release in newest][::-1]
        areas = pq.read_table(newest[0].locate_table("areas")).to_pandas()
        sides = tuple(build_published_geography(areas, certificates[-1]["geographies"][side], None) for side in SIDES)
        # For each side, the number of areas of each level and of all levels above it.
        sizes = [np.cumsum([side.size(level) for level in range(side.depth + 1)]) for side in sides]
        most = MOST_NUMBERS // len(newest)
        depths = _find_deepest_levels(sizes, most, operator.mul)
        listed = _find_deepest_levels(sizes, most, operator.add)
        periods = len(newest)
        values = np.full((3, periods, sizes[0][depths[0]], sizes[1][depths[1]]), np.nan)
        areas_with_totals = [down_to[level] for down_to, level in zip(sizes, listed, strict=True)]
        totals = tuple(np.full((3, periods, number), np.nan) for number in areas_with_totals)
        for period, release in enumerate(reversed(newest)):
            totals_of_period = [total[:, period] for total in totals]
            _read_flows_into(values[:, period], totals_of_period, release, sides, depths, listed)
        return cls(
            periods=tuple(certificate["period"] for certificate in certificates),
            compared=tuple(check_comparability(before, after) for before, after in pairwise(certificates)),
            days=tuple(map(count_period_days, certificates)),
            certificates=tuple(certificates),
            sides=sides,
            depths=depths,
            listed=listed,
            values=values,
            totals=totals,
            selected=tuple(is_selected(certificate) for certificate in certificates),
            have_laplace_noise=tuple(any("scale" in level for level in one.get("levels", [])) for one in certificates),
        )

    @property
    def caution(self) -> str:
        """What else than travel may have changed the flows, in the language that is used; empty if nothing may."""
        cautions: dict[str, None] = {}  # in the order of the periods, each once
        for compared, (before, after) in zip(self.compared, pairwise(self.certificates), strict=True):
            if compared.is_possible:
                caution = describe_cautions(read_subject(after), before, after, lengths=False).strip()
                cautions |= {caution: None} if caution else {}
        return " ".join(cautions)

    def find_year_before(self) -> list[int | None]:
        """Return, for each period, the position of the same period of the year before; None where there is none."""
        positions = {period: position for position, period in enumerate(self.periods)}
        return [positions.get(_name_year_before(period)) for period in self.periods]

    @cached_property
    def data(self) -> dict[str, object]:
        """Data that the program of the page reads, JSON-ready, by name."""
        return {
            "periods": self.periods,
            "comparable": [compared.is_possible for compared in self.compared],
            "days": self.days,
            "sides": [_list_levels(side, deepest) for side, deepest in zip(self.sides, self.listed, strict=True)],
            "sizes": self.values.shape[2:],
            "deviations": self.deviations,
            "yearBefore": self.find_year_before(),
            "values": _encode_intervals(self.values),
            "totals": [_encode_intervals(total) for total in self.totals],
        }

    @cached_property
    def deviations(self) -> list[list[list[float]]]:
        """Number of standard deviations to the end of a change's interval that is towards 0; see :class:`Selection`.

        ``deviations[period][origin_level][destination_level]`` is the one for flows between areas of these levels.
        """
        origin_levels, destination_levels = (range(level + 1) for level in self.listed)
        deviations = []
        for period in range(len(self.periods)):
            of_period = []
            for origin_level in origin_levels:
                selections = [self._make_selection(period, (origin_level, level)) for level in destination_levels]
                of_period.append([selection.deviations_of_changes for selection in selections])
            deviations.append(of_period)
        return deviations

    def _make_selection(self, period: int, levels: tuple[int, int]) -> Selection:
        """Return the selection of flows between two levels in a period: from which flows people choose those they read.

        ``levels`` are the levels of origins and of destinations. It is ``CHOSEN_BEFORE`` if the page lacks the flows,
        or if the intervals of the release do not hold for flows that are chosen by their size.
        """
        origins, destinations = (self._make_area_slice(side, level) for side, level in enumerate(levels))
        if levels[0] <= self.depths[0] and levels[1] <= self.depths[1]:
            trips = self.values[0, period, origins, destinations]
        elif 0 in levels:
            trips = self.totals[0][0, period, origins] if levels[0] else self.totals[1][0, period, destinations]
        else:
            return CHOSEN_BEFORE
        if not self.selected[period]:
            return CHOSEN_BEFORE
        return Selection.from_numbers(trips, trips.size, has_laplace_noise=self.have_laplace_noise[period])

    def _make_area_slice(self, side: int, level: int) -> slice:
        """Return the positions of the areas of a level among the areas of all levels of a side (0 for origins)."""
        first = sum(self.sides[side].size(above) for above in range(level))
        return slice(first, first + self.sides[side].size(level))

    def list_largest_areas(self, level: int, end: int = 0) -> list[dict[str, object]]:
        """Return the ``MOST_ROWS`` areas of a level with the most trips in the last period, each as a dictionary.

        ``end`` is the side of the areas: 0 for origins, 1 for destinations. ``name`` is the area's name. ``ways`` has
        :meth:`_describe_areas` of the trips from it and of those to it; if the sides have different areas, only of the
        trips on this side.
        """
        side, other = self.sides[end], self.sides[1 - end]
        ends = (0, 1) if side.digest == other.digest else (end,)  # trips from an area, to it, or both
        areas_of_level = self._make_area_slice(end, level)
        totals = [self.totals[way][..., areas_of_level] for way in ends]
        trips_in_last_period = totals[0][0, -1]
        largest = np.argsort(-np.nan_to_num(trips_in_last_period), kind="stable")[:MOST_ROWS].tolist()
        ways = []
        for way, total in zip(ends, totals, strict=True):
            ways.append(self._describe_areas(total, (level, 0) if way == 0 else (0, level)))
        return [{"name": side.labels[level][area], "ways": [way[area] for way in ways]} for area in largest]

    def _describe_areas(self, values: Reals, levels: tuple[int, int]) -> list[dict[str, object]]:
        """Return the ``numbers`` of each area in all periods, and the ``change`` between the last two, if it is known.

        ``values`` are the trips of the areas with the ends of their intervals, shape (3, periods, areas), between the
        ``levels`` of origins and destinations. Changes are per day if the periods have different lengths.
        """
        described = [{"numbers": numbers} for numbers in _convert_to_integers(values.T).tolist()]
        if self.compared and self.compared[-1].is_possible:
            old, new = (pd.DataFrame(values[:, period].T, columns=[*VALUES]).reset_index() for period in (-2, -1))
            deviations = min(of_period[levels[0]][levels[1]] for of_period in self.deviations[-2:])
            changes = compute_table_changes(old, new, ["index"], deviations, self.compared[-1].days)
            for row in use_numbers_per_day(changes).dropna().to_dict("records"):
                described[row["index"]]["change"] = row
        return described


def _name_year_before(text: str) -> str:
    """Return the text of the period with the same name in the year before, such as 2018-05 for 2019-05."""
    return re.sub(r"\d{4}", lambda year: f"{int(year[0]) - 1:04}", text)


def _list_levels(side: Geography, deepest: int) -> list[dict[str, object]]:
    """Return the areas of the levels of a side down to the ``deepest``, as the program of the page reads them."""
    return [
        {
            "level": side.level_names[level],
            "codes": side.codes[level],
            "labels": side.labels[level],
            "parents": side.parents[level].tolist(),
            **({} if side.aliases is None else {"aliases": side.aliases[level]}),
        }
        for level in range(deepest + 1)
    ]


def _find_deepest_levels(
    sizes: Sequence[Integers], most: int, count_numbers: Callable[[int, int], int]
) -> tuple[int, int]:
    """Return the deepest level of each side for which the page has at most ``most`` numbers of each period.

    Both sides go down together, and a side without a further level stays at its last one.

    Args:
        sizes: for each side, the number of areas of each level and of all levels above it.
        most: largest number of numbers.
        count_numbers: returns the number of numbers, given such a number of areas of origins and of destinations.
    """
    sizes_of_origins, sizes_of_destinations = sizes
    deepest = (0, 0)
    for step in range(max(map(len, sizes))):
        origin_level, destination_level = (min(step, len(down_to) - 1) for down_to in sizes)
        if count_numbers(sizes_of_origins[origin_level], sizes_of_destinations[destination_level]) <= most:
            deepest = origin_level, destination_level
    return deepest


def _read_flows_into(
    values: Reals,
    totals: Sequence[Reals],
    release: SiteRelease,
    sides: Sequence[Geography],
    depths: tuple[int, int],
    listed: tuple[int, int],
) -> None:
    """Read the flows of a release between areas, and the totals of the areas of either side, into arrays.

    Args:
        values: output for flows; shape (3, origins, destinations).
        totals: output for the totals of each side; shape (3, areas) each.
        release: release whose bundle is read.
        sides, depths, listed: attributes of :class:`OverTime`.
    """
    columns = [f"{side}_level" for side in SIDES]
    are_pairs, are_totals = [], []  # a list of conditions that all hold, and a list of such lists
    for own, other in ((0, 1), (1, 0)):
        names = sides[own].level_names
        are_pairs.append((columns[own], "in", names[: depths[own] + 1]))
        are_totals.append([(columns[own], "in", names[: listed[own] + 1]), (columns[other], "==", WHOLE_SPACE)])
    rows = pq.read_table(
        release.locate_table("flows"),
        columns=[*columns, *SIDES, *VALUES],
        filters=[are_pairs, *are_totals],  # any of these lists
    ).to_pandas()
    numbers = rows[[*VALUES]].to_numpy(np.float64).T
    origins, destinations = positions = [
        _find_area_positions(side, rows[[level, code]]) for side, level, code in zip(sides, columns, SIDES, strict=True)
    ]
    is_shown = (origins >= 0) & (origins < values.shape[1]) & (destinations >= 0) & (destinations < values.shape[2])
    values[:, origins[is_shown], destinations[is_shown]] = numbers[:, is_shown]
    for own, total in enumerate(totals):
        is_total = (positions[1 - own] == 0) & (positions[own] >= 0)  # the other side is the whole space, at position 0
        total[:, positions[own][is_total]] = numbers[:, is_total]


def _find_area_positions(side: Geography, areas: pd.DataFrame) -> NDArray[np.intp]:
    """Return the position of each area among the areas of all levels of a side; -1 if the side lacks it; shape (rows,).

    Each row of ``areas`` has the name of an area's level, and its code.
    """
    known = [(name, area) for name, codes in zip(side.level_names, side.codes, strict=True) for area in codes]
    return pd.MultiIndex.from_tuples(known).get_indexer(pd.MultiIndex.from_frame(areas))


def _convert_to_integers(values: Reals) -> NDArray[Any]:
    """Return numbers as integers, in the same shape; with None in place of NaN, as objects."""
    missing = np.isnan(values)
    whole = np.where(missing, 0, values).astype(np.int64)
    return np.where(missing, None, whole) if missing.any() else whole  # type: ignore[call-overload]


def _encode_intervals(values: Reals) -> list[list[int | None]]:
    """Return three flat lists: the trips, and how far the ends of their intervals are below and above them.

    The first axis of ``values`` has trips, lower and upper ends. A missing number becomes None.
    """
    trips, lower, upper = values
    return [_convert_to_integers(numbers).ravel().tolist() for numbers in (trips, trips - lower, upper - trips)]
