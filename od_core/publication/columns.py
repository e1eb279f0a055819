"""Read the columns of every public table with their descriptions from ``tables.yaml``.

Files, codebook, schemas, SDMX structures and the comments of the database use them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml

from od_core.languages import get_language, translate
from od_core.meaning.subject import Nouns, make_nouns
from od_core.records.segments import Breakdown

DEFAULT_NOUNS, BOX_NOUNS = make_nouns("flows"), make_nouns("boxes")
"""Nouns of flows and of boxes whose publisher states no other word. The columns of the database have them, too."""

CONFIDENCE = Fraction(9, 10)
"""Probability with which an interval contains the true number of counted trips."""

MOST_LISTED = 5_000_000
"""Largest number of pairs of areas at a pair of levels for which every pair is listed, even a pair with 0 trips."""


@dataclass(frozen=True)
class Column:
    """A column of a public table, with its name in the files.

    Attributes:
        type: type of its values; text is written unchanged, even if it looks like a number.
        title: short title for people.
        description: meaning of the values, in one or two sentences.
        unit: unit of the values, such as ``trips``; None for codes and names.
        required: whether every row has a value.
        minimum: smallest possible value, or None.
    """

    name: str
    type: Literal["string", "integer", "number"]
    title: str
    description: str
    unit: str | None = None
    required: bool = True
    minimum: int | None = None

    def make_bound_column(self, end: Literal["lower", "upper"]) -> Column:
        """Return the column of the lower or the upper bound of this column's values."""
        lower_bound, upper_bound = translate("Lower bound of {quantity}"), translate("Upper bound of {quantity}")
        bound_of = lower_bound if end == "lower" else upper_bound
        bounded = _make_text_values(DEFAULT_NOUNS, get_language())["bounded"]
        return replace(
            self,
            name=f"{self.name}_{end}",
            title=bound_of.format(quantity=self.title.lower()),
            description=f"{bound_of.format(quantity=self.name)}. {bounded}",
            required=True,
        )


