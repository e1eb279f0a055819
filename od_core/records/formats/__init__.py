"""Define the formats of records that this library reads, and find a format by the name of its reader."""

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
    """Return the format that the reader with this name reads. Raises OdError if there is no such reader."""
    return choose("reader", name, FORMATS, code="OD-READER-UNKNOWN", next_step="correct the reader of the records")
