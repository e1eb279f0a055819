"""Groups with known sizes, for evaluation and benchmarks: made up in the papers' shapes, or counted from public data.

The made-up ones are drawn from a generator with a seed, by design: the same seed gives the same groups (with the same
NumPy). None of it may ever serve as noise. What a release must not know, :class:`KnownGroups` says by its marking: the
sizes are synthetic or public, so that errors against them may be shown.

Sources: Kuo et al., section 6.1; Fioretto, Van Hentenryck & Zhu, section 11 ("Datasets"). Their own files are either
not public or hundreds of millions of groups, so the shapes are made again, smaller.
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
from od_core.geography.geography import WHOLE_SPACE, Geography
from od_core.group_sizes.grouping import AreasByDay
from od_core.group_sizes.groups import Counts, GroupSizes
from od_core.records.format import RecordColumns
from od_core.records.load import load_records
from od_core.records.zone_lists import read_zones

HOUSEHOLDS = (31_204_909, 38_243_143, 18_758_985, 15_625_328, 7_538_631, 3_074_077, 2_271_219)
"""Households of 1, 2, .. 6 and of 7 or more members, 2010 Census of the United States, Summary File 1, table H13."""

OUTLIERS = 50
"""Group quarters far above all households, uniform over the sizes: the number of both papers."""

STATES = 52
"""50 states, Puerto Rico and the District of Columbia, as in both papers."""

FLIGHTS_TOP_CODE = 1500
"""Departures of an airport and day that are told apart; the busiest airport has below 1,000."""

Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class KnownGroups:
    """Groups whose sizes may be known. Errors against them are NOT private.

    Attributes:
        name: of the data set, for tables and figures.
        marking: why the sizes may be known: made up, or published by their owner.
        geography: of the areas; its levels are measured.
        groups: areas and sizes.
        top_code: K, by what is said of the data in public, not by the sizes.

    Raises:
        OdError: marked as anything else.
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
        """One row a group: group, area, size, as :func:`od_core.group_sizes.release_group_sizes` takes them."""
        areas = self.geography.codes_of(self.geography.depth, self.groups.area)
        return pd.DataFrame({"group": np.arange(len(areas)), "area": areas, "size": self.groups.size})


def households(
    seed: int, *, states: int = STATES, counties: int = 10, groups: int = 234, top_code: int = 10_000
) -> KnownGroups:
    """Households and group quarters by nation, state and county, as Kuo et al. made them ("partially synthetic").

    Sizes 1 to 6 have the shares of ``HOUSEHOLDS``; from 6 on each size has r times as many groups as the one before,
    with the r that gives the published number of 7 or more. Then ``OUTLIERS`` groups have a size from 1 to 10,000.

    Args:
        seed: of the generator.
        states, counties: counties of each state. The default, 520 counties, is a sixth of the country's.
        groups: of each county. The default, 121,680 in all, is a thousandth of the country's households.
        top_code: K, the largest of their sizes by default. They take 100,000, which they call conservative: ten times
            as many cells, nearly all of them empty.
    """
    generator = _generator(seed)
    size = _household_sizes(generator, states * counties * groups)
    _some_become(generator, size, 1, 10_000)
    per_area = np.full(states * counties, groups, dtype=np.int64)
    geography = _tree(["nation", "state", "county"], [1, states], _repeated(states, counties))
    return _known("households", geography, per_area, size, top_code)


def census(seed: int, *, counties: int = 3_144, groups: int = 1_176_304, top_code: int = 1_000) -> KnownGroups:
    """Households and group quarters by nation, state and county, as Fioretto et al. made them; sizes from 1.

    As :func:`households`, with their outliers from 10 to 1,000, and counties of very unequal size.

    Args:
        seed: of the generator.
        counties: in ``STATES`` states; theirs (they also speak of 7,592 leaves).
        groups: of all counties, at least one each; a hundredth of theirs.
        top_code: K; theirs, called N.

    Raises:
        OdError: fewer counties than states, or fewer groups than counties.
    """
    generator = _generator(seed)
    per_state = _at_least_one(generator.gamma(2.0, size=STATES), counties)
    per_area = _at_least_one(_lognormal(generator, counties, 1.4), groups)
    size = _household_sizes(generator, groups)
    _some_become(generator, size, 10, 1_000)
    return _known("census", _tree(["nation", "state", "county"], [1, STATES], per_state), per_area, size, top_code)


