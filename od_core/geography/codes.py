"""Check the public codes and names of areas, and make labels of them for people.

Codes identify areas in every file. A code must be plain text that a spreadsheet does not run as a formula and that
readers do not mistake for another code. Names are for people, and need not be unique.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any
from unicodedata import normalize

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from od_core.errors import OdError, suggest_known_names
from od_core.files.data_frame import convert_to_texts

_FORMULA = re.compile('(^|[,;|"])\\s*[-=+@\uff0d\uff1d\uff0b\uff20]')
"""Text that a spreadsheet may run as a formula: a formula sign, of normal or full width, at the beginning of a cell.

Depending on the country, spreadsheets separate cells at commas or semicolons. Such codes are refused, because codes are
published unchanged: if they were escaped in the CSV files, they would differ from the codes in other files. Signed
numbers are refused too, although they are harmless, so that the rule has no exceptions. Records with a code such as -1
for "elsewhere" can be assigned to the ``unknown`` zone.
"""

READ_AS_TEXT = "pandas.read_csv(path, dtype=str, keep_default_na=False)"
"""How pandas reads every code of a CSV file, as a message says it."""

_SCIENTIFIC_NUMBER = re.compile(r"\d(\.\d+)?[Ee]\+\d+")
"""A long number as spreadsheets and R write it, which has lost its last digits, such as ``1.2E+11``."""

_MISSING_TO_PANDAS = ("NA", "N/A", "n/a", "NULL", "null", "NaN", "nan", "None", "<NA>")

TEXT = pd.StringDtype(na_value=np.nan)
"""pandas' default type of text. To look it up by its name, ``str``, takes longer than to make a short column."""

MAX_CODE_LENGTH = 250
"""Largest number of characters of a code. A longer text is normally a field whose closing quote is missing."""


def read_text_codes(column: pd.Series, name: str) -> list[str]:
    """Return the codes of a column of a public list, one per row. Raises OdError if :func:`check_codes` refuses one.

    ``name`` is the name of the column, for messages.
    """
    codes = column.to_list() if isinstance(column.dtype, pd.StringDtype) else list(column.astype(object))
    check_codes(codes, name)
    return codes


def check_codes(codes: Sequence[Any], name: str, what: str = "code") -> None:
    """Raise OdError unless each code, or other text, in a column of a public list is valid.

    A code is refused if it is missing, is not text, is blank, begins or ends with a space, is too long, is not
    printable, is a number in scientific notation, or could be run as a formula. ``name`` is the name of the column, and
    ``what`` the word for its values, such as ``name``; both are for messages.
    """
    for value in codes:
        if not isinstance(value, str):
            if pd.isna(value):
                step = f"give every row a {what}; only {READ_AS_TEXT} keeps the text NA, which is else missing"
                raise OdError("OD-GEOGRAPHY-MISSING-CODE", f"column {name!r} has a missing {what}", next_step=step)
            raise make_geography_error(
                "OD-GEOGRAPHY-NOT-TEXT",
                f"column {name!r} contains a {what} that is not text;"
                " codes read as numbers lose their leading zeros, so read the column as text",
                f"{what} {value!r}",
            )
        if not value.strip():
            raise make_geography_error("OD-GEOGRAPHY-BLANK-CODE", f"column {name!r} has a blank {what}")
        if value != value.strip():
            message = f"column {name!r} contains a {what} with leading or trailing spaces"
            raise make_geography_error("OD-GEOGRAPHY-PADDED-CODE", message, f"{what} {value!r}")
        if len(value) > MAX_CODE_LENGTH:
            message = f"column {name!r} contains a {what} of more than {MAX_CODE_LENGTH} characters"
            detail = f"the {what} that begins with {value[:20]!r} has {len(value)} characters"
            raise make_geography_error("OD-GEOGRAPHY-LONG-CODE", message, detail)
        if _SCIENTIFIC_NUMBER.fullmatch(value):
            raise OdError(
                "OD-GEOGRAPHY-NOT-TEXT",
                f"column {name!r} contains a {what} in scientific notation, such as 1E+05: a program has read it as a"
                " number, and may have rounded it",
                next_step=f"take the {what}s from their source again, and give the column the type text before they are"
                " read or entered",
                confidential_detail=f"{what} {value!r}",
            )
        if may_be_formula(value) or not value.isprintable():
            raise make_geography_error(
                "OD-GEOGRAPHY-FORMULA",
                f"column {name!r} contains a {what} that a spreadsheet could run as a formula or that is unprintable",
                f"{what} {value!r}",
            )


