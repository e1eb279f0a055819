"""Write the first declaration of a release and of its data set from answers to a few questions.

No budget is spent. The first records are read to check whether a row may be many trips; they are not stored or shown.
The components and the plan check whether the answers fit together.
"""

from __future__ import annotations

import datetime
import glob
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from od_assets.cli.declaration_files import already_there, make_file, removed_if_refused, write_text, yaml_block
from od_assets.cli.init_questions import QUESTIONS, Question, as_list, as_yaml
from od_assets.components import OdRelease
from od_assets.components.declarations import declaration, declared_by, refuse_unloadable
from od_assets.components.od_release import Trips
from od_assets.project import current_project
from od_assets.runs.run_period import planned_period
from od_core.errors import OdError
from od_core.files.durable import absence
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import LENGTHS, Period
from od_core.privacy.accounting import LARGEST
from od_core.privacy.cap import Cap
from od_core.records.format import ColumnName, RecordFormat, column_in, shown
from od_core.records.open_file import record_schema
from od_core.records.row_meaning import unclear_records
from od_core.records.zone_lists import read_zones

ROOM = 5
"""Number of releases that a computed cap allows, with room for lost draws and other tables of the same records."""

_DIGITS = 3
"""Number of significant digits of a computed cap."""

_NOTHING_YET = {"rho": "1e-30", "reason": "no budget may be spent before the cap is computed"}
"""Temporary cap in the file of a data set, until the plan of the release is known."""


_NAMED_COLUMNS = ("origin", "destination", "date", "trips", "column")

Answers = Mapping[str, str]
Fields = Mapping[str, str]
"""Additional fields of the release's declaration, by path of the field."""


def answered(
    given: Mapping[str, str | None],
    ask: Callable[[Question], str] | None,
    tell: Callable[[str], None],
    settings: Fields | None = None,
) -> dict[str, str]:
    """Return an answer to every question that applies, by flag, and show the columns of the files.

    An answer that does not fit the files is shown with its fault, and asked again.

    Args:
        given: answers by flag; None for a flag without an answer.
        ask: function that asks the user; None if there is no terminal, so every answer without a default must be given.
        tell: function that shows a line on the columns of a file and their types. No line contains a value of a record.
        settings: additional fields of the release's declaration, by path of the field.

    Raises:
        OdError: an answer is missing or does not fit the files, and there is no terminal; or it is unclear whether a
            row is one trip, and no answer confirms it.
    """
    answers: dict[str, str] = {}
    told: set[str] = set()
    for question in QUESTIONS:
        if question.of_users and not answers["unit"].startswith("user"):
            continue
        answer = given.get(question.flag)
        if question.flag == "one_row_a_trip" and answer is None:
            answers[question.flag] = _said_of_rows(question, answers, ask, tell, settings or {})
            continue
        while True:
            if answer is None:
                answer = ask(question) if ask is not None else question.default
            answers[question.flag] = "" if answer is None else answer
            fault = _fault_of(question, answers, settings or {})
            if fault is None:
                break
            if ask is None:
                raise fault
            tell(f"{fault.message}.")
            answer = None
        look = _TOLD.get(question.flag)
        is_told_later = ask is None and question.flag in ("reader", "zones")
        lines = [] if look is None or is_told_later else look(answers, settings or {})
        for line in lines:
            if line not in told:
                tell(line)
        told.update(lines)
    return answers


def _fault_of(question: Question, answers: Answers, settings: Fields) -> OdError | None:
    """Return an error if the answer to a question is missing or does not fit the files, or None."""
    flag = f"--{question.flag.replace('_', '-')}"
    if question.default is None and not answers[question.flag].strip():
        return OdError("OD-INIT-FLAG", f"{flag} is missing: {question.asks}", next_step=f"give {flag}")
    if question.flag in _NAMED_COLUMNS:
        return _absent_column(question.flag, answers, settings)
    if question.flag == "zones" and (fault := absence(current_project().root / answers["zones"])) is not None:
        return OdError("OD-FILE-MISSING", fault, next_step="give the path of the public list of zones")
    return None


def _absent_column(flag: str, answers: Answers, settings: Fields) -> OdError | None:
    """Return an error if the newest file of records can be read and lacks the column that is declared, or None."""
    source = _newest_file(answers["records"])
    if source is None or absence(source) is not None:
        return None  # the file comes later, or what is wrong with it is shown
    try:
        trips = _declared_trips(answers, settings)
        form = trips.record_format()
        schema = record_schema(source, form)
        columns = form.columns_with(**trips.columns.model_dump())
    except (ValidationError, OdError):
        return None  # shown, or refused later for the same reason
    name = answers["column"] if flag == "column" else getattr(columns, flag)
    if not name or column_in(name, list(schema)) is not None:
        return None
    message = f"{source.name} has no column {shown(name)}"
    if _may_show(source, form, schema, columns.names):
        message += f"; it has {', '.join(schema)}"
    return OdError("OD-INIT-COLUMN", message, next_step=f"give --{flag} and the name of a column of the file")


