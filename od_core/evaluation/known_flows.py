"""Provide data sets whose true flows are public or synthetic. Mechanisms are compared on these data sets only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, get_args

from od_core.errors import OdError
from od_core.evaluation.metrics import Truth
from od_core.evaluation.synthetic import SyntheticFlows, binary, italy, random_tree
from od_core.files.data_frame import TableOrFile
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography
from od_core.records.counting import count_trips, trip_counts_of
from od_core.records.counts import TripCounts
from od_core.records.formats import TABLE, RecordColumns
from od_core.records.load import load_records
from od_core.records.zone_lists import read_zones

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
    def synthetic(cls, flows: SyntheticFlows) -> KnownFlows:
        """Create known flows from flows that :mod:`od_core.evaluation.synthetic` made."""
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
        return Truth.of_counts(self.tree, self.trips)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the name, the geographies and the trips of every pair, as hexadecimal text."""
        other = self.tree.destination.digest
        areas = [self.geography.digest, *([] if other == self.geography.digest else [other])]
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


def synthetic_data_sets() -> dict[str, Callable[[], KnownFlows]]:
    """Return functions that make the synthetic data sets of the comparison of mechanisms, by name.

    The data sets have the numbers of pairs and trips of [boninsegna2025inftda, Section 5 and Table 1]. ``italy`` has
    those of the real data set in that table, but its flows are synthetic.
    """
    sparse, half = Fraction(1, 100), Fraction(1, 2)
    random_half = Fraction(95_612, 435**2)  # the published dense set has slightly more than half of the pairs
    made: dict[str, Callable[[], SyntheticFlows]] = {
        "binary complete": partial(binary, SEED, trips=1_051_271),
        "binary dense": partial(binary, SEED, filled=half, trips=734_688),
        "binary sparse": partial(binary, SEED, filled=sparse, trips=23_302),
        "random complete": partial(random_tree, SEED, trips=2_019_580),
        "random dense": partial(random_tree, SEED, filled=random_half, trips=1_003_943),
        "random sparse": partial(random_tree, SEED, filled=sparse, trips=67_840),
        "italy": partial(italy, SEED),
    }
    return {name: partial(synthetic, name, make) for name, make in made.items()}


def synthetic(name: str, make: Callable[[], SyntheticFlows]) -> KnownFlows:
    """Call ``make`` and return its synthetic flows as known flows with the given name."""
    return KnownFlows.synthetic(replace(make(), name=name))


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
    """Count the records of a public or synthetic file as a release does, without reading all into memory.

    ``flows`` is a Parquet or CSV file with one row per flow or trip. All rows count; dates and users are not checked.
    ``levels`` are the columns of the public zone list that are levels, coarse to fine.

    Raises:
        OdError: the marking is missing or unknown, files are missing or faulty, or too many trips have zones that the
            zone list does not contain.
    """
    refuse_unmarked(name, marking)
    geography = Geography.from_frame(read_zones(zones), levels=list(levels))
    tree = FlowTree(geography, geography)
    with TemporaryDirectory(prefix="od-") as folder:
        records = Path(folder) / "records.parquet"
        form = TABLE.declared(one_row_a_trip=one_row_a_trip)
        load_records(flows, columns, _ANY_PERIOD, records, record_format=form)
        trips = trip_counts_of(records, tree)
    return KnownFlows(name, marking, tree, trips)