def may_be_formula(text: str) -> bool:
    """Return whether a spreadsheet might run a text as a formula."""
    return _FORMULA.search(text) is not None


def fold_case(code: str) -> str:
    """Return a form of a code that is equal for codes that differ only in case or in the encoding of accents.

    >>> fold_case("\u00c9vora") == fold_case("e\u0301vora")
    True
    """
    return normalize("NFD", normalize("NFD", code).casefold())


def check_case(codes: Sequence[str], name: str) -> None:
    """Raise OdError if two codes of column ``name`` are equal after :func:`fold_case`."""
    is_ascii = all(map(str.isascii, codes))
    folded = map(str.casefold if is_ascii else fold_case, codes)  # of ASCII, the two return the same
    conflict = find_first_conflict(zip(folded, codes, strict=True))
    if conflict is not None:
        _folded, code, other_code = conflict
        message = f"column {name!r} contains codes that differ only in case, or in how accents are encoded"
        raise make_geography_error("OD-GEOGRAPHY-CASE", message, f"codes {code!r} and {other_code!r}")


def find_first_conflict(pairs: Iterable[tuple[str, str]]) -> tuple[str, str, str] | None:
    """Return the first key of (key, value) ``pairs`` with two different values, and the two values, in their order.

    Return None if each key has one value.
    """
    value_of: dict[str, str] = {}
    for key, value in pairs:
        earlier_value = value_of.setdefault(key, value)
        if earlier_value != value:
            return key, earlier_value, value
    return None


def format_pandas_advice(codes: Sequence[str]) -> str:
    """Return advice to end a next step with if pandas reads one of ``codes``, such as NA, as missing; otherwise ""."""
    lost = next((code for code in codes if code in _MISSING_TO_PANDAS), None)
    return "" if lost is None else f"; {lost!r} is a code, and only {READ_AS_TEXT} does not read it as missing"


def check_columns(table: pd.DataFrame, list_name: str, expected: Sequence[str]) -> None:
    """Raise OdError if a public list lacks an expected column, or has two columns of the same name.

    The message names columns of the list only if the list has at least one of the expected columns. Otherwise, the
    names go into the confidential detail: they may be the first row of a list without a header, or, if the path is
    wrong, a record. ``list_name`` names the list in words. Columns without a name, which are not used, may be alike.
    """
    names = [str(column) for column in table.columns]
    missing = next((name for name in expected if name not in names), None)
    if missing is not None:
        raise make_missing_column_error(list_name, missing, names, expected, table)
    repeated = find_first_repeated([name for name in names if name.strip()])
    if repeated is not None:
        numbers = " and ".join(str(number) for number, name in enumerate(names, start=1) if name == repeated)
        message = f"the list has a column more than once: its columns {numbers} have the same name"
        raise make_geography_error("OD-GEOGRAPHY-COLUMN", message, f"column {repeated!r}")