@dataclass(frozen=True)
class CodeList:
    """A reference from columns of codes to the table that lists the codes, and to its columns in the same order."""

    columns: tuple[str, ...]
    table: str
    listed: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A public table.

    Attributes:
        name: name of its files, without the extension; a pattern if many files have tables of this form.
        title: short title for people.
        file: description of its files in one line; empty if those who write them describe them.
        row: meaning of one row.
        absent: meaning of a missing row, and of zero.
        columns: columns in the order of the files.
        key: columns that together identify a row.
        code_lists: tables that list the codes in its columns.
    """

    name: str
    title: str
    file: str
    row: str
    absent: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    code_lists: tuple[CodeList, ...] = ()

    def find_column(self, name: str) -> Column:
        """Return the column with that name. Raises KeyError if there is none."""
        return {column.name: column for column in self.columns}[name]


@dataclass(frozen=True)
class TableDescription:
    """The meaning of a row of a table or view of the database, and the descriptions of its columns by name."""

    text: str
    columns: Mapping[str, str]


_DATA = yaml.load(  # the loader is safe: CSafeLoader
    files("od_core.publication").joinpath("tables.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader
)
_COMMON_FACTS = {"confidence": f"{100 * CONFIDENCE}", "most_listed": f"{MOST_LISTED:,}"}
_INTERVAL_ENDS: tuple[Literal["lower", "upper"], ...] = ("lower", "upper")


@cache
def _make_text_values(nouns: Nouns, _language: str) -> Mapping[str, str]:
    """Return the values of the names in braces that all texts of ``tables.yaml`` may use: nouns, facts, sentences."""
    words = nouns.index_words() | _COMMON_FACTS
    return words | {name: translate(text).format(**words) for name, text in _DATA["sentences"].items()}


def _format_name(text: str, nouns: Nouns, **facts: str) -> str:
    """Return a name of ``tables.yaml``, which programs read in every language, with its names in braces replaced."""
    return text.format(**_make_text_values(nouns, get_language()), **facts)


def _format_text(text: str, nouns: Nouns, **facts: str) -> str:
    """Return a text of ``tables.yaml`` in the language, with its names in braces replaced.

    ``facts`` are further values by name.
    """
    return _format_name(translate(text), nouns, **facts)


def _make_column(definition: str | Mapping[str, Any], nouns: Nouns = DEFAULT_NOUNS, **facts: str) -> Column:
    """Return the column of a definition in ``tables.yaml``.

    Args:
        definition: key of a common column, which is also its name; or the fields of a column, which are all fields, or
            those in which it differs from the common column that the field ``like`` names.
        nouns: nouns of the release.
        facts: further values of names in braces.
    """
    fields: dict[str, Any] = dict(_DATA["columns"][definition] if isinstance(definition, str) else definition)
    like = fields.pop("like", None)
    for name, value in fields.items():
        if isinstance(value, str):
            format_value = _format_name if name in ("name", "type") else _format_text
            fields[name] = format_value(value, nouns, **facts)
    if like is not None:
        return replace(_make_column(like, nouns), **fields)
    return Column(**{"type": "string", "name": definition} | fields)


def make_public_table(
    key: str, nouns: Nouns = DEFAULT_NOUNS, *, interval: bool = False, distance: bool = False, **facts: str
) -> Table:
    """Return the definition of a table by its key in ``tables.yaml``.

    Args:
        key: key of the table.
        nouns: nouns of the release.
        interval: whether the table has the columns that its definition lists under ``intervals`` or, if its definition
            says ``bounds``, two bounds after every column that is not in the key.
        distance: whether it has the columns that its definition lists under ``distances``.
        facts: values of names in braces that only this table has.
    """
    return _make_public_table(key, nouns, get_language(), interval, distance, **facts)


@cache
def _make_public_table(
    key: str,
    nouns: Nouns,
    _language: str,
    interval: bool,
    distance: bool,
    **facts: str,
) -> Table:
    """Return the result of :func:`make_public_table` in the language, which is the one that is used at the time."""
    definition = _DATA["tables"][key]

    def format_text(text: str) -> str:
        """Return a text with its names in braces replaced."""
        return _format_text(text, nouns, **facts)

    def format_name(text: str) -> str:
        """Return a name, which is not translated, with its names in braces replaced."""
        return _format_name(text, nouns, **facts)

    key_columns = tuple(map(format_name, definition["key"]))
    interval_parts = definition.get("intervals", {}) if interval else {}
    distance_columns = definition.get("distances", ()) if distance else ()
    columns: list[Column] = []
    for column_definition in (*definition["columns"], *interval_parts.get("columns", ()), *distance_columns):
        column = _make_column(column_definition, nouns, **facts)
        columns.append(column)
        if interval and definition.get("bounds") and column.name not in key_columns:
            columns += map(column.make_bound_column, _INTERVAL_ENDS)
    code_lists = definition.get("code_lists", ())
    return Table(
        name=format_name(definition.get("name", key)),
        title=format_text(definition["title"]),
        file=format_text(definition.get("file", "")),
        row=format_text(definition["row"]),
        absent=format_text(interval_parts.get("absent", definition["absent"])),
        columns=tuple(columns),
        key=key_columns,
        code_lists=tuple(
            CodeList(columns=tuple(codes["columns"]), table=codes["table"], listed=tuple(codes["listed"]))
            for codes in code_lists
        ),
    )


ORIGIN, DESTINATION, TRIPS, LOWER, UPPER = map(_make_column, ("origin", "destination", "trips", "lower", "upper"))
DISTANCE, PERIOD, NOISY, AREA, AREA_LEVEL = map(_make_column, ("distance_km", "period", "noisy", "area", "area_level"))
RELIABILITY = _make_column("reliability")
COUNT_ENDS = _make_column("count_lower"), _make_column("count_upper")

FLOWS = make_public_table("flows")
FLOWS_WITH_INTERVALS = make_public_table("flows", interval=True)
NOISY_MEASUREMENTS = make_public_table("noisy_measurements")
SEGMENT_MEASUREMENTS = make_public_table("segment_measurements")
HISTOGRAM, GROUP_MEASUREMENTS = make_public_table("histogram"), make_public_table("group_measurements")


def make_period_column(nouns: Nouns) -> Column:
    """Return the column of the period, which the structure of an SDMX message has."""
    return _make_column("period", nouns)


def make_boxes_table(
    dimensions: int, places: Sequence[str] = (), nouns: Nouns = BOX_NOUNS, *, interval: bool = True
) -> Table:
    """Return the definition of the table of boxes of a grid.

    Args:
        dimensions: number of dimensions of the grid.
        places: names of the places of a trip, if the grid is a map, which has a longitude and a latitude for each.
        nouns: nouns of the release.
        interval: whether the table has the intervals of the trips.
    """
    axes = [translate("dimension {number}").format(number=dimension + 1) for dimension in range(dimensions)]
    if places:
        coordinates = translate("the longitude of place {place!r}"), translate("the latitude of place {place!r}")
        axes = [text.format(place=place) for place in places for text in coordinates]
    ends_of_boxes = []
    for end, title in (("lower", translate("First")), ("upper", translate("Last"))):
        for number, axis in enumerate(axes, start=1):
            ends_of_boxes.append(_make_column("box_end", end=end, title=title, number=str(number), along=axis))
    boxes = make_public_table("boxes", nouns)
    ends_of_counts = {column.name for column in COUNT_ENDS}
    columns = [column for column in boxes.columns if interval or column.name not in ends_of_counts]
    key = tuple(column.name for column in ends_of_boxes)
    return replace(boxes, columns=(*ends_of_boxes, *columns), key=key)


def make_pair_segments_table(breakdown: Breakdown, nouns: Nouns = DEFAULT_NOUNS, *, interval: bool) -> Table:
    """Return the table of a breakdown at one pair of levels, whose column of categories has the breakdown's name."""
    categories = f"{describe_categories(breakdown)} {describe_unlisted_records(breakdown)}"
    key = "pair_segments" if nouns.has_pairs else "pair_segment_counts"
    return make_public_table(key, nouns, interval=interval, breakdown=breakdown.name, categories=categories)


