"""Provide data sets whose true flows are public or synthetic. Mechanisms are compared on these data sets only.

Synthetic flows are drawn from a seeded generator, so the same seed gives the same flows with the same version of NumPy.
The random numbers are predictable and must never serve as noise.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, get_args

import numpy as np
import pandas as pd

from od_core.errors import OdError
from od_core.evaluation.metrics import Truth
from od_core.files.data_frame import TableOrFile
from od_core.flows.arrays import Integers, Reals
from od_core.geography.codes import WHOLE_SPACE
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography, Numbers
from od_core.records.counting import count_records_in_memory, count_trips
from od_core.records.counts import TripCounts
from od_core.records.formats import TABLE, RecordColumns
from od_core.records.load import load_records
from od_core.records.zone_lists import read_zones

TOWN = 3
"""Level of the towns in Italian geographies."""


def make_digit_geography(fan_outs: Sequence[Integers]) -> Geography:
    """Return a geography in which an area's code is its parent's code and one more digit.

    ``fan_outs`` has the number of children of each area, in one array per level, from the whole space down.
    """
    codes = [[""]]
    for counts in fan_outs:
        areas = zip(codes[-1], counts, strict=True)
        codes.append([f"{above}{child}" for above, count in areas for child in range(count)])
    return make_geography_from_codes([f"level_{level}" for level in range(1, len(codes))], codes[1:], fan_outs)


def make_italian_codes(province_counts: Integers, town_counts: Integers) -> list[list[str]]:
    """Return the codes of regions, of provinces and of towns as in Italy.

    The code of a town begins with that of its province. Regions and provinces are numbered without regard to each
    other. ``province_counts`` has the number of provinces of each region, and ``town_counts`` the number of towns of
    each province.
    """
    regions = make_numbered_codes([""], [len(province_counts)], width=2)
    provinces = make_numbered_codes([""], [len(town_counts)], width=3)
    return [regions, provinces, make_numbered_codes(provinces, town_counts, width=3)]


def make_numbered_codes(prefixes: Sequence[str], counts: Sequence[int] | Integers, width: int) -> list[str]:
    """Return each prefix followed by the numbers 1 to its count, in ``width`` digits."""
    codes = []
    for prefix, count in zip(prefixes, counts, strict=True):
        codes += [f"{prefix}{number:0{width}d}" for number in range(1, count + 1)]
    return codes


def make_geography_from_codes(
    levels: Sequence[str], codes: Sequence[Sequence[str]], fan_outs: Sequence[Integers]
) -> Geography:
    """Return a geography with the given names of levels and codes of areas, for each level below the whole space.

    ``fan_outs`` has the number of children of each area, in one array per level, from the whole space down.
    """
    parents = [np.repeat(np.arange(len(counts), dtype=np.int32), counts) for counts in fan_outs]
    return Geography(tuple(levels), ((WHOLE_SPACE,), *map(tuple, codes)), (np.empty(0, dtype=np.int32), *parents))


OWN_TOWN_SHARE = Fraction(11, 20)
"""Share of trips that stay in their town in synthetic gravity flows, as far as the number of pairs allows."""


@dataclass(frozen=True, eq=False)
class SyntheticFlows:
    """Synthetic flows between the zones of a geography.

    Attributes:
        name: name of the data set, for tables and figures.
        geography: geography of the origins and of the destinations.
        origin, destination: zone numbers of the pairs with trips, each pair once; shape (pairs,).
        trips: trips of each pair, at least 1; shape (pairs,).
    """

    name: str
    geography: Geography
    origin: Numbers
    destination: Numbers
    trips: Integers

    def to_frame(self) -> pd.DataFrame:
        """Return one row per pair, as in :func:`od_core.release_flows`: origin, destination (both codes) and trips."""
        return pd.DataFrame(
            {
                "origin": self.geography.codes_of(self.geography.depth, self.origin),
                "destination": self.geography.codes_of(self.geography.depth, self.destination),
                "trips": self.trips,
            }
        )


def make_binary_flows(
    seed: int, *, levels: int = 8, filled: Fraction = Fraction(1), trips: int = 1_051_271
) -> SyntheticFlows:
    """Return flows with Pareto-distributed trips on random pairs of zones, in a geography of areas with two children.

    See [boninsegna2025inftda, Section 5]. There are 2^levels zones, and ``filled`` is the share of the pairs that have
    trips. Raises OdError if no pair has trips, or if there are fewer trips than pairs with trips.
    """
    fan_outs = [np.full(2**level, 2) for level in range(levels)]
    return _draw_pareto_flows(make_generator(seed), "binary", make_digit_geography(fan_outs), filled, trips)


def make_random_tree_flows(
    seed: int, *, levels: int = 4, zones: int = 435, filled: Fraction = Fraction(1), trips: int = 2_019_580
) -> SyntheticFlows:
    """Return flows as :func:`make_binary_flows` does, in a random geography, in which each area has 2 to 10 children.

    Geographies are drawn until one has the number of zones. Raises OdError if none of 100,000 has it.
    """
    generator = make_generator(seed)
    for _ in range(100_000):
        fan_outs = [generator.integers(2, 11, 1)]
        while len(fan_outs) < levels:
            fan_outs.append(generator.integers(2, 11, fan_outs[-1].sum()))
        if fan_outs[-1].sum() == zones:
            return _draw_pareto_flows(generator, "random", make_digit_geography(fan_outs), filled, trips)
    raise _make_synthetic_data_error(f"no random tree with {levels} levels and {zones} zones was found")


def make_italy_flows(seed: int, *, scale: float = 1.0, pairs: int = 650_000, trips: int = 28_800_000) -> SyntheticFlows:
    """Return synthetic commuter flows between towns with the numbers of trips and areas of Italy.

    At scale 1, there are 8,092 towns in 110 provinces and 20 regions. Towns have heavy-tailed sizes. Pairs of zones are
    drawn by a gravity model: the origin by size, the reach (own town, own province, own region or anywhere) with fixed
    probabilities, and the destination within reach by size. Each distinct pair gets one trip. The remaining trips are
    assigned to the pairs by gravity too, with heavy tails.

    ``scale``, above 0 and at most 10, multiplies the number of zones, of pairs with trips and of trips. Each zone with
    itself is a pair with trips. The logarithms of the numbers of areas of all levels change by one factor. At most a
    quarter of all pairs have trips. Raises OdError if the scale is out of range, there are fewer trips than pairs, or
    too few or too many pairs for the zones.
    """
    generator = make_generator(seed)
    province_counts, town_counts, town_size = draw_italian_towns(generator, compute_scaling_power(8_092, scale))
    fan_outs = (np.array([len(province_counts)]), province_counts, town_counts)
    geography = make_geography_from_codes(
        ["region", "province", "town"], make_italian_codes(province_counts, town_counts), fan_outs
    )
    reach = {2: 0.5, 1: 0.3, 0: 0.2}  # within a province, a region and the country; towns pair with themselves anyway
    scaled_pairs, scaled_trips = scale_table_size(geography, scale, pairs, trips)
    return draw_gravity_flows(generator, "italy", geography, town_size, reach, pairs=scaled_pairs, trips=scaled_trips)


def make_gravity_flows(seed: int, geography: Geography, *, pairs: int, trips: int) -> SyntheticFlows:
    """Return flows between the zones of any geography, by the gravity model of :func:`make_italy_flows`.

    Only the areas of the geography are used. Zones have random heavy-tailed sizes. For each level above the zones,
    about the same number of pairs is drawn within areas of that level. The areas directly above the zones serve as the
    towns of the model. Raises OdError if there are not more pairs than zones, or more than half of all, or fewer trips
    than pairs.
    """
    generator = make_generator(seed)
    size = draw_pareto_numbers(generator, len(geography.zones), 1.2)
    reach = dict.fromkeys(range(geography.depth), 1 / geography.depth)
    town = max(geography.depth - 1, 1)
    return draw_gravity_flows(generator, "gravity", geography, size, reach, pairs=pairs, trips=trips, town=town)


def _draw_pareto_flows(
    generator: np.random.Generator, kind: str, geography: Geography, filled: Fraction, trips: int
) -> SyntheticFlows:
    """Return flows on a random share ``filled`` of the pairs, with Pareto-distributed trips of exponent 1.

    A flow is 1 + factor * (Pareto number - 1), rounded down. The factor is the largest for which the flows sum to at
    most ``trips``, because the published data sets are identified by that sum. ``kind`` is the first word of the data
    set's name.
    """
    zones = len(geography.zones)
    pairs = int(filled * zones**2)
    if not 1 <= pairs <= min(trips, zones**2):
        rule = "there must be at least one pair and at least one trip for each pair"
        raise _make_synthetic_data_error(f"{trips} trips on {pairs} of {zones**2} pairs: {rule}")
    chosen = np.sort(generator.choice(zones**2, pairs, replace=False, shuffle=False))
    above_least = draw_pareto_numbers(generator, pairs, 1.0) - 1
    further_trips = trips - pairs
    too_large = (further_trips + 1) / above_least.max()  # one flow alone would have more than the further trips
    factor = _find_largest_factor(too_large, lambda factor: bool(np.floor(above_least * factor).sum() <= further_trips))
    flow = 1 + np.floor(above_least * factor).astype(np.int64)
    origin, destination = _split_pairs(chosen, zones)
    return SyntheticFlows(f"{kind} {float(filled):.0%}", geography, origin, destination, flow)


def _find_largest_factor(upper: float, fits: Callable[[float], bool]) -> float:
    """Return the largest factor from 0 to ``upper`` that fits, by bisection.

    ``fits`` returns whether a factor fits; every factor below one that fits must fit, too.
    """
    lower = 0.0
    for _ in range(100):  # more halvings than a float has binary digits
        factor = (lower + upper) / 2
        if fits(factor):
            lower = factor
        else:
            upper = factor
    return lower


def compute_scaling_power(zones: int, scale: float) -> float:
    """Return the power p with ``zones**p = scale * zones``, to which the numbers of areas of all levels are raised.

    Raises OdError if ``scale`` is out of range for the number of zones.
    """
    if not 0 < scale <= 10 or scale * zones < 2:
        raise _make_synthetic_data_error(f"the scale {scale} leaves no zones or is above 10")
    return math.log(scale * zones) / math.log(zones)


def scale_table_size(geography: Geography, scale: float, pairs: int, trips: int) -> tuple[int, int]:
    """Return the numbers of pairs and of trips of a synthetic table, multiplied by ``scale``.

    ``geography`` is the scaled one, and the pairs are at most a quarter of all of its pairs.
    """
    most_pairs = len(geography.zones) ** 2 // 4
    return min(round(pairs * scale), most_pairs), round(trips * scale)


def draw_italian_towns(generator: np.random.Generator, power: float) -> tuple[Integers, Integers, Reals]:
    """Return the number of provinces per region, the number of towns per province, and the sizes of the towns.

    At a ``power`` of 1, these are 20 regions, 110 provinces and 8,092 towns, with at most 11 provinces in a region and
    190 towns in a province. All these numbers are raised to the power.
    """
    regions, provinces, towns = (round(number**power) for number in (20, 110, 8_092))
    most_provinces, most_towns = round(11**power), round(190**power)
    province_counts = split_total(generator.gamma(4.0, size=regions), provinces, most_provinces)
    town_counts = split_total(generator.gamma(3.0, size=provinces), towns, most_towns)
    return province_counts, town_counts, draw_pareto_numbers(generator, towns, 1.2)


def split_total(weights: Reals, total: int, most: int) -> Integers:
    """Return integers from 1 to ``most`` that sum to ``total``, roughly in proportion to weights; shape of ``weights``.

    If ``most`` is too small for this sum, it is raised to the smallest sufficient number.
    """
    most = max(most, math.ceil(total / len(weights)))

    def scale_weights(factor: float) -> Integers:
        return np.clip(weights * factor, 1, most).astype(np.int64)

    upper = 2 * total / weights.min()  # with this factor, every part is ``most``
    parts = scale_weights(_find_largest_factor(upper, lambda factor: bool(scale_weights(factor).sum() <= total)))
    missing = total - parts.sum()  # equal weights would reach their next number together, and so exceed the total
    parts[np.flatnonzero(parts < most)[:missing]] += 1
    return parts


def draw_gravity_flows(
    generator: np.random.Generator,
    name: str,
    geography: Geography,
    size: Reals,
    reach: dict[int, float],
    pairs: int,
    trips: int,
    town: int = TOWN,
) -> SyntheticFlows:
    """Return flows between zones of given sizes, by the gravity model of :func:`make_italy_flows`.

    ``reach`` maps a level to the share of the pairs that are drawn within one area of that level.

    Each pair gets one trip. The other trips are drawn in proportion to the product of the sizes of both zones, divided
    by the size of their smallest common area down to the level ``town``, at least 1. For pairs of different towns, this
    is multiplied by a random Pareto factor. Pairs within a town get ``OWN_TOWN_SHARE`` of all trips.
    """
    zones = len(size)
    if not zones < pairs <= min(trips, zones**2 // 2):
        rule = "there must be more pairs than zones, at most half of all pairs, and at least one trip for each"
        raise _make_synthetic_data_error(f"{trips} trips on {pairs} of {zones**2} pairs: {rule}")
    origin, destination = _draw_distinct_pairs(generator, geography, size, reach, pairs)
    weight = np.full(pairs, 1 / size.sum())
    for level in range(1, town + 1):
        area = geography.ancestors(level)
        is_within_area = area[origin] == area[destination]
        weight[is_within_area] = 1 / np.bincount(area, size)[area[origin[is_within_area]]]
    weight *= size[origin]
    weight *= size[destination]
    within_town, between_towns = np.flatnonzero(is_within_area), np.flatnonzero(~is_within_area)  # at the last level
    weight[between_towns] *= draw_pareto_numbers(generator, len(between_towns), 1.2)
    further_trips = trips - pairs
    further_within = further_trips
    if len(between_towns):
        further_within = min(max(round(OWN_TOWN_SHARE * trips) - len(within_town), 0), further_trips)
    counts = np.ones(pairs, dtype=np.int64)
    for group, further in ((within_town, further_within), (between_towns, further_trips - further_within)):
        if len(group):
            counts[group] += generator.multinomial(further, weight[group] / weight[group].sum())
    return SyntheticFlows(name, geography, origin, destination, counts)


def _draw_distinct_pairs(
    generator: np.random.Generator, geography: Geography, size: Reals, reach: dict[int, float], pairs: int
) -> tuple[Numbers, Numbers]:
    """Return the origins and destinations of ``pairs`` distinct pairs, sorted; shape (pairs,) each.

    Each zone is paired with itself. The other pairs are drawn by :func:`_draw_pairs`, as ``reach`` says.
    """
    zones = len(size)
    pair = np.arange(zones, dtype=np.int64) * (zones + 1)  # each zone with itself
    while len(pair) < pairs:
        to_draw = 1.2 * (pairs - len(pair)) + zones  # more than are missing, because some are drawn twice
        drawn = [
            _draw_pairs(generator, geography, level, size**0.8, round(to_draw * share))
            for level, share in reach.items()
        ]
        pair = np.unique(np.concatenate((pair, *drawn)))
    removable = np.flatnonzero(pair % (zones + 1) != 0)  # not a zone with itself
    excess = generator.choice(removable, len(pair) - pairs, replace=False, shuffle=False)  # indices in ``pair``
    return _split_pairs(np.delete(pair, excess), zones)


def _draw_pairs(generator: np.random.Generator, geography: Geography, level: int, size: Reals, count: int) -> Integers:
    """Return ``count`` random pairs as origin * zones + destination; shape (count,).

    The origin is drawn by size from all zones, and the destination by size from the origin's area of ``level``.
    """
    origin = np.repeat(np.arange(len(size), dtype=np.int32), generator.multinomial(count, size / size.sum()))
    area = geography.ancestors(level)[origin]
    first, end = geography.first_zone[level][area], geography.first_zone[level][area + 1]
    size_before = np.concatenate(([0.0], np.cumsum(size)))  # of each zone, and in total
    drawn = size_before[first] + generator.random(count) * (size_before[end] - size_before[first])
    containing = np.searchsorted(size_before, drawn, side="right") - 1
    destination = np.clip(containing, first, end - 1)  # a rounding error does not leave the area
    pair: Integers = origin.astype(np.int64) * len(size) + destination
    return pair


def draw_pareto_numbers(generator: np.random.Generator, count: int, exponent: float) -> Reals:
    """Return ``count`` random Pareto numbers from 1 to (``count`` + 1)^(1 / ``exponent``), which limits outliers."""
    return (1 - generator.random(count) * (count / (count + 1))) ** (-1 / exponent)


def _split_pairs(pair: Integers, zones: int) -> tuple[Numbers, Numbers]:
    """Return the origin and the destination of each pair, given as origin * zones + destination."""
    return (pair // zones).astype(np.int32), (pair % zones).astype(np.int32)


def make_generator(seed: int) -> np.random.Generator:
    """Return the random generator (PCG64) of a seed. It is for synthetic data, never for noise."""
    return np.random.Generator(np.random.PCG64(seed))


def _make_synthetic_data_error(message: str) -> OdError:
    """Return the OdError for synthetic data that cannot be made."""
    return OdError("OD-SYNTHETIC", message, next_step="choose other sizes for the synthetic data")


Marking = Literal["synthetic", "public"]
MARKINGS: tuple[Marking, ...] = get_args(Marking)

SEED = 20010101
"""Seed of the synthetic data sets. It is never used for noise."""


@dataclass(frozen=True, eq=False, repr=False)
class KnownFlows:
    """Public or synthetic flows, with their sums at every level. Errors computed from them are NOT private.

    Attributes:
        name: name of the data set, for tables and figures.
        marking: why the flows are not confidential: ``synthetic`` flows are invented, ``public`` flows are published by
            their owner.
        tree: flow tree that refines destinations before origins.
        trips: counts of the flows, in the order of the tree.

    Raises:
        OdError: the marking is missing or unknown.
    """

    name: str
    marking: Marking
    tree: FlowTree
    trips: TripCounts

    def __post_init__(self) -> None:
        refuse_unmarked(self.name, self.marking)

    def __repr__(self) -> str:
        return f"KnownFlows({self.name!r}, {self.marking})"

    @classmethod
    def from_synthetic_flows(cls, flows: SyntheticFlows) -> KnownFlows:
        """Create known flows from synthetic flows."""
        tree = FlowTree(flows.geography, flows.geography)
        trips = TripCounts.from_pairs(tree, flows.origin, flows.destination, flows.trips)
        return cls(flows.name, "synthetic", tree, trips)

    @classmethod
    def from_frame(
        cls,
        name: str,
        marking: Marking,
        flows: TableOrFile,
        geography: Geography,
        destination_geography: Geography | None = None,
        *,
        one_row_a_trip: bool = False,
    ) -> KnownFlows:
        """Create known flows from a table, or a file, as :func:`od_core.release_flows` accepts it.

        Raises OdError as the class and :func:`od_core.records.counting.count_trips` do.
        """
        tree = FlowTree(geography, destination_geography or geography)
        return cls(name, marking, tree, count_trips(flows, tree, one_row_a_trip=one_row_a_trip))

    @property
    def geography(self) -> Geography:
        """Geography of the origins. Only forecasts have another one of the destinations."""
        return self.tree.origin

    @cached_property
    def truth(self) -> Truth:
        """Sums of the flows at every level of the tree."""
        return Truth.from_counts(self.tree, self.trips)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the name, the geographies and the trips of every pair, as hexadecimal text."""
        areas = [self.geography.digest]
        if self.tree.destination.digest != self.geography.digest:
            areas.append(self.tree.destination.digest)
        digest = hashlib.sha256(json.dumps([self.name, *areas]).encode())
        for column in (self.trips.rank, self.trips.before):
            digest.update(column.astype("<i8").tobytes())
        return digest.hexdigest()


