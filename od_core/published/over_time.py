"""Read the flows of a series in each period, for the page that shows how one of them changed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from numpy.typing import NDArray

from od_core.flows.publishing.changes import cautions, changes_of_tables
from od_core.geography.codes import WHOLE_SPACE
from od_core.geography.geography import Geography
from od_core.publication.tables import published_geography

if TYPE_CHECKING:
    from od_core.published.site import SiteRelease

MOST_NUMBERS = 300_000
"""Largest number of flows of all periods together that the page of a series has, each with its interval."""

MOST_ROWS = 300
"""Largest number of areas of a level that the page lists without a program, those with the most trips."""

_SIDES, _VALUES = ("origin", "destination"), ("trips", "lower", "upper")

Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OverTime:
    """The flows between large areas in each period of a series of releases, which have noise of their own.

    Areas of a side are numbered through its levels, the whole space first. Of arrays, the first axis has trips and the
    ends of their interval, NaN where a release does not list a pair, and the second the periods.

    Attributes:
        periods: texts of the periods, oldest first.
        comparable: for each period but the first, whether it has the same areas as the one before.
        caution: what else than travel may have changed the flows.
        sides: the areas of origins and of destinations, which are those of the newest period.
        depths: number of the most detailed level of each side between whose areas the page has flows.
        listed: the same of the areas of each side whose trips from, or to, all areas of the other the page has.
        values: flows down to the levels of ``depths``; shape (3, periods, origins, destinations).
        totals: trips of each area down to the level of ``listed``, by side; shape (3, periods, areas).
    """

    periods: tuple[str, ...]
    comparable: tuple[bool, ...]
    caution: str
    sides: tuple[Geography, ...]
    depths: tuple[int, int]
    listed: tuple[int, int]
    values: Reals
    totals: tuple[Reals, ...]

    @classmethod
    def of(cls, newest: Sequence[SiteRelease]) -> OverTime:
        """Return the flows of releases with intervals: the last revision of each period, newest period first.

        The table of flows of each is read once, and of it only the pairs of levels that the page has.
        """
        certificates = [release.certificate for release in newest][::-1]
        areas = pq.read_table(newest[0].table("areas")).to_pandas()
        digests = [[certificate["geographies"][side] for side in _SIDES] for certificate in certificates]
        sides = tuple(published_geography(areas, digest, None) for digest in digests[-1])
        sizes = [np.cumsum([side.size(level) for level in range(side.depth + 1)]) for side in sides]
        most = MOST_NUMBERS // len(newest)
        depths, listed = _deepest(sizes, most, operator.mul), _deepest(sizes, most, operator.add)
        start = (3, len(newest))
        values = np.full((*start, *(own[depth] for own, depth in zip(sizes, depths, strict=True))), np.nan)
        totals = tuple(np.full((*start, own[level]), np.nan) for own, level in zip(sizes, listed, strict=True))
        for period, release in enumerate(reversed(newest)):
            _read(release, sides, depths, listed, [values[:, period], *(total[:, period] for total in totals)])
        warned = (cautions(after["unit"], before, after).strip() for before, after in pairwise(certificates))
        return cls(
            tuple(certificate["period"] for certificate in certificates),
            tuple(before == after for before, after in pairwise(digests)),
            " ".join(dict.fromkeys(filter(None, warned))),
            sides,
            depths,
            listed,
            values,
            totals,
        )

    @cached_property
    def data(self) -> dict[str, Any]:
        """What the program of the page reads, JSON-ready: flat lists of trips, and of how far they may be off."""
        return {
            "periods": self.periods,
            "comparable": self.comparable,
            "sides": [
                [
                    {"level": name, "codes": codes, "labels": labels, "parents": parents.tolist()}
                    for name, codes, labels, parents in zip(
                        side.level_names, side.codes, side.labels, side.parents, strict=True
                    )
                ][: level + 1]
                for side, level in zip(self.sides, self.listed, strict=True)
            ],
            "sizes": self.values.shape[2:],
            "values": _distances(self.values),
            "totals": [_distances(total) for total in self.totals],
        }

    def rows(self, level: int) -> list[dict[str, Any]]:
        """Return the areas of a level of the origins with the most trips, each with its name and its trips.

        Those from it and, if destinations have the same areas, those to it have the numbers of all periods, and the
        change between the last two periods if it is known.
        """
        side, other = self.sides
        first = sum(side.size(above) for above in range(level))
        totals = self.totals if side.digest == other.digest else self.totals[:1]
        own = [total[..., first : first + side.size(level)] for total in totals]
        order = np.argsort(-np.nan_to_num(own[0][0, -1]), kind="stable")[:MOST_ROWS].tolist()
        described = [self._described(values) for values in own]
        return [{"name": side.labels[level][area], "ways": [way[area] for way in described]} for area in order]

    def _described(self, values: Reals) -> list[dict[str, Any]]:
        """Return the numbers of each area, given in an array of the shape (3, periods, areas), and its last change."""
        described = [{"numbers": numbers} for numbers in _whole(values.T).tolist()]
        if self.comparable[-1:] == (True,):
            old, new = (pd.DataFrame(one.T, columns=[*_VALUES]).reset_index() for one in values[:, -2:].swapaxes(0, 1))
            for row in changes_of_tables(old, new, ["index"]).dropna().to_dict("records"):
                described[row["index"]]["change"] = row
        return described


def _deepest(sizes: Sequence[NDArray[np.int64]], most: int, numbers: Callable[[int, int], int]) -> tuple[int, int]:
    """Return the last level of each side down to which the page has few enough numbers, given its areas by level."""
    levels = [(min(at, len(sizes[0]) - 1), min(at, len(sizes[1]) - 1)) for at in range(max(map(len, sizes)))]
    return max((one for one in levels if numbers(sizes[0][one[0]], sizes[1][one[1]]) <= most), default=(0, 0))


def _read(
    release: SiteRelease,
    sides: Sequence[Geography],
    depths: tuple[int, int],
    listed: tuple[int, int],
    targets: Sequence[Reals],
) -> None:
    """Read the flows of a release between areas, and the totals of those of either side, into arrays."""
    columns, names = [f"{side}_level" for side in _SIDES], [side.level_names for side in sides]
    pairs = [(columns[own], "in", names[own][: depths[own] + 1]) for own in (0, 1)]
    ways = [
        [(columns[own], "in", names[own][: listed[own] + 1]), (columns[1 - own], "==", WHOLE_SPACE)] for own in (0, 1)
    ]
    read = [*columns, *_SIDES, *_VALUES]
    rows = pq.read_table(release.table("flows"), columns=read, filters=[pairs, *ways]).to_pandas()
    numbers = rows[[*_VALUES]].to_numpy(np.float64).T
    places = []
    for side, level, code in zip(sides, columns, _SIDES, strict=True):
        known = [(name, area) for name, areas in zip(side.level_names, side.codes, strict=True) for area in areas]
        places.append(pd.MultiIndex.from_tuples(known).get_indexer(pd.MultiIndex.from_frame(rows[[level, code]])))
    values, *totals = targets
    here = np.logical_and.reduce([(at >= 0) & (at < size) for at, size in zip(places, values.shape[1:], strict=True)])
    values[:, places[0][here], places[1][here]] = numbers[:, here]
    for own, total in enumerate(totals):
        here = (places[1 - own] == 0) & (places[own] >= 0)
        total[:, places[own][here]] = numbers[:, here]


def _whole(values: Reals) -> NDArray[Any]:
    """Return numbers as integers, with None in place of NaN."""
    missing = np.isnan(values)
    whole = np.where(missing, 0, values).astype(np.int64)
    return np.where(missing, None, whole) if missing.any() else whole  # type: ignore[call-overload]


def _distances(values: Reals) -> list[list[int | None]]:
    trips, lower, upper = values
    return [_whole(one).ravel().tolist() for one in (trips, trips - lower, upper - trips)]
