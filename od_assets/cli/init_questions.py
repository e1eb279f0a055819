"""Define the questions of ``od-release init``, one for each option, and write their answers into declarations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from od_core.errors import OdError

Answers = Mapping[str, str]
"""Answers by flag of the question."""

Fields = Mapping[str, str]
"""Additional fields of the release's declaration, by path of the field."""


def as_text(answer: str) -> Any:
    """Return an answer unchanged."""
    return answer


def as_list(answer: str) -> Any:
    """Return the comma-separated parts of an answer."""
    return [part.strip() for part in answer.split(",")]


def as_yaml(answer: str) -> Any:
    """Return an answer parsed as YAML with text values only; return it unchanged if it is not valid YAML.

    Numbers and dates stay text, because codes and periods look like them. Number fields accept text too.
    """
    try:
        return yaml.load(answer, Loader=yaml.BaseLoader)  # noqa: S506  # it makes only texts, lists and mappings
    except yaml.YAMLError:
        return answer


def as_number(answer: str) -> int | str:
    """Return a whole number; return any other answer unchanged, so that the declaration as a whole is judged."""
    return int(answer) if answer.isascii() and answer.isdigit() else answer


def as_mapping(answer: str) -> Any:
    """Return the mapping of an answer such as ``province=3,region=1``."""
    return {name.strip(): as_yaml(value) for name, _, value in (part.partition("=") for part in answer.split(","))}


@dataclass(frozen=True)
class Question:
    """A question whose answer fills a field of a declaration.

    Attributes:
        flag: option of the command line, without dashes and with underscores.
        asks: the question in words.
        place: path of the field in the declaration of the release. If the path begins with ``domain:``, the rest of it
            is a path in the declaration of the data set.
        default: answer if none is given; None if an answer is required, an empty text if the field may be left out.
        read: converts an answer to the value of the field.
        units: privacy units for which the question is asked; all if empty.
        advice: how to choose an answer; shown at the terminal before the question.
    """

    flag: str
    asks: str
    place: str
    default: str | None = ""
    read: Callable[[str], Any] = as_text
    units: tuple[str, ...] = ()
    advice: str = ""


USERS = ("user_period", "user", "user_year")