def describe_categories(breakdown: Breakdown) -> str:
    """Return a sentence that lists the categories of a breakdown."""
    sentence = translate("One of {number} categories: {categories}.")
    return sentence.format(number=len(breakdown.categories), categories="; ".join(breakdown.categories))


def describe_unlisted_records(breakdown: Breakdown) -> str:
    """Return a sentence on the records whose category is missing or not in the list."""
    if breakdown.unknown is None:
        return translate("A record whose {breakdown} is missing or not listed is faulty.").format(
            breakdown=breakdown.name
        )
    return translate("A record whose {breakdown} is missing or not listed is counted as {category}.").format(
        breakdown=breakdown.name, category=breakdown.unknown
    )


_COMPLETE_TABLES = ("indicators", "segments")
"""Tables of the database that have all columns, whatever a release has."""


def _describe_table(definition: Mapping[str, Any]) -> TableDescription:
    """Return the description of a table of the database, from its definition in ``tables.yaml``.

    The table has the columns of the public table ``of``, if one is named, and the texts ``also`` for others.
    """
    columns = [_make_column(column) for column in definition.get("columns", ())]
    text = definition.get("text", "")
    original = definition.get("of")
    if original is not None:
        has_all_columns = original in _COMPLETE_TABLES
        table = make_public_table(original, interval=has_all_columns, distance=has_all_columns)
        columns += table.columns
        text = definition.get("text", table.row)
    texts = {column.name: column.description for column in columns} | definition.get("also", {})
    return TableDescription(text, texts)


DATABASE = {name: _describe_table(definition) for name, definition in _DATA["database"].items()}
"""Description of each table or view of the database, by name."""
