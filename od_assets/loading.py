"""The records of a period on their way into the confidential folder, read as the declaration says."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from od_assets.arrivals import hold_to_marker, marker_path
from od_assets.settings import G, P, SeriesSettings
from od_core.errors import OdError
from od_core.periods import Period
from od_core.readers.records import load_records


def load_period(settings: SeriesSettings[P, G], period: str, target: Path, geography: G | None) -> None:
    """Copy the records of a period to a Parquet file.

    Args:
        settings: of the series.
        period: the period.
        target: where to, in the confidential folder.
        geography: whose areas for unknown places take the codes of no place; None where there are none.

    Raises:
        OdError: as :func:`od_assets.arrivals.hold_to_marker` and :func:`od_core.readers.records.load_records`; there is
            no record, where their number is public in any case.
    """
    source = settings.records_path(period)
    hold_to_marker(source, marker_path(settings, Period(period)))
    origins, destinations = (None, None) if geography is None else settings.sides(geography)
    load_records(
        source,
        settings.columns,
        period,
        target,
        record_format=settings.record_format,
        geography=origins,
        destination_geography=destinations,
        time_zone=settings.periods.time_zone,
    )
    if settings.unit.publishes_total and pq.read_metadata(target).num_rows == 0:  # elsewhere a refusal would tell
        raise OdError(
            "OD-TRIPS-NONE",
            f"{source.name} has no record of {period} that is of this release",
            next_step="wait for the records; or correct the file, or what chooses its records: categories, column date",
        )