def _declared_trips(answers: Answers, settings: Fields) -> Trips:
    """Return what the answers and the additional fields declare on the records. Raises ValidationError."""
    stated: dict[str, Any] = {}
    _fill(stated, answers, settings)
    return Trips.model_validate(stated["trips"])


def _may_show(source: Path, form: RecordFormat, schema: Mapping[str, str], names: Iterable[ColumnName]) -> bool:
    """Return False if the first line of a CSV file may be a record, because it has none of the names of columns."""
    return form.container_of(source) != "csv" or any(column_in(name, list(schema)) for name in names)


def _said_of_rows(
    question: Question,
    answers: Answers,
    ask: Callable[[Question], str] | None,
    tell: Callable[[str], None],
    settings: Fields,
) -> str:
    """Return the answer to whether each row is one trip. Ask the user only if the records suggest otherwise.

    Raises:
        OdError: the records suggest otherwise, and the user does not confirm that each row is one trip.
    """
    unclear = _unclear_rows(answers, settings)
    if unclear is None:
        return ""
    if ask is not None:
        tell(f"{unclear.message}.")
        if ask(question).strip().lower() == "true":
            return "true"
    raise unclear


def _unclear_rows(answers: Answers, settings: Fields) -> OdError | None:
    """Return an error if the columns or first rows of the newest file of records suggest that a row is not one trip.

    Return None if nothing suggests it, if the answers state that a row is one trip or name a column of trips, or if no
    file can be read. Other steps report faults of the file.
    """
    source = _newest_file(answers["records"])
    if source is None or absence(source) is not None:
        return None
    try:
        trips = _declared_trips(answers, settings)
        form = trips.record_format()
        columns = replace(form.columns_with(**trips.columns.model_dump()), user=answers.get("column") or None)
        unclear, are_pairs_single = unclear_records(source, columns, form)
    except (ValidationError, OdError):
        return None
    if not unclear and not are_pairs_single:
        return None
    found = (
        f"column {unclear[0]!r} may hold the number of trips of a row, judging by its name or its numbers"
        if unclear
        else "no pair of origin and destination appears twice, as in a table of flows"
    )
    return OdError(
        "OD-TRIPS-ROWS",
        f"{source.name}: {found}; nothing says whether a row is one trip",
        next_step="give --trips and the column that holds the number of trips of a row, or --one-row-a-trip true",
    )


def found_records(answers: Answers, settings: Fields) -> list[str]:
    """Return lines to show, with the columns of the newest file of records and their types.

    The first line of a CSV file may be a record, so the columns are shown only if one of them is named by the answers
    or the reader.
    """
    source = _newest_file(answers["records"])
    if source is None:
        return [f"There is no file {answers['records']} yet."]
    if (fault := absence(source)) is not None:
        return [f"{fault}."]
    try:
        form = _declared_trips(answers, settings).record_format()
        schema = record_schema(source, form)
    except ValidationError:
        return []  # the declaration is refused for the same reason
    except OdError as error:
        return [f"{error.message}: {error.next_step}."]
    named = [answers[flag] for flag in _NAMED_COLUMNS if answers.get(flag)]
    published = () if form.container == "named" else form.columns.names
    if not _may_show(source, form, schema, (*named, *published)):
        return [f"{source.name} has {len(schema)} columns; their names are shown once one of them is named."]
    columns = ", ".join(f"{name} ({kind})" for name, kind in schema.items())
    return [f"{source.name} has the columns {columns}."]


def _newest_file(records: str) -> Path | None:
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


def found_zones(answers: Answers, _settings: Fields) -> list[str]:
    """Return lines to show, with the columns of the list of zones.

    If the user gives a wrong path, the first line of the file may be a record. So the columns are shown only if one of
    them is a named level.
    """
    path = current_project().root / answers["zones"]
    try:
        columns = [str(name) for name in read_zones(path).columns]
    except OdError as error:
        return [f"{error.message}."]
    levels = as_list(answers.get("levels", ""))
    if not any(level in columns for level in levels):
        return [f"{path.name} has {len(columns)} columns; their names are shown once one of them is named as a level."]
    return [f"{path.name} has the columns {', '.join(columns)}."]


_TOLD: dict[str, Callable[[Answers, Fields], list[str]]] = {
    "reader": found_records,
    "trips": found_records,
    "column": found_records,
    "zones": found_zones,
    "levels": found_zones,
}
"""Functions that return the lines to show after a question, by flag of the question."""


@dataclass(frozen=True)
class Initialized:
    """A declaration that was written and can be planned.

    Attributes:
        files: files that were written.
        area_counts: number of areas of the geography, by level.
    """

    files: tuple[Path, ...]
    area_counts: dict[str, int]


