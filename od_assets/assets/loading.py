"""Read the records of a period as declared, and copy them into the confidential folder."""

from __future__ import annotations

from pathlib import Path

from od_assets.resources.arrivals import hold_to_marker
from od_assets.series.settings import G, P, SeriesSettings
from od_core.records.load import load_records, refuse_absent


def load_period(settings: SeriesSettings[P, G], period: str, target: Path, geography: G | None) -> None:
    """Copy the records of a period to a Parquet file.

    Args:
        settings: settings of the series.
        period: period of the records.
        target: path of the copy, in the confidential folder.
        geography: geography whose ``unknown`` zones replace codes of no place; None if the series has no such zones.

    Raises:
        OdError: as in :func:`od_assets.resources.arrivals.hold_to_marker` and
            :func:`od_core.records.load.load_records`.
    """
    source = settings.records_path(period)
    refuse_absent(source)  # before its marker, as doctor does
    hold_to_marker(source, settings.marker_path(period))
    origins = destinations = None
    if geography is not None and settings.takes_nowhere:
        origins, destinations = settings.sides(geography)
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
