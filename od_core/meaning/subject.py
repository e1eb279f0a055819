"""Say what a release is about: what it counts, of whom, and with which words.

A subject is made from a plan and the words of its publisher, stored in the certificate, and read back. Every page, file
and message takes its nouns and its bounds from it, and guesses none from a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import yaml

from od_core.languages import get_language, translate_texts
from od_core.privacy.plan import Plan, Table
from od_core.privacy.unit import RECORDS_OF, Neighbours, PrivacyUnit, UnitKind

NO_WORDS: Mapping[str, str] = MappingProxyType({})
"""What a publisher says of a series without any words about it."""


@dataclass(frozen=True, eq=False)
class Nouns:
    """The nouns with which pages, files and messages speak of a release; ``nouns.yaml`` explains each."""

    contents: str
    record: str
    records: str
    one_record: str
    counted: str
    cell: str
    cells: str
    pair: str
    pairs: str
    a_pair: str
    zone_pair: str
    zone_pairs: str
    a_zone_pair: str
    same_zones: str
    level_pair: str
    level_pairs: str
    by_area: str
    places: str
    made: str
    groups: str
    ends: Mapping[str, str]
    heads: Sequence[str]
    of_ends: str
    at_levels: str
    origin: str
    destination: str
    across: str
    from_origin: str
    origin_is: str
    destination_is: str

    @property
    def has_pairs(self) -> bool:
        """Whether a number belongs to a pair of areas."""
        return len(self.ends) > 1

    def index_words(self) -> dict[str, str]:
        """Return the nouns by name, for templates of texts that have these names in braces.

        Each noun is in the result twice: under its name and, with a capital letter, under its capitalized name. Of the
        attributes, only texts are in the result.
        """
        texts = {name: value for name, value in vars(self).items() if isinstance(value, str)}
        texts = {name: text.replace("{counted}", self.counted) for name, text in texts.items()}
        return texts | {name.capitalize(): text[:1].upper() + text[1:] for name, text in texts.items()}

    def format_headers(self, names: Sequence[str]) -> list[str]:
        """Return the headers of columns of areas, given the names of their levels."""
        return [head.format(name) for head, name in zip(self.heads, names, strict=False)]

    def format_areas(self, *names: str) -> str:
        """Return the phrase for the areas of a published number, such as "from A to B" for flows or "in A" for counts.

        ``names`` are those of the areas; if a number belongs to one area, only the first is used.
        """
        return self.of_ends.format(*names)

    def format_levels(self, *names: str) -> str:
        """Return the phrase for the levels of the areas of :meth:`format_areas`, given the names of the levels."""
        return self.at_levels.format(*names)


@dataclass(frozen=True)
class Subject:
    """What a release is about.

    Attributes:
        table: what it has.
        unit, neighbours: kind of the privacy unit, and the neighbour relation.
        max_trips: contribution bound m of a user; None for unit ``trip``.
        max_trips_pair, max_trips_year: bounds of a user's trips of a pair of areas and in a year; None if there is no
            such bound.
        max_weight: largest number of trips that a record counts; None if every record counts 1.
        record_may_leave: whether a neighbouring input may have a record that the release does not count.
        counted: the publisher's word for what is counted, in the plural, such as ``commuters``; None if not stated.
        groups: the publisher's word for groups; None if not stated.
    """

    table: Table
    unit: UnitKind
    neighbours: Neighbours
    max_trips: int | None = None
    max_trips_pair: int | None = None
    max_trips_year: int | None = None
    max_weight: int | None = None
    record_may_leave: bool = False
    counted: str | None = None
    groups: str | None = None

    @classmethod
    def from_plan(cls, plan: Plan, about: Mapping[str, str] = NO_WORDS) -> Subject:
        """Return the subject of a plan, with the publisher's words ``about`` its series, by name."""
        may_leave = plan.neighbours.record_may_leave
        return cls(plan.table, **_list_unit_facts(plan.unit), record_may_leave=may_leave, **_select_words(about))

    def with_unit(self, unit: PrivacyUnit) -> Subject:
        """Return the subject of a release that protects another unit, but is otherwise the same."""
        return replace(self, **_list_unit_facts(unit))

    def facts(self) -> dict[str, object]:
        """Return the subject as JSON-ready public facts, without those that are None and the publisher's words."""
        return {name: fact for name, fact in asdict(self).items() if fact is not None and name not in _WORDS}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], about: Mapping[str, str] = NO_WORDS) -> Subject:
        """Return the subject with the given :meth:`facts` and words of its publisher.

        Facts that this version does not know, as those of later versions, are ignored.
        """
        known = {field.name for field in fields(cls)}
        return cls(**{name: fact for name, fact in facts.items() if name in known}, **_select_words(about))

    @property
    def nouns(self) -> Nouns:
        """The nouns of this subject."""
        return _make_nouns(self.table, self.counted, self.groups, self.is_weighted, get_language())

    @property
    def is_weighted(self) -> bool:
        """Whether records count by their weight."""
        return self.max_weight is not None

    @property
    def counts_all(self) -> bool:
        """Whether every valid record is counted, with its whole weight, so that no bound leaves anything out."""
        return not self.is_of_users and not self.is_weighted

    @property
    def is_of_users(self) -> bool:
        """Whether the privacy unit is a user, whose records are counted up to a bound."""
        return RECORDS_OF[self.unit].is_of_users

    @property
    def owner(self) -> str:
        """Noun for whose records are protected together; ``user`` if records are protected one by one."""
        return str(_read_words(get_language())["units"][RECORDS_OF[self.unit].owner or "user"])

    @property
    def owners(self) -> str:
        """The plural of :attr:`owner`."""
        return str(_read_words(get_language())["units"][f"{RECORDS_OF[self.unit].owner or 'user'}s"])

    @property
    def is_of_year(self) -> bool:
        """Whether the privacy unit is a user in a year."""
        return RECORDS_OF[self.unit].is_of_year

    @property
    def spans_periods(self) -> bool:
        """Whether the losses of several periods add up for one unit."""
        return RECORDS_OF[self.unit].spans_periods

    @property
    def span(self) -> str | None:
        """The time in which the records of a user are one unit; None if it is all time, or if the unit is a record."""
        span = RECORDS_OF[self.unit].span
        return None if span is None else str(_read_words(get_language())["units"][span])

    @property
    def is_of_counts(self) -> bool:
        """Whether the release has counts by one hierarchy, which have no destination."""
        return self.table == "counts"