def refuse_unmarked(name: str, marking: object) -> None:
    """Raise OdError with the name of the data set unless it is marked as public or synthetic."""
    if marking not in MARKINGS:
        raise OdError(
            "OD-EVALUATION-CONFIDENTIAL",
            f"data set {name!r} is not marked as public or synthetic, so its true flows cannot be used for a"
            " comparison",
            next_step="compare mechanisms on synthetic data, or mark the data set if its owner has published it",
        )


def list_synthetic_data_sets() -> dict[str, Callable[[], KnownFlows]]:
    """Return functions that make the synthetic data sets of the comparison of mechanisms, by name.

    The data sets have the numbers of pairs and trips of [boninsegna2025inftda, Section 5 and Table 1]. ``italy`` has
    those of the real data set in that table, but its flows are synthetic.
    """
    sparse, half = Fraction(1, 100), Fraction(1, 2)
    random_half = Fraction(95_612, 435**2)  # the published dense set has slightly more than half of the pairs
    makers: dict[str, Callable[[], SyntheticFlows]] = {
        "binary complete": partial(make_binary_flows, SEED, trips=1_051_271),
        "binary dense": partial(make_binary_flows, SEED, filled=half, trips=734_688),
        "binary sparse": partial(make_binary_flows, SEED, filled=sparse, trips=23_302),
        "random complete": partial(make_random_tree_flows, SEED, trips=2_019_580),
        "random dense": partial(make_random_tree_flows, SEED, filled=random_half, trips=1_003_943),
        "random sparse": partial(make_random_tree_flows, SEED, filled=sparse, trips=67_840),
        "italy": partial(make_italy_flows, SEED),
    }
    return {name: partial(make_known_flows, name, make_flows) for name, make_flows in makers.items()}