def make_missing_column_error(
    table: str, name: str, columns: Sequence[str], expected: Sequence[str], rows: pd.DataFrame | None = None
) -> OdError:
    """Return the OdError for a column that a public list lacks; see :func:`check_columns` for what it names.

    Args:
        table: name of the list in words, with which the message begins.
        name: missing column.
        columns: columns that the list has.
        expected: all columns that it should have.
        rows: rows of the list, in which the real header is searched below a title.
    """
    if any(column in columns for column in expected):
        near = suggest_known_names(name, tuple(columns))
        return make_geography_error("OD-GEOGRAPHY-COLUMN", f"{table} has no column {name!r} ({near})")
    message = f"{table} has no column {name!r} and none of the other expected columns"
    detail = f"its columns: {columns!r}"
    line = None if rows is None else _find_line_of_names(rows, expected)
    if line is None:
        return make_geography_error("OD-GEOGRAPHY-COLUMN", message, detail)
    step = f"remove what is above line {line}, such as a title"
    return make_geography_error("OD-GEOGRAPHY-COLUMN", f"{message}, which are in line {line}", detail, next_step=step)


_MAX_LINES_SEARCHED = 50
"""Number of lines below the header in which the real header of a file is searched."""


def _find_line_of_names(rows: pd.DataFrame, expected: Sequence[str]) -> int | None:
    """Return the number of the first line of a file below line 1 that has an expected name of a column.

    Return None if none of the first ``_MAX_LINES_SEARCHED`` rows has one. ``rows`` is the file, whose header is line 1.
    """
    for line, row in enumerate(rows.head(_MAX_LINES_SEARCHED).itertuples(index=False), start=2):
        if not {*expected}.isdisjoint(map(str, row)):
            return line
    return None


def make_geography_error(
    code: str, message: str, detail: str | None = None, *, next_step: str = "correct the public geography"
) -> OdError:
    """Return the OdError for a faulty public list.

    ``detail``, which may quote the list, is confidential, because a wrong path may lead to records.
    """
    return OdError(code, message, next_step=next_step, confidential_detail=detail)


# Coordinates of zones in degrees, used only for maps.


Degrees = NDArray[np.float64]
"""Degrees, as an array of any shape; coordinates of zones have the shape (zones, 2)."""

COORDINATES = ("latitude", "longitude")
"""Names of the columns of coordinates in published tables."""

_MAX_DEGREES = (90, 180)
"""Largest absolute latitude and longitude."""


def parse_degrees(column: pd.Series, name: str) -> Degrees:
    """Return the degrees in a column of numbers or text; shape (rows,). Blank and missing values become NaN.

    ``name`` is the name of the column, for messages. Raises OdError if a value is not a number.
    """
    try:
        return np.array([math.nan if pd.isna(value) or value == "" else float(value) for value in column])
    except (TypeError, ValueError):
        message = f"column {name!r} has a value that is not a number of degrees"
        raise make_geography_error("OD-GEOGRAPHY-COORDINATES", message) from None


def check_coordinates(coordinates: Degrees, zones: tuple[str, ...]) -> None:
    """Raise OdError unless each zone has a latitude and a longitude in degrees, or NaN for both; shape (zones, 2)."""
    if coordinates.shape != (len(zones), 2):
        message = "the coordinates do not have exactly one latitude and one longitude for each zone"
        raise make_geography_error("OD-GEOGRAPHY-SHAPE", message)
    is_valid = np.isnan(coordinates).all(axis=1) | (np.abs(coordinates) <= _MAX_DEGREES).all(axis=1)
    if not is_valid.all():
        message = "a zone has invalid coordinates: one of the two is missing, or a value is out of range"
        raise make_geography_error("OD-GEOGRAPHY-COORDINATES", message, f"zone {zones[int(np.argmin(is_valid))]!r}")


# Names of levels, and areas with their parents.


WHOLE_SPACE = "all"
"""Code of the single area of level 0."""


