"""Confidential: look at the records that ``od-release init`` declares. No message quotes a record.

The columns and the first rows of the newest file are read, not stored. They serve to refuse columns that do not exist,
to show which columns are used, and to find out whether a row may be many trips.
"""

from __future__ import annotations

import datetime
import difflib
import glob
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from od_assets.cli.init_questions import Answers, Fields, fill
from od_assets.declared.flows import Trips
from od_assets.project import current_project
from od_core.errors import OdError
from od_core.files.data_frame import shown_columns
from od_core.files.durable import absence
from od_core.periods import Period
from od_core.records.dated_rows import has_dates
from od_core.records.format import RecordColumns, RecordFormat, column_in, shown
from od_core.records.header import has_header
from od_core.records.open_file import record_schema
from od_core.records.row_meaning import count_columns, has_single_pairs, unused_columns

_PERIOD = re.compile(r"\d{4}(-Q\d|-W\d{2}|-\d{2}(-\d{2})?)?")
"""Pattern of the text of a period in the name of a file."""

ROLES = ("origin", "destination", "date", "trips")
"""Options that each name a column of its own, in the order of their questions."""

_SIMILAR = 0.75
"""Smallest difflib ratio of names that are called similar."""


@dataclass(frozen=True)
class _Records:
    """The newest file of records as the answers so far declare it.

    Attributes:
        source: the file.
        form: format of its records.
        columns: names of the columns that are declared.
        schema: type of every column of the file, by name.
    """

    source: Path
    form: RecordFormat
    columns: RecordColumns
    schema: dict[str, str]

    @property
    def used(self) -> list[str]:
        """Columns of the file that a release reads, or selects rows by, in the order of the file."""
        names = (*self.columns.names, *(column for column, _ in self.form.categories))
        found = {column_in(name, list(self.schema)) for name in names}
        return [column for column in self.schema if column in found]

    @property
    def may_show(self) -> bool:
        """Whether the names of the columns are certainly no record, which the first line of a CSV file may be."""
        is_csv = self.form.container_of(self.source) == "csv"
        is_named = any(column_in(name, list(self.schema)) for name in self.columns.names)
        return not is_csv or is_named or has_header(self.source, self.form)


def absent_records(records: str) -> OdError | None:
    """Return an error if the newest file cannot be opened, or if the path seems to be misspelt, or None.

    The path seems to be misspelt if no file has it, but a file or folder with a similar name exists. Otherwise, the
    first file may come later.
    """
    source = newest_file(records)
    fault = absence(source or current_project().root / records)
    if fault is not None and (source is not None or not fault.startswith("there is no file")):
        return _no_file(fault)
    if source is not None:
        return None
    if not (similar := _similar(records)):
        return None
    return _no_file(f"there is no file {records}; similar names that exist: {', '.join(map(repr, similar))}")


def _no_file(message: str) -> OdError:
    step = "give --records and the path of files that can be read; if they come later, run init once the first is there"
    return OdError("OD-FILE-MISSING", message, next_step=step)


def unreadable_records(answers: Answers, settings: Fields) -> OdError | None:
    """Return an error if the reader does not exist, or if the newest file cannot be opened with it, or None."""
    try:
        _opened(answers, settings)
    except OdError as error:
        return _of_field(error) if error.code == "OD-FILE-UNREADABLE" else error
    return None


def _of_field(error: OdError) -> OdError:
    """Return an error that a field of the section trips may mend, with how to give one."""
    hint = "; if this is a field, init takes it as --set trips.FIELD=VALUE"
    return error.changed(next_step=error.next_step + hint)


def absent_column(flag: str, answers: Answers, settings: Fields) -> OdError | None:
    """Return an error if the newest file of records lacks the column of a flag, or if another flag has it.

    The column of dates must have one among the first records, as a release would read it.
    """
    records = _opened(answers, settings)
    if records is None:
        return None
    name = records.columns.user if flag == "column" else getattr(records.columns, flag)
    if not name:
        return None
    there = column_in(name, list(records.schema))
    if there is not None:
        earlier = ROLES[: ROLES.index(flag)] if flag in ROLES else ()
        others = [one for one in earlier if getattr(records.columns, one) == name]
        if others:
            step = f"give --{flag} or --{others[0]} and the name of another column"
            message = f"column {shown(name)} cannot be both {others[0]} and {flag}"
            return OdError("OD-INIT-COLUMN", message, next_step=step)
        try:
            if flag != "date" or has_dates(records.source, there, records.form):
                return None
        except OdError as error:
            return _of_field(error)
        return OdError(
            "OD-TRIPS-DATE",
            f"column {shown(name)} of {records.source.name} holds no date among its first records",
            next_step="give --date and a column of dates or local times such as 2001-06-30, or leave it out if each"
            " file is one period",
        )
    message = f"{records.source.name} has no column {shown(name)}"
    if records.may_show:
        message += f"; it has {', '.join(records.schema)}"
    return OdError("OD-INIT-COLUMN", message, next_step=f"give --{flag} and the name of a column of the file")