def make_known_flows(name: str, make_flows: Callable[[], SyntheticFlows]) -> KnownFlows:
    """Make synthetic flows, and return them as known flows with a name."""
    return KnownFlows.from_synthetic_flows(replace(make_flows(), name=name))


_ANY_PERIOD = "2000"
"""Any valid period, for files whose dates are not read."""


def read_known_flows(
    name: str,
    marking: Marking,
    flows: Path,
    zones: Path,
    levels: Sequence[str],
    columns: RecordColumns,
    *,
    one_row_a_trip: bool = False,
) -> KnownFlows:
    """Count the records of a public or synthetic file as a release does, without reading all records into memory.

    ``flows`` is a Parquet or CSV file with one row per flow or, if ``one_row_a_trip``, per trip. All rows count; dates
    and users are not checked. ``zones`` is the file of the public zone list, and ``levels`` are its columns that are
    levels, coarse to fine.

    Raises:
        OdError: the marking is missing or unknown, files are missing or faulty, or too many trips have zones that the
            zone list does not contain.
    """
    refuse_unmarked(name, marking)
    geography = Geography.from_frame(read_zones(zones), levels=list(levels))
    tree = FlowTree(geography, geography)
    with TemporaryDirectory(prefix="od-") as folder:
        records = Path(folder) / "records.parquet"
        form = TABLE.with_options(one_row_a_trip=one_row_a_trip)
        load_records(flows, columns, _ANY_PERIOD, records, record_format=form)
        trips = count_records_in_memory(records, tree)
    return KnownFlows(name, marking, tree, trips)