def check_level_names(names: tuple[str, ...]) -> None:
    """Raise OdError unless there are levels, with names that differ, are valid codes, and are not ``WHOLE_SPACE``."""
    if not names:
        raise make_geography_error("OD-GEOGRAPHY-LEVELS", "a geography needs at least one level")
    for name in names:
        if not isinstance(name, str) or not name.strip() or name != name.strip():
            message = f"level name {name!r} is not text, is blank, or has leading or trailing spaces"
            raise make_geography_error("OD-GEOGRAPHY-LEVELS", message)
        check_codes([name], "level names")
        if name == WHOLE_SPACE:
            message = f"the level name {WHOLE_SPACE!r} is reserved for the whole space"
            raise make_geography_error("OD-GEOGRAPHY-LEVELS", message)
    twice = find_first_repeated(list(names))
    if twice is not None:
        raise make_geography_error("OD-GEOGRAPHY-LEVELS", f"level {twice!r} is named twice")


def find_first_repeated(codes: Sequence[str]) -> str | None:
    """Return the first code that occurs more than once, or None if all codes are different."""
    return next((code for code, times in Counter(codes).items() if times > 1), None)


def find_positions(codes: pd.Series, listed_codes: Sequence[str]) -> NDArray[np.int32]:
    """Return the position of each code in a list, or -1 for a code that is not listed; shape (len(codes),)."""
    found = pc.index_in(convert_to_texts(codes), pa.array(listed_codes, pa.large_string()))  # NULL if not listed
    positions: NDArray[np.int32] = found.fill_null(-1).to_numpy().astype(np.int32)
    return positions