def places_of(name: str) -> tuple[Path, Path]:
    """Return the paths of the new files of a release and its data set. Raises OdError for a bad or taken name."""
    ReleaseKey(name, "2001")  # it becomes the name of files
    project = current_project()
    places = project.defs / name / "defs.yaml", project.domains / f"{name}.yaml"
    for path in (places[0].parent, places[1]):
        if path.exists():
            raise already_there(path)
    return places


def initialize(name: str, answers: Answers, settings: Fields | None = None) -> Initialized:
    """Write the declarations of a release and of its data set, if the release can be planned; write both or neither.

    Args:
        name: name of the release and of the data set.
        answers: answers to all questions, by flag.
        settings: additional fields of the release's declaration, by path of the field.

    Raises:
        OdError: one of the files exists already; or the declaration or its plan is refused, in which case the written
            files are removed.
    """
    places = places_of(name)
    release, data_set = _declared(name, answers, settings or {})
    fitting = declared_by(release, OdRelease, f"{name}/defs.yaml").model_dump(exclude_defaults=True)
    text = f"type: od_assets.components.OdRelease\n\nattributes:\n{yaml_block(_kept(release, fitting), indent=2)}"
    with removed_if_refused() as made:
        make_file(places[1], yaml_block(data_set), made)
        make_file(places[0], text, made)
        component = declaration(name)
        found = component.settings()
        geography, period = found.read_geography(), planned_period(component, None)
        if data_set["cap"] == _NOTHING_YET:
            unlimited = replace(found, domain=replace(found.domain, cap=Cap(rho=LARGEST)))
            rho = unlimited.plan(geography, period).charge.as_rho
            data_set["cap"] = {"rho": cap_above(rho), "reason": answers["reason"] or _reason(answers, data_set)}
            write_text(places[1], yaml_block(data_set))
        declared = declaration(name)
        declared.settings().plan(geography, period)
        refuse_unloadable(declared)  # a declaration with a fault would stop the whole project from loading
    return Initialized(places, geography.area_counts)


def cap_above(rho: Fraction) -> str:
    """Return ``ROOM`` times the rho of one plan, rounded up to three significant digits, as decimal text.

    >>> cap_above(Fraction("0.019215"))
    '0.0961'
    """
    wanted = ROOM * rho
    power = math.floor(math.log10(wanted)) - _DIGITS + 1
    digits = math.ceil(wanted / Fraction(10) ** power)
    return format(Decimal(digits).scaleb(power).normalize(), "f")


def _reason(answers: Answers, data_set: Mapping[str, Any]) -> str:
    per = "in all periods together" if data_set["unit"] == "user" else f"per {data_set['elementary_period']}"
    return f"room for five releases {per} at epsilon {answers['epsilon']}, including lost draws"


def _declared(name: str, answers: Answers, settings: Fields) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the attributes of the release and of its data set, from the answers and the additional fields."""
    release: dict[str, Any] = dict.fromkeys(("name", "owners", "trips", "geography", "periods"), None) | {
        "domain": name
    }
    data_set: dict[str, Any] = {"name": name}
    _fill(release, answers, settings)
    for question, answer in _answers_of("domain", answers):
        _put(data_set, question.place.removeprefix("domain:"), question.read(answer))
    release["name"] = name
    data_set["elementary_period"] = _elementary_period(release["periods"])
    cap = data_set.pop("cap", {})  # put back below, as the last field of the file
    data_set["cap"] = cap if "rho" in cap else _NOTHING_YET
    return release, data_set


def _fill(release: dict[str, Any], answers: Answers, settings: Fields) -> None:
    """Write the answers on the release, and the additional fields in ``settings``, into the attributes ``release``."""
    for question, answer in _answers_of("", answers):
        _put(release, question.place, question.read(answer))
    for place, value in settings.items():
        _put(release, place, as_yaml(value))


def _answers_of(of: str, answers: Answers) -> list[tuple[Question, str]]:
    """Return the non-empty answers on the release (``of`` is empty) or on its data set (``of`` is ``domain``)."""
    wanted = [question for question in QUESTIONS if question.place.rpartition(":")[0] == of]
    return [(question, answers[question.flag]) for question in wanted if answers.get(question.flag)]


def _put(declared: dict[str, Any], place: str, value: Any) -> None:
    *parents, last = place.split(".")
    for parent in parents:
        if not isinstance(declared.get(parent), dict):
            declared[parent] = {}
        declared = declared[parent]
    declared[last] = value


def _elementary_period(periods: Mapping[str, str]) -> str:
    """Return the length of the periods; for a span such as ``2001-01--2001-06``, the length of its first part."""
    every = periods["every"]
    return every if every in LENGTHS else str(Period(periods["first"].partition("--")[0]).length)


def _kept(stated: Mapping[str, Any], fitting: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of ``stated`` that are also in ``fitting``, with the values in ``fitting``.

    ``fitting`` has the validated values, without values that equal the default.
    """
    return {
        name: _kept(value, fitting[name]) if isinstance(fitting[name], dict) else fitting[name]
        for name, value in stated.items()
        if name in fitting
    }
