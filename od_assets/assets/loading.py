"""The records of a period on their way into the confidential folder, read as the declaration says."""

from __future__ import annotations

from pathlib import Path

from od_assets.resources.arrivals import hold_to_marker
from od_assets.series.settings import G, P, SeriesSettings
from od_core.records.load import load_records


def load_period(settings: SeriesSettings[P, G], period: str, target: Path, geography: G | None) -> None:
    """Copy the records of a period to a Parquet file.

    Args:
        settings: of the series.
        period: the period.
        target: where to, in the confidential folder.
        geography: whose areas for unknown places, where records of the series go there, take the codes of no place.

    Raises:
        OdError: as :func:`od_assets.resources.arrivals.hold_to_marker` and :func:`od_core.records.load.load_records`.
    """
    source = settings.records_path(period)
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