def taxis(seed: int, *, zones: int = 263, groups: int = 13_282, top_code: int = 13_282) -> KnownGroups:
    """Pick-ups of a taxi by city, borough and zone, as in New York: few groups a zone, sizes large and heavy-tailed.

    A taxi belongs to one zone. Sizes are log-normal about the mean of Fioretto et al., 24,489,743 pick-ups of 13,282
    taxis, and end at their largest, 13,282. (Their L1 errors, of millions, need more groups than that: 13,282 is their
    number of sizes. How many groups they have they do not say; here are few.)

    Args:
        seed: of the generator.
        zones: in six boroughs; theirs.
        groups: taxis of all zones, some of which may have none; theirs.
        top_code: K; theirs, called N.

    Raises:
        OdError: fewer zones than boroughs.
    """
    generator = _generator(seed)
    per_borough = _at_least_one(generator.gamma(2.0, size=6), zones)
    weight = _lognormal(generator, zones, 1.0)
    per_area = generator.multinomial(groups, weight / weight.sum()).astype(np.int64)
    size = np.exp(generator.normal(np.log(24_489_743 / 13_282) - 0.5, 1.0, groups))  # of mean exp(mu + 1/2)
    geography = _tree(["city", "borough", "zone"], [1, 6], per_borough)
    return _known("taxis", geography, per_area, np.minimum(size.astype(np.int64), 13_282), top_code)


def departures(folder: Path, month: str) -> KnownGroups:
    """US domestic flights by airport and day: a group is an airport and a day, its members are the departures.

    Public data of the Bureau of Transportation Statistics. A day without departures is a group of size 0.

    Args:
        folder: as ``data/us_flights``.
        month: such as ``2001-01``.

    Raises:
        OdError: there is no such file, or it cannot be read.
    """
    levels = ["region", "division", "state", "airport"]
    geography = Geography.from_frame(read_zones(folder / "airports.csv"), levels=levels)
    with tempfile.TemporaryDirectory() as temporary:
        records = Path(temporary, "records.parquet")
        load_records(folder / f"{month}.parquet", RecordColumns(date="date"), month, records)
        groups = AreasByDay().count(records, geography, month)
    return KnownGroups(f"flights {month}", "public", geography, groups, FLIGHTS_TOP_CODE)


def synthetic_groups() -> dict[str, Callable[[], KnownGroups]]:
    """How each made-up data set of the comparison is made, by its name."""
    return {made.__name__: partial(made, SEED) for made in (households, census, taxis)}


def _known(name: str, geography: Geography, per_area: Counts, size: Counts, top_code: int) -> KnownGroups:
    """Sizes, in any order, dealt out to the leaf areas."""
    area = np.repeat(np.arange(len(per_area)), per_area)
    order = np.lexsort((size, area))
    return KnownGroups(name, "synthetic", geography, GroupSizes(area.astype(np.int32), size[order]), top_code)


def _household_sizes(generator: np.random.Generator, groups: int) -> Counts:
    """Sizes with the published shares of 1 to 6 members, and a geometric tail above them."""
    *small, above = HOUSEHOLDS
    tail = above / (above + small[-1])  # n6 (r + r^2 + ..) = n7+
    size = generator.choice(np.arange(1, 8), groups, p=np.array(HOUSEHOLDS) / sum(HOUSEHOLDS))
    sizes: Counts = np.where(size == 7, 6 + generator.geometric(1 - tail, groups), size)
    return sizes


def _some_become(generator: np.random.Generator, size: Counts, least: int, most: int) -> None:
    """Give ``OUTLIERS`` groups, or all where there are fewer, a size between two."""
    outliers = generator.choice(len(size), min(OUTLIERS, len(size)), replace=False)
    size[outliers] = generator.integers(least, most + 1, len(outliers))


def _lognormal(generator: np.random.Generator, count: int, sigma: float) -> Reals:
    weights: Reals = np.exp(generator.normal(0.0, sigma, count))
    return weights


def _at_least_one(weights: Reals, total: int) -> Counts:
    """Whole numbers of at least 1 with a sum of ``total``, about in proportion to weights; shape of ``weights``."""
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
    """One area at the first level, ``sizes[1]`` below it, and as many leaf areas below each as ``last`` says."""
    fan_outs = [np.array([sizes[0]]), np.array([sizes[1]]), last]
    codes, above = [], [""]
    for counts in fan_outs:
        above = [f"{code}{n:05d}" for code, count in zip(above, counts, strict=True) for n in range(count)]
        codes.append(tuple(above))
    parents = [np.repeat(np.arange(len(counts), dtype=np.int32), counts) for counts in fan_outs]
    return Geography(tuple(names), ((WHOLE_SPACE,), *codes), (np.empty(0, dtype=np.int32), *parents))


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))
