"""Check the answers to the questions of ``od-release init``, and write the declarations that they make.

An answer that does not fit the zones and records that it names is refused; at the terminal, it is asked again. The
components and the plan check whether the answers fit together. No budget is spent.

Of the confidential records, the columns and the first rows of the newest file are read, not stored. They serve to
refuse columns that do not exist, to show which columns are used, and to find out whether a row may be many trips. No
message quotes a record.

Of the public list of zones, the columns are read. If its path is wrong, the list may be the records. So its columns are
shown only if their names are certainly no record.
"""

import datetime
import difflib
import glob
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, partial
from itertools import chain, product
from pathlib import Path
from textwrap import fill
from typing import Any, Self, TypeVar

import dagster as dg
import pandas as pd
from jinja2 import Environment
from pydantic import ValidationError

from od_assets.cli.declare import (
    Answers,
    Fields,
    as_list,
    as_number,
    as_place,
    format_yaml_block,
    make_file_attributes,
    make_release_attributes,
    refuse_unwritable_file,
    write_text,
)
from od_assets.cli.printing import format_sentence
from od_assets.components.project import refuse_unloadable
from od_assets.project import find_current_project
from od_assets.resources.arrivals import list_record_files
from od_assets.resources.folders import Folders
from od_assets.runs.period_status import choose_period_to_plan
from od_assets.series.about import About
from od_assets.series.flows import CountedRecords, SegmentSection, Trips, parse_place
from od_assets.series.partitions import SINGLE, SeriesPeriods
from od_assets.series.reading import MODELS, RELEASES, draft_missing_warehouse, parse_declaration, read_declared_series
from od_assets.series.section import Section, describe_first_fault
from od_assets.series.series import Arrivals, DomainSection, G, P, Periods, Series, Zones
from od_core import BudgetExceeded, Plan, ReleaseKey
from od_core.errors import OdError, suggest_similar_name
from od_core.files.data_frame import format_column_names
from od_core.files.durable import find_file_fault, may_file_appear
from od_core.periods import LENGTHS, Period, check_time_zone
from od_core.privacy.accounting import format_rounded_up
from od_core.privacy.budget import Budget, Cap
from od_core.privacy.unit import NEIGHBOUR_RELATIONS, UNIT_KINDS, PrivacyUnit
from od_core.records.formats import (
    FORMATS,
    ColumnName,
    PointColumns,
    RecordColumns,
    RecordFormat,
    find_column,
    list_names,
    quote_column_name,
)
from od_core.records.load import (
    find_likely_count_columns,
    has_dates,
    has_no_repeated_pair,
    hold_degrees,
    list_unused_columns,
)
from od_core.records.open_file import has_header, is_header, read_column_types
from od_core.records.zone_lists import read_zones
from od_core.registry import refuse_unknown

_PERIOD = re.compile(r"\d{4}(-Q\d|-W\d{2}|-\d{2}(-\d{2})?)?")
"""Pattern of the text of a period in the name of a file."""

ROLES = {flag: flag for flag in ("origin", "destination", "date", "trips")} | {"area": "origin", "count": "trips"}
"""Field of :class:`RecordColumns` that each option for a column of its own names."""

