"""Define the questions of a first declaration, one for each option of ``od-release init``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml


def as_text(answer: str) -> Any:
    """Return an answer unchanged."""
    return answer


def as_list(answer: str) -> Any:
    """Return the comma-separated parts of an answer."""
    return [part.strip() for part in answer.split(",")]


def as_yaml(answer: str) -> Any:
    """Parse an answer as YAML lists and mappings of texts; return it unchanged if it is no YAML.

    Numbers and dates stay text, since codes and periods look like them. Fields of numbers accept text too.
    """
    try:
        return yaml.load(answer, Loader=yaml.BaseLoader)  # noqa: S506  # it makes only texts, lists and mappings
    except yaml.YAMLError:
        return answer


def as_mapping(answer: str) -> Any:
    """Return the mapping of an answer such as ``province=3,region=1``."""
    return {name.strip(): as_yaml(value) for name, _, value in (part.partition("=") for part in answer.split(","))}


@dataclass(frozen=True)
class Question:
    """A question whose answer fills a field of a declaration.

    Attributes:
        flag: option of the command line, without dashes and with underscores.
        asks: the question in words.
        place: path of the field in the release's declaration, or, after ``domain:``, in that of its data set.
        default: answer if none is given; None if an answer is required, an empty text if the field may be left out.
        read: converts an answer to the value of the field.
        of_users: whether it is asked only if users are protected.
    """

    flag: str
    asks: str
    place: str
    default: str | None = ""
    read: Callable[[str], Any] = as_text
    of_users: bool = False


QUESTIONS = (
    Question("records", "Path of the files of records, with {period} in it", "trips.files", None),
    Question("reader", "Reader of the records, if they are published in a known form", "trips.reader"),
    Question("origin", "Column of origins, if it has another name", "trips.columns.origin"),
    Question("destination", "Column of destinations, if it has another name", "trips.columns.destination"),
    Question("date", "Column of dates; none where a file is one period", "trips.columns.date"),
    Question("trips", "Column of numbers of trips; none for one row a trip", "trips.columns.trips"),
    Question("zones", "Path of the public list of zones", "geography.file", None),
    Question("levels", "Its level columns, coarse to fine, as region,zone", "geography.levels", None, as_list),
    Question(
        "prefixes",
        "Levels that are the first signs of a zone's code, as province=3",
        "geography.prefixes",
        "",
        as_mapping,
    ),
    Question("every", "Length of the periods: day, week, month, quarter, year; or single", "periods.every", "month"),
    Question("first", "First period, as 2026-01", "periods.first", None),
    Question("last", "Last period; none for a series that goes on", "periods.last"),
    Question("time_zone", "Time zone in which days begin, as Europe/Rome; none for local times", "domain:time_zone"),
    Question("unit", "What is protected: trip, user_period or user", "domain:unit", None),
    Question("column", "Column of user ids", "domain:column", None, of_users=True),
    Question(
        "one_row_a_trip",
        "Whether each row is one trip, though other columns may hold the trips of a row: true, or none to stop here",
        "trips.one_row_a_trip",
    ),
    Question("max_trips", "Most trips of a user that are counted", "max_trips", None, as_yaml, of_users=True),
    Question(
        "neighbours", "bounded (one replaced) or unbounded (one added or removed)", "domain:neighbours", "bounded"
    ),
    Question("epsilon", "Epsilon of one release", "privacy.epsilon", None),
    Question("delta", "Its delta", "privacy.delta", None),
    Question("cap", "Cap of the data set in rho, if not five times the plan", "domain:cap.rho"),
    Question("reason", "Reason for that cap", "domain:cap.reason"),
    Question(
        "settled_seconds",
        "Release each period by itself, once its file has not changed for so many seconds; none to run it by hand",
        "arrivals.settled_seconds",
        "",
        as_yaml,
    ),
    Question("owner", "Owner, as team:name or an e-mail address", "owners", "team:statistics", as_list),
)


def asks(flag: str) -> str:
    """Return the question that an option of ``od-release init`` answers."""
    return next(question.asks for question in QUESTIONS if question.flag == flag)
