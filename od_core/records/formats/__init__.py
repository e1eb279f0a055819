"""List the readers of records, by name."""

from __future__ import annotations

from od_core.records.format import RecordFormat
from od_core.records.formats.istat import ISTAT
from od_core.records.formats.lodes import LODES
from od_core.records.formats.nomis import NOMIS
from od_core.records.formats.table import TABLE
from od_core.records.formats.tlc import TLC
from od_core.registry import choose

FORMATS: dict[str, RecordFormat] = {one.name: one for one in (TABLE, LODES, TLC, ISTAT, NOMIS)}


def format_named(name: str) -> RecordFormat:
    """Return the format of the reader with this name. Raises OdError for an unknown name."""
    return choose("reader", name, FORMATS, code="OD-READER-UNKNOWN", next_step="correct the reader of the records")