_PLACE_FLAGS = ("area", "origin", "destination")
"""Options for the column of codes of a place, or for the columns of its coordinates."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
"""A word of the name of a column, such as ``start`` and ``lon`` in ``start_lon`` and ``startLon``."""

_KINDS = dict(zip(("flows", "counts"), RELEASES, strict=False))
"""Types of the components of the kinds of releases that can be declared by questions."""

_EXPRESSIONS = Environment()  # noqa: S701  # of questions.toml, for a terminal

_Check = Callable[[Answers, Fields], object]
"""Function that raises OdError if the last of some answers cannot be right after the others."""


@dataclass(frozen=True)
class _Records:
    """The newest file of records, its format, its declared columns and the types of all, as the answers declare it."""

    source: Path
    form: RecordFormat
    columns: RecordColumns
    schema: dict[str, str]

    @property
    def may_show(self) -> bool:
        """Whether the column names may be shown: certainly no record, as the first line of a CSV file may be one."""
        is_csv = self.form.resolve_container(self.source) == "csv"
        is_named = any(find_column(name, list(self.schema)) for name in self.columns.names)
        return not is_csv or is_named or has_header(self.source, self.form)


def refuse_unopenable_records(answers: Answers, _fields: Fields) -> None:
    """Raise OdError if the newest file cannot be opened, or if the path seems to be misspelt.

    The path seems misspelt if no file has it, but a similar name exists. Otherwise, the first file may come later.
    """
    records = answers["records"]
    source = find_newest_file(records)
    path = source or find_current_project().root / records
    fault = find_file_fault(path)
    if source is None and may_file_appear(path):
        similar = ", ".join(map(repr, _find_similar_names(records)))
        fault = f"there is no file {records}; similar names that exist: {similar}" if similar else None
    if fault is not None:
        step = "give --records and the path of files that can be read; if they come later, run init once the first is"
        raise OdError("OD-FILE-MISSING", fault, next_step=f"{step} there")


def refuse_unreadable_records(answers: Answers, fields: Fields) -> None:
    """Raise OdError if the reader does not exist, or if the newest file cannot be opened with it."""
    try:
        _find_newest_records(answers, fields)
    except OdError as error:
        raise _add_field_hint(error) if error.code == "OD-FILE-UNREADABLE" else error from None


def _add_field_hint(error: OdError) -> OdError:
    """Return an error whose next step also says how to give a field of the section trips, which may correct it."""
    hint = "; if this is a field, init takes it as --set trips.FIELD=VALUE"
    return error.with_changes(next_step=error.next_step + hint)


def refuse_absent_column(flag: str, answers: Answers, fields: Fields) -> None:
    """Raise OdError if the newest file of records lacks the column of a flag, or if another flag has it.

    The column of dates must have a date among the first records, as a release would read it, and columns of longitude
    and latitude must have degrees. Without a file or an answer, nothing is checked, except the number of coordinates.
    """
    if flag in _PLACE_FLAGS:
        parse_place(as_place(answers[flag]))  # raises for other than one or two columns of coordinates
    records = _find_newest_records(answers, fields)
    if records is None:
        return
    place = getattr(records.columns, "user" if flag == "column" else ROLES[flag])
    if not place or (isinstance(place, PointColumns) and not answers[flag]):  # a reader may compute its coordinates
        return
    names = list_names(place)
    found_names = [_require_column(records, flag, name) for name in names]
    others = [other for other in answers if flag in ROLES and other in ROLES and other != flag]
    for other, name in product(others, names):
        if name in list_names(getattr(records.columns, ROLES[other])):
            step = f"give --{flag} or --{other} and the name of another column"
            message = f"column {quote_column_name(name)} cannot be both {other} and {flag}"
            raise OdError("OD-INIT-COLUMN", message, next_step=step)
    if flag == "date":
        _refuse_dateless_records(records, names[0], found_names[0])
    if len(found_names) == 2 and not hold_degrees(records.source, found_names[0], found_names[1], records.form):
        raise OdError(
            "OD-TRIPS-COORDINATE",
            f"columns {place} of {records.source.name} hold no longitudes and latitudes in degrees",
            next_step=f"give --{flag} and the column of longitude before that of latitude, in WGS 84 (EPSG:4326)",
        )


def _require_column(records: _Records, flag: str, name: ColumnName) -> str:
    """Return the name of a column as the file writes it. Raises OdError, which names ``flag``, if it has none."""
    column = find_column(name, list(records.schema))
    if column is not None:
        return column
    message = f"{records.source.name} has no column {quote_column_name(name)}"
    if records.may_show:
        message += f"; it has {', '.join(records.schema)}"
    raise OdError("OD-INIT-COLUMN", message, next_step=f"give --{flag} and the name of a column of the file")


def _refuse_dateless_records(records: _Records, name: ColumnName, column: str) -> None:
    """Raise OdError if a column of a file of records, declared by a name, has no date among the first records."""
    try:
        is_fit = has_dates(records.source, column, records.form)
    except OdError as error:
        raise _add_field_hint(error) from None
    if not is_fit:
        raise OdError(
            "OD-TRIPS-DATE",
            f"column {quote_column_name(name)} of {records.source.name} holds no date among its first records",
            next_step="give --date and a column of dates or local times such as 2001-06-30, or leave it out if each"
            " file is one period",
        )


def find_row_ambiguity(answers: Answers, fields: Fields) -> tuple[OdError | None, list[str]] | None:
    """Return the error that it is unclear what a row of the newest file of records is, and the file's unused columns.

    The error is None if rows seem to be trips: no column is unused, and a pair of zones occurs twice. The whole result
    is None if the answers or the reader state what a row is, or if a file or a column is missing.
    """
    records = _find_newest_records(answers, fields)
    if records is None or records.form.one_row_a_trip or not records.columns.counts_rows:
        return None
    if any(find_column(name, list(records.schema)) is None for name in records.columns.names):
        return None
    unused = list_unused_columns(records.schema, records.columns, records.form)
    if unused:
        counts = find_likely_count_columns(records.source, unused, records.form)
        like_counts = format_column_names(counts) or "none"
        reason = f"unused columns: {format_column_names(unused)}; those that look like counts: {like_counts}"
    elif has_no_repeated_pair(records.source, records.columns, records.form):
        reason = "no pair of origin and destination appears twice, as in a table of flows"
        if records.columns.destination is None:
            reason = "no code appears twice, as in a table of counts"
    else:
        return None, []
    message = f"{records.source.name}: nothing says whether a row is one trip; {reason}"
    number = f"--{choose_number_flag(answers)} and the column that holds the number of trips of a row"
    step = f"give {number}, or --one-row-a-trip true"
    return OdError("OD-TRIPS-ROWS", message, next_step=step), unused


def describe_records(answers: Answers, fields: Fields) -> list[str]:
    """Return lines to show, with the used and the unused columns of the newest file of records and their types.

    The first line of a CSV file may be a record, so the columns are shown only if the line is certainly a header, or if
    the answers or the reader name one of them.
    """
    records = _find_newest_records(answers, fields)
    if records is None:
        return [f"There is no file {answers['records']} yet."]
    name, schema = records.source.name, records.schema
    if not records.may_show:
        return [f"{name} has {len(schema)} columns; their names are shown once one of them is named."]
    unused = list_unused_columns(schema, records.columns, records.form)
    used = [column for column in schema if column not in unused]
    lines = []
    for title, columns in (("Used", used), ("Unused", unused)):
        described = ", ".join(f"{column} ({schema[column]})" for column in columns) or "none"
        lines.append(f"{title} columns of {name}: {described}.")
    return lines


def _find_newest_records(answers: Answers, fields: Fields) -> _Records | None:
    """Return the newest file of records; None if there is none, or if the fields do not fit, which is refused later."""
    source = find_newest_file(answers["records"])
    if source is None:
        return None
    try:
        section = CountedRecords if choose_number_flag(answers) == "count" else Trips
        declared = make_release_attributes(answers, fields)
        trips = section.model_validate(declared["trips"])
        breakdowns = {name: SegmentSection.model_validate(part) for name, part in declared.get("segments", {}).items()}
        segments = tuple(part.to_segment_source(name) for name, part in breakdowns.items())
    except (ValidationError, OdError):
        return None
    form = trips.to_record_format()
    columns = replace(trips.columns.to_record_columns(form), user=answers.get("column") or None, segments=segments)
    return _Records(source, form, columns, read_column_types(source, form))


def choose_number_flag(answers: Answers) -> str:
    """Return the flag of the column of numbers, which depends on what is counted."""
    return "count" if answers.get("kind") == "counts" else "trips"


def find_newest_file(records: str) -> Path | None:
    """Return the file of the latest period that has one, or the one file for all periods; None if there is none.

    If the period has a folder, return its first file. Raises OdError if the folder's files cannot be read as records.
    """
    files = _find_period_files(records)
    if not files:
        return None
    _, newest = files[max(files)]
    return list_record_files(newest)[0] if "{period}" in records else newest


def _find_period_files(records: str) -> dict[datetime.date, tuple[str, Path]]:
    """Return the text of the period and the path of each file, by the first day of its period.

    If the path ``records`` has no ``{period}``, the one file has the period "" and the earliest possible day.
    """
    fixed_parts = str(find_current_project().root / records).split("{period}")
    expression = "([^/]+)".join(map(re.escape, fixed_parts))
    files: dict[datetime.date, tuple[str, Path]] = {}
    for name in glob.glob("*".join(map(glob.escape, fixed_parts))):  # noqa: PTH207  # it may be outside the project
        match = re.fullmatch(expression, name)
        with suppress(OdError):  # the name holds no period
            periods = [] if match is None else list({Period(text) for text in match.groups()})
            if not periods:  # the path has no {period}
                files[datetime.date.min] = "", Path(name)
            elif len(periods) == 1:
                files[periods[0].first] = periods[0].text, Path(name)
    return files


def _find_similar_names(records: str) -> list[str]:
    """Return up to three existing names that are similar to the first part of a path that does not exist.

    A period in an existing name is written as ``{period}`` if the part of the path has braces.
    """
    folder = find_current_project().root
    parts = Path(records).parts
    for part in parts:
        try:
            if (folder / part).exists():
                folder /= part
                continue
            entries = sorted(folder.iterdir()) if folder.is_dir() else []
            names = [path.name for path in entries if path.is_dir() or part == parts[-1]]
        except OSError:  # a folder without permission, or a name that is too long
            names = []
        candidates = [_PERIOD.sub("{period}", name, count=1) for name in names] if "{" in part else names
        if part in candidates:  # a folder of a period
            folder /= names[candidates.index(part)]
            continue
        return [name for name in dict.fromkeys(candidates) if _are_similar(name, part)][:3]
    return []


def _are_similar(one: str, other: str) -> bool:
    """Return whether two names differ only in their endings or in few characters. Braces count as one character."""
    one, other = one.casefold(), other.casefold()
    one, other = re.sub(r"\{[^{}]*\}", "*", one), re.sub(r"\{[^{}]*\}", "*", other)
    return Path(one).stem == Path(other).stem or difflib.SequenceMatcher(None, one, other).ratio() >= 0.75


S = TypeVar("S", bound=Section)


def _make_section(section: type[S], field: str, answers: Answers, fields: Fields) -> S:
    """Return a section as the answers so far declare it. Raises OdError, which names the field, if they do not fit."""
    try:
        return section.model_validate(make_release_attributes(answers, fields)[field])
    except ValidationError as error:
        fault = describe_first_fault(error.errors(), section)
        raise OdError("OD-CONFIG", f"{field}.{fault}", next_step="correct the answer") from None


def _read_zone_table(answers: Answers) -> pd.DataFrame:
    """Return the public list of zones as it is in its file."""
    return read_zones(find_current_project().root / answers["zones"])


def describe_zones(answers: Answers, _settings: Fields) -> list[str]:
    """Return lines to show: the columns of the list of zones, or the fault of its file."""
    name = (find_current_project().root / answers["zones"]).name
    try:
        table = _read_zone_table(answers)
    except OdError as error:
        return [f"{error.message}."]
    columns = [str(column) for column in table.columns]
    if not _can_show_columns(name, table, as_list(answers.get("levels", ""))):
        return [f"{name} has {len(columns)} columns; their names are shown once one of them is named as a level."]
    return [f"{name} has the columns {', '.join(columns)}."]


def list_unused_zone_columns(answers: Answers, fields: Fields) -> list[str]:
    """Return the columns of the list of zones that no answer names; none if the list cannot be read."""
    try:
        zones = _make_zones_section(answers, fields)
        columns = [str(column) for column in _read_zone_table(answers).columns]
    except OdError:
        return []
    used = {*zones.levels, *zones.names.values(), *(zones.coordinates or ()), *chain(*zones.joined.values())}
    if zones.parents is not None:
        used |= {zones.parents.area, zones.parents.parent}
    return [column for column in columns if column not in used]


def _find_column_by_word(answers: Answers, fields: Fields, *words: str) -> str:
    """Return a column of the records that no answer names and whose name has the first possible word, or ""."""
    records = _find_newest_records(answers, fields)
    if records is None or not records.may_show:
        return ""
    answered = {name for flag in (*ROLES, "column") for name in as_list(answers.get(flag, ""))}
    free_names = [name for name in records.schema if name not in answered]
    for word in words:  # the first words fit best
        for name in free_names:
            if word in re.split(r"[^a-z\d]+", name.casefold()):
                return name
    return ""


def _find_point_columns(answers: Answers, fields: Fields, *sides: str) -> str:
    """Return the columns of longitude and latitude of a place, such as ``start_lon,start_lat``, or "".

    The names differ by one word, and the columns hold degrees. ``sides`` are words for the place, such as ``start``; a
    column with just this name is preferred, as it has codes. Without ``sides``, the first two columns are returned.
    """
    records = _find_newest_records(answers, fields)
    if records is None or not records.may_show or {*sides} & {name.casefold() for name in records.schema}:
        return ""
    latitudes: dict[tuple[str, ...], str] = {}
    longitudes: dict[tuple[str, ...], str] = {}
    for name in records.schema:
        words = [word.casefold() for word in _WORD.findall(name)]
        if sides and not {*sides} & {*words}:
            continue
        for columns, axis in ((longitudes, {"longitude", "lon", "lng", "long"}), (latitudes, {"latitude", "lat"})):
            if axis & {*words}:
                other_words = tuple(word for word in words if word not in axis)
                columns.setdefault(other_words, name)
    for place, longitude in longitudes.items():
        latitude = latitudes.get(place)
        if latitude is not None and hold_degrees(records.source, longitude, latitude, records.form):
            return f"{longitude},{latitude}"
    return ""


def _has_points(answers: Answers, fields: Fields) -> bool:
    """Return whether the records are declared to have coordinates."""
    trips = make_release_attributes(answers, fields).get("trips", {})
    reader = FORMATS.get(trips.get("reader", ""))
    is_of_reader = reader is not None and reader.columns.has_points
    return is_of_reader or any(isinstance(place, list) for place in trips.get("columns", {}).values())


def _suggest_levels(answers: Answers, fields: Fields) -> str:
    """Return the columns that may be levels, coarse to fine and separated by commas; the last one has the zone codes.

    Each has at most half as many values as the next one, and one value for each value of the next one. Raises OdError
    if they are no hierarchy, or the list cannot be read.
    """
    table = _read_zone_table(answers)
    table = table[[name for name in table.columns if "name" not in name.casefold()]]
    sizes = table.nunique().sort_values(ascending=False, kind="stable")
    unique_columns = [name for name in table.columns if sizes[name] == len(table)]
    levels = unique_columns[:1]
    if levels and _can_show_columns(answers["zones"], table, []):
        for name in sizes.index:
            coarsest = levels[0]
            if 1 < sizes[name] <= sizes[coarsest] / 2 and table.groupby(coarsest)[name].nunique().max() == 1:
                levels.insert(0, name)
    refuse_unfit_levels({**answers, "levels": ",".join(levels)}, fields)
    return ",".join(levels)


def _suggest_level_names(answers: Answers, fields: Fields) -> str:
    """Return, as ``level=column``, for each level the first unused column that has one name for each of its areas."""
    table = _read_zone_table(answers)
    further = [name for name in list_unused_zone_columns(answers, fields) if "name" in name.casefold()]
    named = []
    for level in as_list(answers["levels"]):
        fitting = [name for name in further if level in table and table.groupby(level)[name].nunique().max() == 1]
        if fitting:
            named.append(f"{level}={fitting[0]}")
            further.remove(fitting[0])
    return ",".join(named)


def _suggest_period_length(answers: Answers, _fields: Fields) -> str:
    """Return the length of the periods in the names of files; without any, ``single`` for one file without dates."""
    periods = [text for text, _ in _find_period_files(answers["records"]).values() if text]
    if periods:
        return str(Period(periods[-1]).length)
    return "month" if answers.get("date") or answers.get("reader") or "{" in answers["records"] else SINGLE


def list_absent_levels(answers: Answers, fields: Fields) -> list[str]:
    """Return the levels that have no column in the list of zones, and are not made from other columns."""
    zones = _make_zones_section(answers, fields)
    if zones.parents is not None:
        return []
    columns = {*map(str, _read_zone_table(answers).columns), *zones.prefixes, *zones.joined}
    return [level for level in zones.levels if level not in columns]


def refuse_unfit_levels(answers: Answers, fields: Fields) -> None:
    """Raise OdError if a level has no column, or if the areas of the levels are not a hierarchy."""
    absent = list_absent_levels(answers, fields)
    table = _read_zone_table(answers)
    if not absent:
        refuse_unfit_zones(answers, fields)
        return
    message = f"{answers['zones']} has no column {absent[0]!r}"
    if _can_show_columns(answers["zones"], table, as_list(answers["levels"])):
        columns = tuple(map(str, table.columns))
        message += f"{suggest_similar_name(absent[0], columns)}; it has {', '.join(columns)}"
    step = "name columns of the list"
    if "prefixes" in answers:
        step = f"give the number of the first characters of a zone's code, as in {absent[0]}=3"
    elif can_levels_be_prefixes(answers, fields):
        step += f", or give the same answer again if {absent[0]} is the first characters of a zone's code"
    raise OdError("OD-INIT-COLUMN", message, next_step=step)


def can_levels_be_prefixes(answers: Answers, fields: Fields) -> bool:
    """Return whether levels without a column may be prefixes of zone codes: the last level has a column."""
    return _make_zones_section(answers, fields).levels[-1] not in list_absent_levels(answers, fields)


def refuse_unfit_zones(answers: Answers, fields: Fields) -> None:
    """Raise OdError if no geography can be made from the list of zones with the answers so far."""
    _make_zones_section(answers, fields).zone_list.read_geography(find_current_project().root)


def _make_zones_section(answers: Answers, fields: Fields) -> Zones:
    """Return the section of the list of zones as the answers so far declare it. Raises OdError if they do not fit."""
    return _make_section(Zones, "geography", answers, fields)


def _can_show_columns(name: str, table: pd.DataFrame, levels: list[str]) -> bool:
    """Return whether the names of the columns of a file may be shown.

    The first line of a CSV file without a header is a record, which a message must not show. So its fields are shown
    only if one of them is the name of a level, or :func:`od_core.records.open_file.is_header` takes them for a header.
    """
    columns = [str(column) for column in table.columns]
    if name.endswith(".parquet") or any(level in columns for level in levels):
        return True
    return is_header(columns, table.head(1000).astype(str).to_numpy().tolist())


def _make_choice_check(flag: str, what: str, known: Iterable[str], code: str) -> _Check:
    """Return a check that the answer to ``flag`` is one of the known names."""
    step = "choose one of them"
    return lambda answers, _fields: refuse_unknown(what, answers[flag], tuple(known), code=code, next_step=step)


def _refuse_invalid_bounds(answers: Answers, _fields: Fields) -> None:
    """Raise OdError if the bounds given so far are not valid. The bound of a year may be missing."""
    bounds: dict[str, Any] = {"max_trips": as_number(answers["max_trips"])}  # PrivacyUnit refuses other texts
    if answers.get("max_trips_pair"):
        bounds["max_trips_pair"] = as_number(answers["max_trips_pair"])
    if "max_trips_year" in answers:
        bounds["max_trips_year"] = as_number(answers["max_trips_year"])
        bounds["id_pattern"] = answers.get("id_pattern", ".+")
    PrivacyUnit("user_year" if "max_trips_year" in answers else "user_period", column=answers["column"], **bounds)


def _refuse_cap_without_reason(answers: Answers, _fields: Fields) -> None:
    """Raise OdError if a cap is given without a reason. A computed cap needs none."""
    if answers["cap"] and not answers["reason"].strip():
        raise OdError("OD-DOMAIN-CAP", "a cap of your own needs a reason", next_step="give --reason")


def _refuse_invalid_owner(answers: Answers, _fields: Fields) -> None:
    """Raise OdError if Dagster refuses an owner: it is neither a team nor an e-mail address."""
    try:
        dg.AssetSpec("any", owners=as_list(answers["owner"]))
    except dg.DagsterError:
        step = "give team:name or an e-mail address"
        raise OdError("OD-CONFIG", f"Invalid owner {answers['owner']!r}", next_step=step) from None


def _refuse_absent_file(flag: str, what: str, answers: Answers, _fields: Fields) -> None:
    """Raise OdError if the answer to ``flag`` is not a readable file; ``what`` describes the file in the message."""
    fault = find_file_fault(find_current_project().root / answers[flag]) if answers[flag] else None
    if fault is not None:
        step = f"give --{flag} and the path of a public {what} that can be read"
        raise OdError("OD-FILE-MISSING", fault, next_step=step)


def _refuse_absent_boundaries(answers: Answers, fields: Fields) -> None:
    """Raise OdError if the file of boundaries cannot be read, or if records with coordinates need one."""
    if answers["boundaries"]:
        fault = find_file_fault(find_current_project().root / answers["boundaries"])
        code = "OD-FILE-MISSING"
    else:
        is_stated = any(place.startswith("geography.boundaries") for place in fields)
        is_needed = _has_points(answers, fields) and not is_stated
        fault = "records with coordinates need the boundaries of zones" if is_needed else None
        code = "OD-INIT-FLAG"
    if fault is not None:
        raise OdError(code, fault, next_step="give --boundaries and the path of a public file of polygons of the zones")


def _refuse_invalid_periods(answers: Answers, _fields: Fields) -> None:
    """Raise OdError if the length and the first and last period given so far do not fit together."""
    last = Period(answers["last"]) if "last" in answers else None
    SeriesPeriods(answers["every"], Period(answers["first"]), last, None)


def _list_unused_record_columns(answers: Answers, fields: Fields) -> list[str] | None:
    """Return the columns of the newest file of records that are not read; None if there is no file yet."""
    records = _find_newest_records(answers, fields)
    return None if records is None else list_unused_columns(records.schema, records.columns, records.form)


def _find_zone_column_by_start(answers: Answers, fields: Fields, *starts: str) -> str:
    """Return the first unused column of the list of zones whose name begins with one of some texts, or ""."""
    return next((name for name in list_unused_zone_columns(answers, fields) if name.casefold().startswith(starts)), "")


FOUND: dict[str, Callable[..., object]] = {
    "named": _find_column_by_word,
    "points": _find_point_columns,
    "has_points": _has_points,
    "unused": _list_unused_record_columns,
    "levels_found": _suggest_levels,
    "absent": list_absent_levels,
    "further": list_unused_zone_columns,
    "names_found": _suggest_level_names,
    "begins": _find_zone_column_by_start,
    "length_found": _suggest_period_length,
    "first_found": lambda answers, _fields: min(_find_period_files(answers["records"]).items())[1][0],
}
"""Functions of the answers so far that read the files, by their names in the expressions of ``questions.toml``."""


def evaluate_expression(expression: str, answers: Answers, fields: Fields) -> Any:
    """Return the value of an expression in ``questions.toml``; None if it needs a file that cannot be read."""
    with suppress(OdError, ValueError):  # a file cannot be read, or there is none
        functions = {name: partial(find, answers, fields) for name, find in FOUND.items()}
        return _EXPRESSIONS.compile_expression(expression)({**answers, **functions})
    return None


CHECKS_OF_FILES: dict[str, _Check] = {
    "kind": _make_choice_check("kind", "kind of release", _KINDS, "OD-INIT-FLAG"),
    "records": refuse_unopenable_records,
    "reader": refuse_unreadable_records,
    **{flag: partial(refuse_absent_column, flag) for flag in (*ROLES, "column")},
    "outline": partial(_refuse_absent_file, "outline", "outline"),
    "zones": partial(_refuse_absent_file, "zones", "list of zones"),
    "boundaries": _refuse_absent_boundaries,
}
"""Functions that raise OdError for an answer that does not fit the files or the other questions, by flag."""

CHECKS_OF_VALUES: dict[str, _Check] = {
    "every": _make_choice_check("every", "length of periods", (*LENGTHS, SINGLE), "OD-PERIOD-TEXT"),
    "first": _refuse_invalid_periods,
    "last": _refuse_invalid_periods,
    "time_zone": lambda answers, _fields: check_time_zone(answers["time_zone"]),
    "unit": _make_choice_check("unit", "privacy unit", UNIT_KINDS, "OD-UNIT-UNKNOWN"),
    "max_trips": _refuse_invalid_bounds,
    "max_trips_pair": _refuse_invalid_bounds,
    "max_trips_year": _refuse_invalid_bounds,
    "id_pattern": _refuse_invalid_bounds,
    "neighbours": _make_choice_check("neighbours", "neighbour relation", NEIGHBOUR_RELATIONS, "OD-UNIT-UNKNOWN"),
    "epsilon": lambda answers, _fields: Budget(epsilon=answers["epsilon"], delta="1e-8"),
    "delta": lambda answers, _fields: Budget(epsilon=1, delta=answers["delta"]),
    "cap": lambda answers, _fields: Cap(rho=answers["cap"]),
    "reason": _refuse_cap_without_reason,
    "settled_seconds": lambda answers, fields: _make_section(Arrivals, "arrivals", answers, fields).check(
        one_file=True
    ),
    "automation": _make_choice_check("automation", "automation", ("running", "stopped"), "OD-CONFIG"),
    "owner": _refuse_invalid_owner,
    **dict.fromkeys(
        ("title", "description", "source", "licence", "publisher", "contact", "counted"),
        lambda answers, fields: _make_section(About, "about", answers, fields).to_texts(),
    ),
    "zones": lambda answers, _fields: _read_zone_table(answers),
    "levels": refuse_unfit_levels,
    "prefixes": refuse_unfit_levels,
    "names": refuse_unfit_zones,
    "coordinates": refuse_unfit_zones,
    "boundaries_code": refuse_unfit_zones,
    "resolution": refuse_unfit_zones,
}
"""Functions that raise OdError for an answer that no declaration could have after the answers before it, by flag."""


def refuse_wrong_fields(kind: str, fields: Fields) -> None:
    """Raise OdError if an additional field does not exist or has a wrong value, which no answer can correct."""
    model = MODELS[_KINDS[kind]]
    try:
        model.model_validate(make_release_attributes({}, fields))
    except ValidationError as error:
        wrong = [fault for fault in error.errors(include_url=False) if fault["type"] != "missing"]  # not yet answered
        if wrong:
            step = "correct the field, or leave it out"
            raise OdError("OD-CONFIG", f"--set {describe_first_fault(wrong, model)}", next_step=step) from None


ROOM = 5
"""Number of releases that a computed cap allows, with room for lost draws and other tables of the same records."""

_FIRST_FIELDS = ("name", "owners", "trips", "geography", "periods", "domain", "privacy")
"""Fields that every declaration has, in the order in which they are written, before all others."""

_MIN_ZONES_FOR_AREA_TOTALS = 100
"""Smallest number of zones with which area totals pay: sums of as many noisy flows have several times their noise."""

_MAX_PAIRS_FOR_AUTO = 1 << 21
"""Largest number of pairs of zones for which ``estimate: auto`` is proposed: it then takes a minute and 0.5 GB."""

_TEMPORARY_CAP = {"rho": "1e-30", "reason": "no budget may be spent before the cap is computed"}
"""Temporary cap in the file of a data set, until the plan of the release is known."""


def locate_new_files(name: str) -> tuple[Path, Path]:
    """Return the paths of the new files of a release and its data set. Raises OdError for a bad or taken name."""
    ReleaseKey(name, "2001")  # raises for a name that no release can have
    project = find_current_project()
    release_file, data_set_file = project.defs / name / "defs.yaml", project.domains / f"{name}.yaml"
    for path in (release_file.parent, data_set_file):
        if path.exists():
            raise _make_exists_error(path)
    return release_file, data_set_file


def _make_exists_error(path: Path) -> OdError:
    """Return the error for a new file whose place is taken."""
    message = f"{path.parent.name}/{path.name} exists already"
    step = "choose another name; or remove it, if nothing was released with it"
    return OdError("OD-INIT-EXISTS", message, next_step=step)


def _write_new_file(path: Path, text: str, undo: ExitStack) -> None:
    """Write a new file, and its folder if needed, and add their removal to ``undo``. Raises OdError if it exists."""
    step = "correct the rights or the disk of the folder of the declarations"
    with refuse_unwritable_file(f"{path.parent.name}/{path.name}", step):
        if not path.parent.exists():
            path.parent.mkdir()
            undo.callback(path.parent.rmdir)
        try:
            path.open("x").close()  # never overwrite a file created in the meantime
        except FileExistsError:
            raise _make_exists_error(path) from None
        undo.callback(path.unlink, missing_ok=True)
        write_text(path, text)


@contextmanager
def _remove_files_on_error() -> Iterator[ExitStack]:
    """Yield a stack to which the body adds functions that remove the new files; they are called if it raises."""
    with ExitStack() as undo:
        try:
            yield undo
        except OdError as error:
            step = f"{error.next_step}: no file was kept, so run init again with another answer"
            raise error.with_changes(next_step=step) from None
        undo.pop_all()


def initialize(name: str, answers: Answers, fields: Fields) -> tuple[list[Path], dict[str, int]]:
    """Write the declarations of a release and of its data set, if the release can be planned; write both or neither.

    If the project has no warehouse yet, declare it, too. Choices that the fields leave open, such as the noise, are
    those of the least expected error. Return the paths of the written files, and the number of areas by level.

    Raises:
        OdError: one of the files exists already, or the declaration or its plan is refused.
    """
    release_file, data_set_file = locate_new_files(name)
    component = _KINDS[answers["kind"]]
    with _remove_files_on_error() as undo:
        draft = _draft_release(name, component, answers, fields)
        geography = draft.release.read_geography()
        data_set = _draft_data_set(name, answers, draft.release.stated_periods)
        _write_new_file(data_set_file, format_yaml_block(data_set), undo)
        _write_new_file(release_file, draft.format_file(), undo)
        warehouse = draft_missing_warehouse(find_current_project())
        for path, text in warehouse.items():
            _write_new_file(path, text, undo)
        series = read_declared_series(name)
        period = choose_period_to_plan(series, None)
        plan = series.plan_without_cap(geography, period)
        with_less_noise = draft.with_less_noise(plan, answers)
        if with_less_noise is not None:
            write_text(release_file, with_less_noise.format_file())
            series = read_declared_series(name)
            plan = series.plan_without_cap(geography, period)
        suggested_cap = _suggest_cap(series, plan, answers["epsilon"])
        if data_set["cap"] == _TEMPORARY_CAP:
            data_set["cap"] = suggested_cap | ({"reason": answers["reason"]} if answers["reason"] else {})
            write_text(data_set_file, format_yaml_block(data_set))
        series = read_declared_series(name)  # now with its cap
        try:
            series.plan(geography, period)
        except BudgetExceeded as error:
            measure, amount = next(iter(suggested_cap.items()))
            step = f"leave --cap out, for a cap of {measure} {amount}, or give a larger --cap or a smaller --epsilon"
            raise error.with_changes(next_step=step) from None
        Folders().hold_to_declared(series.domain)  # releases of a data set of this name may be charged already
        refuse_unloadable(series)  # a declaration with a fault would stop the whole project from loading
    return [release_file, data_set_file, *warehouse], geography.area_counts


@dataclass(frozen=True)
class _Draft:
    """The declaration of a release: its component, its attributes, and what is proposed.

    ``comments`` has the reason of each proposal by its first attribute, and nothing by its other ones.
    """

    component: str
    attributes: dict[str, Any]
    comments: dict[str, str]

    @cached_property
    def release(self) -> Series[Any, Any]:
        """The release as it is declared. Raises OdError if the declaration is refused."""
        return parse_declaration(self.attributes, MODELS[self.component], f"{self.attributes['name']}/defs.yaml")

    def with_attributes(self, comment: str, attributes: dict[str, Any]) -> Self:
        """Return the draft with proposed attributes, and a comment on the first of them."""
        first, *others = attributes
        comments = dict.fromkeys(others, "") | self.comments | {first: comment}
        return replace(self, attributes=self.attributes | attributes, comments=comments)

    def with_less_noise(self, plan: Any, answers: Answers) -> Self | None:
        """Return the draft with Laplace noise if its plan is expected to have less error with it; otherwise None.

        The budget is then epsilon alone. If the answers or fields state a choice that this changes, or a cap, which
        is in rho and so for Gaussian noise, return None. ``plan`` is that of this draft.
        """
        stated = self.attributes.keys() - set(self.comments)  # by the answers or fields, rather than proposed
        is_settled = answers["cap"] or stated & {"area_totals", "mechanism", "mechanism_options", "estimate"}
        if is_settled or self.attributes["privacy"].keys() != {"epsilon", "delta"}:
            return None
        found = plan.find_less_error()
        if found is None:
            return None
        other, error_ratio = found
        if not other.mechanism.has_laplace_noise or other.tree.order != plan.tree.order:
            return None
        privacy = self.attributes["privacy"]
        comment = format_sentence("init.laplace", percent=round(100 * error_ratio), delta=privacy["delta"])
        changed: dict[str, Any] = {"mechanism_options": {"noise_distribution": "laplace"}}
        changed["privacy"] = {"epsilon": privacy["epsilon"]}
        if other.area_totals is not None:
            changed["area_totals"] = {"share": str(other.area_totals)}
        return self.with_attributes(comment, changed)

    def format_file(self) -> str:
        """Return the text of the file, without default values. The fields that all declarations have come first."""
        given = self.release.model_dump(by_alias=True, exclude_unset=True, exclude_defaults=True)
        text = f"type: {self.component}\n\nattributes:\n"
        for field in dict.fromkeys((*_FIRST_FIELDS, *given)):
            if self.comments.get(field):
                text += fill(self.comments[field], 110, initial_indent="  # ", subsequent_indent="  # ") + "\n"
            text += format_yaml_block({field: given[field]}, indent=2)
        return text


def _draft_release(name: str, component: str, answers: Answers, fields: Fields) -> _Draft:
    """Return the draft of a release as the answers and fields declare it, with proposals where they leave it open."""
    attributes = {"domain": name} | make_release_attributes(answers, fields) | {"name": name}
    draft = _Draft(component, attributes, {})
    if "detail" not in attributes:
        draft = draft.with_attributes(format_sentence("init.detail"), {"detail": "publication"})
    geography = draft.release.read_geography()
    least_zones = min(len(geography.origin.zones), len(geography.destination.zones))
    is_left_open = {"area_totals", "mechanism", "mechanism_options", "bands"}.isdisjoint(attributes)
    if least_zones < _MIN_ZONES_FOR_AREA_TOTALS or not is_left_open:
        return draft
    area_totals = {"area_totals": {"share": "1/10"}}
    if {"tree", "segments"}.isdisjoint(attributes):
        draft = draft.with_attributes(format_sentence("init.both"), {"tree": "both"} | area_totals)
        pairs = len(geography.origin.zones) * len(geography.destination.zones)
        if "estimate" in attributes or pairs > _MAX_PAIRS_FOR_AUTO:
            return draft
        return draft.with_attributes(format_sentence("init.auto"), {"estimate": "auto"})
    return draft.with_attributes(format_sentence("init.area_totals"), area_totals)


def _draft_data_set(name: str, answers: Answers, periods: Periods) -> dict[str, Any]:
    """Return the attributes of a release's data set; without a given cap, with a temporary one. Raises OdError."""
    data_set = {"name": name} | make_file_attributes(answers, "domain")
    given_cap = data_set.pop("cap", {})
    start = periods.first.partition("--")[0]  # of a span
    data_set["elementary_period"] = periods.every if periods.every in LENGTHS else str(Period(start).length)
    data_set["cap"] = given_cap if "rho" in given_cap else _TEMPORARY_CAP
    parse_declaration(data_set, DomainSection, f"{name}.yaml")  # refused without a line of a file that is not kept
    return data_set


def _suggest_cap(series: Series[P, G], plan: Plan, epsilon: str) -> dict[str, str]:
    """Return a cap, in epsilon or rho, for :data:`ROOM` such plans, and its reason, as attributes of a data set.

    Under a unit of a year, it is for this number of releases of each period of a year.
    """
    rho = plan.charge.as_rho
    span = f" per {series.domain.elementary_period}"
    if plan.unit.is_of_year:
        rho = plan.rho_of_year(plan.spent, len(series.domain.periods_of_year(series.periods.first)))
        span = " of each period of a year"
    elif plan.unit.spans_periods:
        span = " in all periods together"
    elif series.stated_periods.every == SINGLE:
        span = ""
    reason = f"room for five releases{span} at epsilon {epsilon}, including lost draws"
    if all(charge.is_pure for charge in plan.charges):
        total = sum((charge.epsilon for charge in plan.charges), start=Fraction(0))
        return {"epsilon": f"{Decimal(format_rounded_up(ROOM * total)):f}", "reason": reason}
    return {"rho": f"{Decimal(format_rounded_up(ROOM * rho, 3)):f}", "reason": reason}