QUESTIONS = (
    Question("records", "Path of the files of records, with {period} in it", "trips.files", None),
    Question("reader", "Reader of the records, if they are published in a known format", "trips.reader"),
    Question("origin", "Column of origins, if it is not called origin", "trips.columns.origin"),
    Question("destination", "Column of destinations, if it is not called destination", "trips.columns.destination"),
    Question("date", "Column of dates; empty if each file is one period", "trips.columns.date"),
    Question("trips", "Column of numbers of trips; empty for one row per trip", "trips.columns.trips"),
    Question("zones", "Path of the public list of zones", "geography.file", None),
    Question(
        "levels", "Level columns of that list, coarse to fine, such as region,zone", "geography.levels", None, as_list
    ),
    Question(
        "prefixes",
        "Levels that are the first characters of a zone's code, such as province=3",
        "geography.prefixes",
        "",
        as_mapping,
    ),
    Question(
        "names",
        "Columns of the names of areas, by level, such as state=state_name; empty for none",
        "geography.names",
        "",
        as_mapping,
    ),
    Question(
        "coordinates",
        "Columns of latitude and longitude of a zone, such as lat,lon; empty for none",
        "geography.coordinates",
        "",
        as_list,
    ),
    Question("every", "Length of the periods: day, week, month, quarter, year; or single", "periods.every", "month"),
    Question("first", "First period, such as 2026-01", "periods.first", None),
    Question("last", "Last period; empty for a series without an end", "periods.last"),
    Question(
        "time_zone", "Time zone in which days begin, such as Europe/Rome; empty for local times", "domain:time_zone"
    ),
    Question(
        "unit",
        "What is protected: trip, user_period, user or user_year",
        "domain:unit",
        None,
        advice="trip hides each single trip; user_period hides all trips of a person in one period, user those of all "
        "periods, and user_year those of a year, of which only a stated number are counted. If the records have ids of "
        "persons, user_period is the usual choice; without ids, only trip is possible.",
    ),
    Question("column", "Column of user ids", "domain:column", None, units=USERS),
    Question(
        "one_row_a_trip",
        "What a row is: true if each row is one trip, or the column of the number of trips; empty to stop here",
        "trips.one_row_a_trip",
    ),
    Question(
        "max_trips",
        "Largest number of trips that are counted per user",
        "max_trips",
        None,
        as_number,
        units=USERS,
        advice="Further trips of a user are left out, and the noise grows in proportion to this number. Take it from "
        "public knowledge, such as a travel survey, and not from these records; 10 is a start for a month.",
    ),
    Question(
        "max_trips_year",
        "Largest number of trips that are counted per user and year",
        "domain:max_trips_year",
        None,
        as_number,
        units=("user_year",),
        advice="The noise of the same promise grows with the square root of this number. Further trips of a "
        "user in the year are left out. Four times the largest number of a period is a start.",
    ),
    Question(
        "id_pattern",
        "Regular expression that every whole user id matches, such as [0-9a-f]{16}",
        "domain:id_pattern",
        None,
        units=("user_year",),
        advice="A record with another id is faulty. So ids that are written in another way in a later period are found "
        "before they are counted as new users.",
    ),
    Question(
        "neighbours",
        "bounded (one replaced) or unbounded (one added or removed)",
        "domain:neighbours",
        "bounded",
        advice="bounded hides what the trip was, or which trips a user made; unbounded also whether the trip, or the "
        "user, is in the records at all. Choose unbounded if being in the records is itself a secret.",
    ),
    Question(
        "epsilon",
        "Epsilon of one release",
        "privacy.epsilon",
        None,
        advice="Smaller values promise more and add more noise. 1 is a usual start; od-release plan then shows the"
        " noise of every level before anything is spent.",
    ),
    Question(
        "delta",
        "Delta of one release",
        "privacy.delta",
        None,
        advice="The probability that is allowed beyond epsilon. Choose far less than 1 divided by the number of"
        " trips: 1e-8 is a usual choice.",
    ),
    Question(
        "cap",
        "Cap of the data set in rho, if it is not five times the plan",
        "domain:cap.rho",
        advice="No release is possible beyond it. Five times the plan leaves room for corrections of a period, for"
        " other tables of the same records, and for draws that a crash loses.",
    ),
    Question("reason", "Reason for the cap", "domain:cap.reason"),
    Question(
        "settled_seconds",
        "Seconds for which a period's file must be unchanged to be released automatically; empty to run by hand",
        "arrivals.settled_seconds",
        "",
        as_yaml,
    ),
    Question("owner", "Owner: team:name or an e-mail address", "owners", "team:statistics", as_list),
)


def further_fields(given: list[str]) -> Fields:
    """Return the additional fields that ``--set`` gives as FIELD=VALUE.

    Raises:
        OdError: a text has no field or no value, or names the release.
    """
    for text in given:
        field, _, value = text.partition("=")
        if not all(part.strip() for part in (*field.split("."), value)):
            raise OdError(
                "OD-INIT-FLAG",
                f"--set {text!r} is not a field and a value",
                next_step="give --set FIELD=VALUE, such as --set geography.unknown=264",
            )
        if field == "name":
            raise OdError(
                "OD-INIT-FLAG",
                f"--set {text!r} would name the release, which is the first argument",
                next_step=f"leave it out, or call od-release init {value}",
            )
    return dict(text.partition("=")[::2] for text in given)


def fill(release: dict[str, Any], answers: Answers, fields: Fields) -> None:
    """Write the answers on the release, and the additional fields in ``fields``, into the attributes ``release``."""
    for place, value in values_of("", answers):
        put(release, place, value)
    for place, value in fields.items():
        put(release, place, as_yaml(value))


def values_of(of: str, answers: Answers) -> list[tuple[str, Any]]:
    """Return the non-empty answers on the release (``of`` is empty) or on its data set (``of`` is ``domain``).

    Each is the path of its field and its value. Under unit ``user_year``, the contribution bound is the data set's.
    """
    found = []
    for question in QUESTIONS:
        is_moved = question.flag == "max_trips" and answers.get("unit") == "user_year"
        place = f"domain:{question.place}" if is_moved else question.place
        file, _, field = place.rpartition(":")
        if file == of and answers.get(question.flag):
            found.append((field, question.read(answers[question.flag])))
    return found


def put(declared: dict[str, Any], place: str, value: Any) -> None:
    """Write a value into a field, whose path has dots between the names of the sections."""
    *parents, last = place.split(".")
    for parent in parents:
        if not isinstance(declared.get(parent), dict):
            declared[parent] = {}
        declared = declared[parent]
    declared[last] = value
