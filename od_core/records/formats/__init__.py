"""List the readers of records, by name."""

from __future__ import annotations

from od_core.errors import OdError, nearest_known
from od_core.records.format import RecordFormat
from od_core.records.formats.istat import ISTAT
from od_core.records.formats.lodes import LODES
from od_core.records.formats.nomis import NOMIS
from od_core.records.formats.table import TABLE
from od_core.records.formats.tlc import TLC

FORMATS: dict[str, RecordFormat] = {one.name: one for one in (TABLE, LODES, TLC, ISTAT, NOMIS)}


def format_named(name: str) -> RecordFormat:
    """Return the format of the reader with this name. Raises OdError for an unknown name."""
    if name not in FORMATS:
        raise OdError(
            "OD-READER-UNKNOWN",
            f"there is no reader {name!r} ({nearest_known(name, tuple(FORMATS))})",
            next_step="correct the reader of the records",
        )
    return FORMATS[name]
