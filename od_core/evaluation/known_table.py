"""A table of flows or records in a file, public or synthetic, to compare mechanisms on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from od_core.evaluation.known_flows import KnownFlows, Marking, refuse_unmarked
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography
from od_core.records.count_duckdb import trip_counts_of
from od_core.records.format import RecordColumns
from od_core.records.formats.table import TABLE
from od_core.records.load import load_records
from od_core.records.zone_lists import read_zones

_ANY_PERIOD = "2000"
"""Asked for of a file whose dates are not looked at."""


@dataclass(frozen=True)
class KnownTable:
    """Where a table of known flows is, and what its columns hold.

    Attributes:
        name: of the data set, for tables and figures.
        marking: ``synthetic`` or ``public``, as :class:`od_core.evaluation.known_flows.KnownFlows`.
        flows: Parquet or CSV file, one row a flow or a trip; all of its rows count.
        zones: public zone list.
        levels: level columns of the zone list, coarse to fine.
        columns: of the file of flows; dates and users are not looked at.
        one_row_a_trip: as :class:`od_core.records.format.RecordFormat`.

    Raises:
        OdError: marked as anything else, or not at all.
    """

    name: str
    marking: Marking
    flows: Path
    zones: Path
    levels: tuple[str, ...]
    columns: RecordColumns = RecordColumns()  # noqa: RUF009  # frozen
    one_row_a_trip: bool = False

    def __post_init__(self) -> None:
        refuse_unmarked(self.name, self.marking)

    def read(self) -> KnownFlows:
        """The flows, counted out of core by the rules of a release.

        Raises:
            OdError: files that are missing or faulty; too many trips between places that the zone list lacks.
        """
        geography = Geography.from_frame(read_zones(self.zones), levels=list(self.levels))
        with TemporaryDirectory(prefix="od-") as folder:
            records = Path(folder) / "records.parquet"
            form = TABLE.declared(one_row_a_trip=self.one_row_a_trip)
            load_records(self.flows, self.columns, _ANY_PERIOD, records, record_format=form)
            trips = trip_counts_of(records, FlowTree(geography, geography))
        return KnownFlows.from_counts(self.name, self.marking, geography, trips)