def list_zone_paths(areas: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return, for each zone of a list of areas and their parents, its path: the codes of the areas that contain it.

    A path goes from the first level to the zone itself, without the whole space. All paths have the same length. The
    argument and the errors are those of :meth:`od_core.Geography.from_parents`.
    """
    parent_of = _read_parents(areas)
    paths: dict[str, tuple[str, ...]] = {WHOLE_SPACE: ()}
    for area in _list_areas_from_top(parent_of):
        paths[area] = (*paths[parent_of[area]], area)
    with_children = set(parent_of.values())
    zone_paths = [paths[area] for area in parent_of if area not in with_children]
    first_path = zone_paths[0]
    for path in zone_paths:
        if len(path) != len(first_path):
            detail = f"zone {path[-1]!r} is at depth {len(path)}, zone {first_path[-1]!r} at depth {len(first_path)}"
            message = "the zones lie at different depths; all zones must lie at the same depth"
            raise make_geography_error("OD-GEOGRAPHY-DEPTH", message, detail)
    return zone_paths


def _read_parents(areas: pd.DataFrame) -> dict[str, str]:
    """Return the parent of each listed area below the whole space, by code; it may be the whole space.

    Raises OdError if a code is not valid, an area is listed twice or has two parents, or the list is empty.
    """
    codes = read_text_codes(areas["area"], "area")
    has_parent = ~areas["parent"].isna().to_numpy()
    parents = np.full(len(codes), WHOLE_SPACE, dtype=object)
    parents[has_parent] = read_text_codes(areas["parent"][has_parent], "parent")
    parent_of: dict[str, str] = {}
    for area, parent, is_given in zip(codes, parents, has_parent, strict=True):
        if area == WHOLE_SPACE:
            if is_given:
                message = f"the whole space {area!r} lies within another area"
                raise make_geography_error("OD-GEOGRAPHY-CYCLE", message, f"area {parent!r}")
            continue
        other_parent = parent_of.setdefault(area, parent)
        if other_parent != parent:
            detail = f"area {area!r} lies in {other_parent!r} and {parent!r}"
            raise make_geography_error("OD-GEOGRAPHY-TWO-PARENTS", "an area lies in two areas", detail)
    if not parent_of:
        raise make_geography_error("OD-GEOGRAPHY-EMPTY", "the area list has no rows")
    repeated = find_first_repeated([area for area in codes if area != WHOLE_SPACE])
    if repeated is not None:
        raise make_geography_error("OD-GEOGRAPHY-DUPLICATE", "an area is listed twice", f"area {repeated!r}")
    check_case(list(parent_of), "area")
    return parent_of


def _list_areas_from_top(parent_of: Mapping[str, str]) -> list[str]:
    """Return the areas below the whole space, each after its parent.

    ``parent_of`` has the parent of each area. Raises OdError if a parent is not listed, or an area lies within itself.
    """
    all_areas = {WHOLE_SPACE, *parent_of}
    orphan = next((area for area, parent in parent_of.items() if parent not in all_areas), None)
    if orphan is not None:
        detail = f"area {orphan!r} has the parent {parent_of[orphan]!r}"
        raise make_geography_error(
            "OD-GEOGRAPHY-PARENT-UNLISTED", "an area has a parent that is not in the list", detail
        )
    try:
        whole_space_first = TopologicalSorter({area: [parent] for area, parent in parent_of.items()}).static_order()
        return list(whole_space_first)[1:]
    except CycleError as error:
        message = "an area lies within itself"
        raise make_geography_error("OD-GEOGRAPHY-CYCLE", message, detail=f"area {error.args[1][0]!r}") from None


def check_hierarchy(columns: Mapping[str, Sequence[str]]) -> None:
    """Raise OdError unless each area of a zone list lies in one area of the level above, and each zone is listed once.

    ``columns`` has the valid code of the area of each zone, by level, coarse to fine.
    """
    levels = list(columns)
    repeated = find_first_repeated(columns[levels[-1]])
    if repeated is not None:
        may_be_reversed = len(levels) > 1 and find_first_repeated(columns[levels[0]]) is None
        hint = "; name levels coarse to fine: are they the wrong way round?" if may_be_reversed else ""
        message = f"column {levels[-1]!r}: a zone is listed twice{hint}"
        raise make_geography_error("OD-GEOGRAPHY-DUPLICATE", message, f"zone {repeated!r}")
    for name, codes in columns.items():
        check_case(codes, name)
    for above, name in pairwise(levels):
        conflict = find_first_conflict(zip(columns[name], columns[above], strict=True))
        if conflict is not None:
            area, *two_parents = conflict
            parent, other_parent = sorted(two_parents)
            message = f"an area of level {name!r} lies in two areas of level {above!r}"
            detail = f"{name} {area!r} lies in {parent!r} and {other_parent!r}"
            raise make_geography_error("OD-GEOGRAPHY-TWO-PARENTS", message, detail)


def build_area_tree(
    columns: Sequence[Sequence[str]],
) -> tuple[tuple[tuple[str, ...], ...], tuple[NDArray[np.int32], ...]]:
    """Return the codes of all areas by level, the whole space first, and the number of each area's parent.

    Each of the two results has an item for each level, with one entry per area; the whole space has no parent, so its
    array is empty. The areas of a level are in tree order: by parent and, of one parent, by code. So the parents'
    numbers ascend.

    ``columns`` has, for each level, coarse to fine, the code of the area of each zone. The hierarchy must have been
    checked (:func:`check_hierarchy`): an area with two parents would be two areas here.
    """
    factors = [pd.factorize(np.array(column, dtype=object), sort=True) for column in columns]
    zones_in_tree_order = np.lexsort([positions for positions, _sorted_codes in reversed(factors)])
    codes: list[tuple[str, ...]] = [(WHOLE_SPACE,)]
    parents: list[NDArray[np.int32]] = [np.empty(0, dtype=np.int32)]
    area_above = np.zeros(len(zones_in_tree_order), dtype=np.int32)  # of each zone: its area in the level above
    for positions, sorted_codes in factors:
        position_of_zone = positions[zones_in_tree_order]
        is_first_zone = np.append(True, np.diff(position_of_zone) != 0)  # of an area of this level
        codes.append(tuple(sorted_codes[position_of_zone[is_first_zone]]))
        parents.append(area_above[is_first_zone])
        area_above = (np.cumsum(is_first_zone) - 1).astype(np.int32)
    return tuple(codes), tuple(parents)


AreaNames = tuple[tuple[str, ...], ...]
"""For each level 0 to the depth, the name of each area in tree order; empty text for an area without a name."""


def name_column_of_names(level: str) -> str:
    """Return the column of the names of a level's areas in :meth:`od_core.Geography.to_frame`."""
    return f"{level}: name"


def name_column_of_aliases(level: str) -> str:
    """Return the column of the aliases of a level's areas in :meth:`od_core.Geography.to_frame`."""
    return f"{level}: aliases"


def check_named_levels(levels: Sequence[str], named: Iterable[str]) -> None:
    """Raise OdError if one of the ``named`` levels is no level, or if a level is called like a column of names."""
    for level in named:
        if level not in levels:
            raise make_geography_error("OD-GEOGRAPHY-NAMES", f"names are declared for {level!r}, which is not a level")
    if {*map(name_column_of_names, levels), *map(name_column_of_aliases, levels)} & {*levels}:
        message = "a level has the name of another level followed by ': name' or ': aliases', so it cannot have names"
        raise make_geography_error("OD-GEOGRAPHY-NAMES", message)


def read_area_names(
    codes: Sequence[Sequence[str]], levels: Sequence[str], zones: pd.DataFrame, columns: Mapping[str, str]
) -> AreaNames:
    """Return the names or aliases of all areas, the whole space first. An area without a name has the name "".

    Blank and missing names are ignored. White space within a name becomes one space, and that around it is dropped.

    Args:
        codes: codes of the areas of each level 0 to the depth, in tree order.
        levels: names of levels 1 to the depth.
        zones: zone list.
        columns: its columns of names, by level.

    Raises:
        OdError: as in :func:`check_named_levels` or :func:`check_codes`; an area has two names; a name is not text.
    """
    check_named_levels(levels, columns)
    names: list[tuple[str, ...]] = [("",) * len(codes[0])]
    for level, areas in zip(levels, codes[1:], strict=True):
        name_of = _read_names_of_level(zones, level, columns[level]) if level in columns else {}
        names.append(tuple(name_of.get(area, "") for area in areas))
    return tuple(names)


def _read_names_of_level(zones: pd.DataFrame, level: str, column: str) -> dict[str, str]:
    """Return the names, by code, of the areas of a level that have one; see :func:`read_area_names`."""
    name_of: dict[str, str] = {}
    for code, name in zip(zones[level], zones[column], strict=True):
        if not isinstance(name, str) and not pd.isna(name):
            message = f"column {column!r} contains a name that is not text; read the column as text"
            raise make_geography_error("OD-GEOGRAPHY-NAMES", message, f"name {name!r}")
        one_line = " ".join(name.split()) if isinstance(name, str) else ""
        if one_line and name_of.setdefault(code, one_line) != one_line:
            message = f"level {level!r} has an area with two names"
            raise make_geography_error("OD-GEOGRAPHY-NAMES", message, f"area {code!r}")
    check_codes(list(name_of.values()), column, what="name")
    return name_of


def make_area_labels(codes: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return a distinct text for each area of a level: its name, with its code if several areas have the name.

    An area without a name has its code. If such texts are still not distinct, their areas have their codes.

    >>> make_area_labels(["17031", "36061", "36005"], ["Cook County", "", "Cook County"])
    ('Cook County (17031)', '36061', 'Cook County (36005)')
    """
    texts = [name or code for code, name in zip(codes, names, strict=True)]
    for _ in range(2):  # twice, because a name with its code may be the whole name of another area
        times = Counter(texts)
        texts = [
            f"{name} ({code})" if times[text] > 1 and text == name else text
            for code, name, text in zip(codes, names, texts, strict=True)
        ]
    times = Counter(texts)
    return tuple(code if times[text] > 1 else text for code, text in zip(codes, texts, strict=True))