_WORDS = ("counted", "groups")


def _select_words(about: Mapping[str, str]) -> dict[str, Any]:
    """Return those of the publisher's words that are attributes of a subject, by name."""
    return {name: about[name] for name in _WORDS if name in about}


def _list_unit_facts(unit: PrivacyUnit) -> dict[str, Any]:
    """Return the attributes of a subject that follow from a privacy unit, by name."""
    return {
        "unit": unit.kind,
        "neighbours": unit.neighbours,
        "max_trips": unit.max_trips if unit.is_of_users else None,
        "max_trips_pair": unit.max_trips_pair,
        "max_trips_year": unit.max_trips_year,
        "max_weight": unit.max_weight,
    }


def make_nouns(
    table: Table, counted: str | None = None, groups: str | None = None, *, is_weighted: bool = False
) -> Nouns:
    """Return the nouns for a kind of table.

    Args:
        table: what the release has.
        counted, groups: the publisher's words for what is counted and for groups; None for the default words.
        is_weighted: whether records count by their weight.
    """
    return _make_nouns(table, counted, groups, is_weighted, get_language())


@cache
def _make_nouns(table: Table, counted: str | None, groups: str | None, is_weighted: bool, language: str) -> Nouns:
    """Return the result of :func:`make_nouns` in the language, which is the one that is used at the time."""
    words = _read_words(language)
    nouns = dict(words[table])
    nouns_without_trips = nouns.pop("not_trips")
    if counted is not None or is_weighted:
        nouns |= nouns_without_trips
    if table == "counts" and is_weighted:
        nouns["counted"] = words["weights"]
    if counted is not None:
        nouns["counted"] = counted
    if groups is not None:
        nouns["groups"] = groups
    return Nouns(**nouns)


@cache
def _read_words(_language: str) -> dict[str, Any]:
    """Return the content of ``nouns.yaml`` in the language: the nouns of each table, and further words."""
    text = files("od_core.meaning").joinpath("nouns.yaml").read_text(encoding="utf-8")
    words: dict[str, Any] = translate_texts(yaml.load(text, Loader=yaml.CSafeLoader))  # the loader is safe
    return words