def unstated_rows(answers: Answers, settings: Fields) -> tuple[OdError | None, list[str]] | None:
    """Return an error if it must be asked what a row of the newest file of records is, and the file's unused columns.

    The error is None if rows are counted, and there are neither unused columns nor rows that look like a table of
    flows. The result is None if the answers or the reader state what a row is, or if a file or a column is missing.
    """
    records = _opened(answers, settings)
    if records is None or records.form.one_row_a_trip or not records.columns.counts_rows:
        return None
    if any(column_in(name, list(records.schema)) is None for name in records.columns.names):
        return None
    unused = unused_columns(records.schema, records.columns, records.form)
    if unused:
        counts = count_columns(records.source, unused, records.form)
        found = (
            f"unused columns: {shown_columns(unused)}; those that look like counts: {shown_columns(counts) or 'none'}"
        )
    elif has_single_pairs(records.source, records.columns, records.form):
        found = "no pair of origin and destination appears twice, as in a table of flows"
    else:
        return None, []
    return OdError(
        "OD-TRIPS-ROWS",
        f"{records.source.name}: nothing says whether a row is one trip; {found}",
        next_step="give --trips and the column that holds the number of trips of a row, or --one-row-a-trip true",
    ), unused


def found_records(answers: Answers, settings: Fields) -> list[str]:
    """Return lines to show, with the used and the unused columns of the newest file of records and their types.

    The first line of a CSV file may be a record, so the columns are shown only if the line is certainly a header, or if
    the answers or the reader name one of them.
    """
    records = _opened(answers, settings)
    if records is None:
        return [f"There is no file {answers['records']} yet."]
    name, schema, used = records.source.name, records.schema, records.used
    if not records.may_show:
        return [f"{name} has {len(schema)} columns; their names are shown once one of them is named."]
    unused = [column for column in schema if column not in used]
    return [
        f"{title} columns of {name}: {', '.join(f'{column} ({schema[column]})' for column in columns) or 'none'}."
        for title, columns in (("Used", used), ("Unused", unused))
    ]


def _opened(answers: Answers, settings: Fields) -> _Records | None:
    """Return the newest file of records, or None if there is none or the fields do not fit the component.

    Fields that do not fit are refused when the declaration is written.

    Raises:
        OdError: the file cannot be opened as it is declared.
    """
    source = newest_file(answers["records"])
    if source is None:
        return None
    stated: dict[str, Any] = {}
    fill(stated, answers, settings)
    try:
        trips = Trips.model_validate(stated["trips"])
    except ValidationError:
        return None
    form = trips.record_format()
    columns = form.columns_with(**trips.columns.model_dump())
    return _Records(source, form, replace(columns, user=answers.get("column") or None), record_schema(source, form))


def newest_file(records: str) -> Path | None:
    """Return the file of the latest period that has one, or the one file for all periods; None if there is none."""
    parts = str(current_project().root / records).split("{period}")
    period = "([^/]+)".join(map(re.escape, parts))
    files: dict[datetime.date, Path] = {}
    for name in glob.glob("*".join(map(glob.escape, parts))):  # noqa: PTH207  # it may be outside the project
        found = re.fullmatch(period, name)
        with suppress(OdError):  # the name holds no period
            periods = {Period(text) for text in found.groups()} if found else set()
            if len(periods) <= 1:
                files[next((one.first for one in periods), datetime.date.min)] = Path(name)
    return files[max(files)] if files else None


def _similar(records: str) -> list[str]:
    """Return up to three existing names that are similar to the first part of a path that does not exist.

    A period in an existing name is written as ``{period}`` if the part of the path has braces.
    """
    folder = current_project().root
    *folders, last = Path(records).parts
    for part in (*folders, last):
        try:
            if (folder / part).exists():
                folder /= part
                continue
            found = sorted(folder.iterdir()) if folder.is_dir() else []
            names = [path.name for path in found if path.is_dir() or part == last]
        except OSError:  # a folder without permission, or a name that is too long
            names = []
        there = [_PERIOD.sub("{period}", name, count=1) for name in names] if "{" in part else names
        if part in there:  # a folder of a period
            folder /= names[there.index(part)]
            continue
        return [name for name in dict.fromkeys(there) if _is_similar(name, part)][:3]
    return []


def _is_similar(name: str, part: str) -> bool:
    """Return whether two names differ only in their endings or in few characters. Braces count as one character."""
    one, other = (re.sub(r"\{[^{}]*\}", "*", text.casefold()) for text in (name, part))
    return Path(one).stem == Path(other).stem or difflib.SequenceMatcher(None, one, other).ratio() >= _SIMILAR
