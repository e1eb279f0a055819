"""Provide groups with known sizes: synthetic ones in the shapes of published data sets, or counted from public data.

Synthetic groups are drawn with a seed on purpose: the same seed gives the same groups with the same NumPy. They must
never serve as noise. :class:`KnownGroups` marks the sizes as synthetic or public, so that errors against them may be
shown.

The shapes follow [kuo2018countofcounts, section 6.1] and [fioretto2019hierarchical, section 11]. The authors' own files
are not public, or have hundreds of millions of groups, so the groups are made again in a smaller number.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.evaluation.known_flows import SEED, Marking, refuse_unmarked
from od_core.geography.codes import WHOLE_SPACE
from od_core.geography.geography import Geography
from od_core.group_sizes.groups import AreasByDay, Counts, GroupSizes
from od_core.records.formats import RecordColumns
from od_core.records.load import load_records
from od_core.records.zone_lists import read_zones

HOUSEHOLDS = (31_204_909, 38_243_143, 18_758_985, 15_625_328, 7_538_631, 3_074_077, 2_271_219)
"""Households of 1, 2, .. 6 and of 7 or more members, 2010 Census of the United States, Summary File 1, table H13."""

OUTLIERS = 50
"""Number of group quarters, as in both papers. Their sizes are uniform, and mostly far above all households."""

STATES = 52
"""50 states, Puerto Rico and the District of Columbia, as in both papers."""

FLIGHTS_TOP_CODE = 1500
"""Top code of the departures of an airport and day. The busiest airport has fewer than 1,000."""

Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class KnownGroups:
    """Groups whose sizes may be known. Errors against them are NOT private.

    Attributes:
        name: name of the data set, for tables and figures.
        marking: why the sizes may be known: they are synthetic, or their owner has published them.
        geography: geography of the areas; its levels are measured.
        groups: areas and sizes.
        top_code: K, chosen from public descriptions of the data and not from the sizes.

    Raises:
        OdError: The marking is neither ``synthetic`` nor ``public``.
    """

    name: str
    marking: Marking
    geography: Geography
    groups: GroupSizes
    top_code: int

    def __post_init__(self) -> None:
        refuse_unmarked(self.name, self.marking)

    def __repr__(self) -> str:
        return f"KnownGroups({self.name!r}, {self.marking})"

    def to_frame(self) -> pd.DataFrame:
        """Return the rows as :func:`od_core.release_group_sizes` takes them: area, size, groups."""
        areas = self.geography.codes_of(self.geography.depth, self.groups.area)
        table = pd.DataFrame({"area": areas, "size": self.groups.size, "groups": self.groups.groups})
        return table.groupby(["area", "size"], as_index=False).sum()


def households(
    seed: int, *, states: int = STATES, counties: int = 10, groups: int = 234, top_code: int = 10_000
) -> KnownGroups:
    """Make households and group quarters by nation, state and county, after [kuo2018countofcounts, section 6.1].

    Sizes 1 to 6 have the shares of ``HOUSEHOLDS``. From 6 on, each size has r times as many groups as the size before
    it, with the r that gives the published number of households of 7 or more. Then ``OUTLIERS`` groups get a size from
    1 to 10,000.

    Args:
        seed: seed of the generator.
        states, counties: number of states, and of counties of each state. The default, 520 counties in all, is a sixth
            of the real number.
        groups: number of groups of each county. The default, 121,680 in all, is a thousandth of the households of the
            country.
        top_code: K; by default the largest of the authors' sizes. They use 100,000, which they call conservative and
            which gives ten times as many cells, nearly all of them empty.
    """
    generator = _generator(seed)
    size = _household_sizes(generator, states * counties * groups)
    _some_become(generator, size, 1, 10_000)
    per_area = np.full(states * counties, groups, dtype=np.int64)
    geography = _tree(["nation", "state", "county"], [1, states], _repeated(states, counties))
    return _known("households", geography, per_area, size, top_code)


def census(seed: int, *, counties: int = 3_144, groups: int = 1_176_304, top_code: int = 1_000) -> KnownGroups:
    """Make households and group quarters by nation, state and county, after [fioretto2019hierarchical]; sizes from 1.

    The sizes are those of :func:`households`, with outliers from 10 to 1,000, and the counties have very unequal
    numbers of groups.

    Args:
        seed: seed of the generator.
        counties: number of counties in all ``STATES`` states. The default is the authors' number; they also mention
            7,592 leaves.
        groups: number of groups of all counties, at least one each. The default is a hundredth of the authors' number.
        top_code: K; the default is the authors' N.

    Raises:
        OdError: There are fewer counties than states, or fewer groups than counties.
    """
    generator = _generator(seed)
    per_state = _at_least_one(generator.gamma(2.0, size=STATES), counties)
    per_area = _at_least_one(_lognormal(generator, counties, 1.4), groups)
    size = _household_sizes(generator, groups)
    _some_become(generator, size, 10, 1_000)
    return _known("census", _tree(["nation", "state", "county"], [1, STATES], per_state), per_area, size, top_code)


def full_number(
    seed: int,
    *,
    states: int = STATES,
    counties: int | None = 7_592,
    groups: int = 117_630_445,
    top_code: int = 1_000,
    outliers: tuple[int, int] = (10, 1_000),
    outliers_of_each_state: bool = False,
) -> KnownGroups:
    """Make households and group quarters at the full number of a paper, drawn as numbers by leaf area and size.

    The defaults are the census of [fioretto2019hierarchical, section 11.1]. The shapes are those of :func:`census`. The
    authors' counties differ in their shares of sizes, too.

    Args:
        seed: seed of the generator.
        states: number of states of the nation.
        counties: number of counties of all states; None if the states are the leaf areas.
        groups: number of groups of all leaf areas.
        top_code: K.
        outliers: least size of the ``OUTLIERS`` group quarters, and the size above the largest.
        outliers_of_each_state: whether each state has as many outliers. So [kuo2018countofcounts] have it: 52 times 50
            uniform sizes up to 10,000 explain their 2,352 distinct sizes, and 50 in all do not.
    """
    generator = _generator(seed)
    state = np.arange(states)
    if counties is not None:
        state = np.repeat(state, _at_least_one(generator.gamma(2.0, size=states), counties))
    per_area = _at_least_one(_lognormal(generator, len(state), 1.4 if counties else 1.0), groups)
    *shares, above = np.array(HOUSEHOLDS) / sum(HOUSEHOLDS)
    ratio = above / (above + shares[-1])
    tail = above * (1 - ratio) * ratio ** np.arange(60)  # what lies beyond is less likely than 1e-22
    by_size = generator.multinomial(per_area, np.array([*shares, *(tail / tail.sum() * above)])).astype(np.int64)
    of = state if outliers_of_each_state else np.zeros_like(state)
    taken = np.concatenate([_taken(generator, by_size[of == number, 0]) for number in np.unique(of)])
    by_size[:, 0] -= taken
    area, size = np.nonzero(by_size)
    quarters = np.repeat(np.arange(len(taken)), taken)
    area, size = np.append(area, quarters), np.append(size + 1, generator.integers(*outliers, len(quarters)))
    number = np.append(by_size[by_size > 0], np.ones_like(quarters))
    zones = pd.DataFrame({"nation": "nation", "state": [f"{number:02d}" for number in state]})
    if counties is not None:
        zones["county"] = [f"{number:05d}" for number in range(counties)]
    geography = Geography.from_frame(zones, levels=list(zones.columns))
    order = np.lexsort((size, area))
    rows = GroupSizes(area[order].astype(np.int32), size[order], number[order])
    return KnownGroups(f"{groups:,} groups", "synthetic", geography, rows, top_code)


def taxis(seed: int, *, zones: int = 263, groups: int = 13_282, top_code: int = 13_282) -> KnownGroups:
    """Make pick-ups of a taxi by city, borough and zone, after the New York data of [fioretto2019hierarchical].

    A taxi belongs to one zone, a zone has few taxis, and sizes are large and heavy-tailed. They are log-normal around
    the authors' mean, 24,489,743 pick-ups of 13,282 taxis, up to their largest size, 13,282. The authors state 13,282
    groups, but their L1 errors of millions need more, because two tables of G groups differ by at most 2 G at a level.
    The number is that of their sizes.

    Args:
        seed: seed of the generator.
        zones: number of zones in six boroughs; the default is the authors' number.
        groups: number of taxis of all zones, some of which may have none; the default is the authors' number.
        top_code: K; the default is the authors' N.

    Raises:
        OdError: There are fewer zones than boroughs.
    """
    generator = _generator(seed)
    per_borough = _at_least_one(generator.gamma(2.0, size=6), zones)
    weight = _lognormal(generator, zones, 1.0)
    per_area = generator.multinomial(groups, weight / weight.sum()).astype(np.int64)
    size = np.exp(generator.normal(np.log(24_489_743 / 13_282) - 0.5, 1.0, groups))  # the mean is exp(mu + 1/2)
    geography = _tree(["city", "borough", "zone"], [1, 6], per_borough)
    return _known("taxis", geography, per_area, np.minimum(size.astype(np.int64), 13_282), top_code)


def departures(folder: Path, month: str) -> KnownGroups:
    """Read US domestic flights by airport and day: an airport and day is a group, and its members are the departures.

    The data are public data of the Bureau of Transportation Statistics. A day without departures is a group of size 0.

    Args:
        folder: folder such as ``data/us_flights``.
        month: month such as ``2001-01``.

    Raises:
        OdError: A file is missing or cannot be read.
    """
    levels = ["region", "division", "state", "airport"]
    geography = Geography.from_frame(read_zones(folder / "airports.csv"), levels=levels)
    with tempfile.TemporaryDirectory() as temporary:
        records = Path(temporary, "records.parquet")
        load_records(folder / f"{month}.parquet", RecordColumns(date="date"), month, records)
        groups = AreasByDay().count_records(records, geography, month)
    return KnownGroups(f"flights {month}", "public", geography, groups, FLIGHTS_TOP_CODE)


def synthetic_groups() -> dict[str, Callable[[], KnownGroups]]:
    """Return the functions that make the synthetic data sets of the comparison, by name."""
    return {made.__name__: partial(made, SEED) for made in (households, census, taxis)}


def _known(name: str, geography: Geography, per_area: Counts, size: Counts, top_code: int) -> KnownGroups:
    """Assign the sizes, in the order given, to the leaf areas, and return the data set."""
    area = np.repeat(np.arange(len(per_area)), per_area)
    order = np.lexsort((size, area))
    return KnownGroups(name, "synthetic", geography, GroupSizes(area.astype(np.int32), size[order]), top_code)


def _household_sizes(generator: np.random.Generator, groups: int) -> Counts:
    """Draw sizes with the published shares of 1 to 6 members and a geometric tail above them."""
    *small, above = HOUSEHOLDS
    tail = above / (above + small[-1])  # n6 (r + r^2 + ..) = n7+
    size = generator.choice(np.arange(1, 8), groups, p=np.array(HOUSEHOLDS) / sum(HOUSEHOLDS))
    sizes: Counts = np.where(size == 7, 6 + generator.geometric(1 - tail, groups), size)
    return sizes


def _some_become(generator: np.random.Generator, size: Counts, least: int, most: int) -> None:
    """Give ``OUTLIERS`` groups, or all if there are fewer, a uniform size between two."""
    outliers = generator.choice(len(size), min(OUTLIERS, len(size)), replace=False)
    size[outliers] = generator.integers(least, most + 1, len(outliers))


def _taken(generator: np.random.Generator, singles: Counts) -> Counts:
    """Return how many groups of one member of each area become outliers; shape of ``singles``, their numbers."""
    taken: Counts = generator.multivariate_hypergeometric(singles, min(OUTLIERS, int(singles.sum())))
    return taken


def _lognormal(generator: np.random.Generator, count: int, sigma: float) -> Reals:
    weights: Reals = np.exp(generator.normal(0.0, sigma, count))
    return weights


def _at_least_one(weights: Reals, total: int) -> Counts:
    """Return integers of at least 1 that sum to ``total``, about in proportion to the weights; shape of ``weights``."""
    if total < len(weights):
        raise OdError(
            "OD-SYNTHETIC",
            f"{total} parts for {len(weights)} areas: every area needs one",
            next_step="choose other sizes for the synthetic data",
        )
    ends = np.floor(np.cumsum(weights) / weights.sum() * (total - len(weights)) + 0.5).astype(np.int64)
    shares: Counts = 1 + np.diff(ends, prepend=0)
    return shares


def _repeated(areas: int, children: int) -> Counts:
    return np.full(areas, children, dtype=np.int64)


def _tree(names: list[str], sizes: list[int], last: Counts) -> Geography:
    """Make a geography of three levels below the whole space.

    The first level has one area (``sizes[0]`` is 1), which has ``sizes[1]`` children. ``last`` gives the number of leaf
    areas below each of those.
    """
    fan_outs = [np.array([sizes[0]]), np.array([sizes[1]]), last]
    codes, above = [], [""]
    for counts in fan_outs:
        above = [f"{code}{n:05d}" for code, count in zip(above, counts, strict=True) for n in range(count)]
        codes.append(tuple(above))
    parents = [np.repeat(np.arange(len(counts), dtype=np.int32), counts) for counts in fan_outs]
    return Geography(tuple(names), ((WHOLE_SPACE,), *codes), (np.empty(0, dtype=np.int32), *parents))


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))
