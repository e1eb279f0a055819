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

_ROUNDED = re.compile(r"\d(\.\d+)?[Ee]\+\d+")
"""A long number as spreadsheets and R write it, which has lost its last digits, such as ``1.2E+11``."""

_MISSING_TO_PANDAS = ("NA", "N/A", "n/a", "NULL", "null", "NaN", "nan", "None", "<NA>")

TEXT = pd.StringDtype(na_value=np.nan)
"""pandas' default type of text. To look it up by its name, ``str``, takes longer than to make a short column."""

MAX_CODE_LENGTH = 250
"""Largest number of characters of a code. A longer text is normally a field whose closing quote is missing."""


def read_text_codes(column: pd.Series, name: str) -> list[str]:
    """Return the codes in column ``name`` of a public list. Raises OdError if :func:`check_codes` refuses a code."""
    codes = column.to_list() if isinstance(column.dtype, pd.StringDtype) else list(column.astype(object))
    check_codes(codes, name)
    return codes


def check_codes(codes: Sequence[Any], name: str, what: str = "code") -> None:
    """Check the codes, or other texts, in the column ``name`` of a public list. Messages call them ``what``.

    Raises OdError if a code is missing, is not text, is blank, begins or ends with a space, is too long, is not
    printable, is a number that a spreadsheet has rounded, or could be run as a formula.
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
        if _ROUNDED.fullmatch(value):
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
    """Return a text that codes share if they differ only in case or in how accents are encoded (NFC or NFD).

    >>> fold_case("\u00c9vora") == fold_case("e\u0301vora")
    True
    """
    return normalize("NFD", normalize("NFD", code).casefold())


def check_case(codes: Sequence[str], name: str) -> None:
    """Raise OdError if two codes of column ``name`` are equal after :func:`fold_case`."""
    is_ascii = all(map(str.isascii, codes))
    if (
        two := find_first_conflict(zip(map(str.casefold if is_ascii else fold_case, codes), codes, strict=True))
    ) is not None:
        message = f"column {name!r} contains codes that differ only in case, or in how accents are encoded"
        raise make_geography_error("OD-GEOGRAPHY-CASE", message, f"codes {two[1]!r} and {two[2]!r}")


def find_first_conflict(pairs: Iterable[tuple[str, str]]) -> tuple[str, str, str] | None:
    """Return the first key that has two values, and these, in their order; None if each key has one value."""
    value_of: dict[str, str] = {}
    for key, value in pairs:
        if (first := value_of.setdefault(key, value)) != value:
            return key, first, value
    return None


def format_pandas_advice(codes: Sequence[str]) -> str:
    """Return the end of a next step if one of the public codes is missing to pandas, such as NA; else an empty text."""
    lost = next((code for code in codes if code in _MISSING_TO_PANDAS), None)
    return "" if lost is None else f"; {lost!r} is a code, and only {READ_AS_TEXT} does not read it as missing"


def check_columns(table: pd.DataFrame, of: str, expected: Sequence[str]) -> None:
    """Raise OdError if a public list lacks an expected column, or has two columns of the same name.

    The message names columns of the list only if the list has at least one of the expected columns. Otherwise, the
    names go into the confidential detail: they may be the first row of a list without a header, or, if the path is
    wrong, a record. ``of`` is the name of the list, in words. Columns without a name, which are not used, may be alike.
    """
    names = [str(column) for column in table.columns]
    missing = next((name for name in expected if name not in names), None)
    if missing is not None:
        raise make_missing_column_error(of, missing, names, expected, table)
    twice = find_first_repeated([name for name in names if name.strip()])
    if twice is not None:
        places = " and ".join(str(place) for place, name in enumerate(names, start=1) if name == twice)
        message = f"the list has a column more than once: its columns {places} have the same name"
        raise make_geography_error("OD-GEOGRAPHY-COLUMN", message, f"column {twice!r}")


def make_missing_column_error(
    table: str, name: str, columns: Sequence[str], expected: Sequence[str], rows: pd.DataFrame | None = None
) -> OdError:
    """Return the OdError for a column that a public list lacks, as :func:`check_columns` raises it."""
    if any(column in columns for column in expected):
        near = suggest_known_names(name, tuple(columns))
        return make_geography_error("OD-GEOGRAPHY-COLUMN", f"{table} has no column {name!r} ({near})")
    message = f"{table} has no column {name!r} and none of the other expected columns"
    detail = f"its columns: {columns!r}"
    first = enumerate(() if rows is None else rows.head(50).itertuples(index=False), start=2)
    line = next((line for line, row in first if not {*expected}.isdisjoint(map(str, row))), None)
    if line is None:
        return make_geography_error("OD-GEOGRAPHY-COLUMN", message, detail)
    step = f"remove what is above line {line}, such as a title"
    return make_geography_error("OD-GEOGRAPHY-COLUMN", f"{message}, which are in line {line}", detail, next_step=step)


def make_geography_error(
    code: str, message: str, detail: str | None = None, *, next_step: str = "correct the public geography"
) -> OdError:
    """Return the OdError for a faulty public list. What it quotes is confidential: a wrong path may lead to records."""
    return OdError(code, message, next_step=next_step, confidential_detail=detail)


# Coordinates of zones in degrees, used only for maps.


Degrees = NDArray[np.float64]

COORDINATES = ("latitude", "longitude")
"""Names of the columns of coordinates in published tables."""

_MOST_DEGREES = (90, 180)


def parse_degrees(column: pd.Series, name: str) -> Degrees:
    """Return the degrees in the column ``name``, numbers or text; shape (rows,). Blank and missing values become NaN.

    Raises OdError if a value is not a number.
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
    is_valid = np.isnan(coordinates).all(axis=1) | (np.abs(coordinates) <= _MOST_DEGREES).all(axis=1)
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


def find_positions(codes: pd.Series, listed: Sequence[str]) -> NDArray[np.int32]:
    """Return the position of each code in a list, or -1 for a code that is not listed; shape (len(codes),)."""
    places = pc.index_in(convert_to_texts(codes), pa.array(listed, pa.large_string()))
    numbers: NDArray[np.int32] = places.fill_null(-1).to_numpy().astype(np.int32)
    return numbers


def list_zone_paths(areas: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return, for each zone of a list of areas and their parents, the codes of the areas that contain it, and its own.

    The arguments and errors are those of :meth:`od_core.Geography.from_parents`.
    """
    parent_of = _read_parents(areas)
    paths: dict[str, tuple[str, ...]] = {WHOLE_SPACE: ()}
    for area in _list_areas_from_top(parent_of):
        paths[area] = (*paths[parent_of[area]], area)
    inner = set(parent_of.values())
    first, *others = zone_paths = [paths[area] for area in parent_of if area not in inner]
    uneven = next((path for path in others if len(path) != len(first)), None)
    if uneven is not None:
        detail = f"zone {uneven[-1]!r} is at depth {len(uneven)}, zone {first[-1]!r} at depth {len(first)}"
        message = "the zones lie at different depths; all zones must lie at the same depth"
        raise make_geography_error("OD-GEOGRAPHY-DEPTH", message, detail)
    return zone_paths


def _read_parents(areas: pd.DataFrame) -> dict[str, str]:
    """Return the parent of each listed area, which may be the whole space. Raises OdError unless each has one."""
    code = read_text_codes(areas["area"], "area")
    has_parent = ~areas["parent"].isna().to_numpy()
    given_parents = iter(read_text_codes(areas["parent"][has_parent], "parent"))
    parent_of: dict[str, str] = {}
    for area, listed in zip(code, has_parent, strict=True):
        parent = next(given_parents) if listed else WHOLE_SPACE
        if area == WHOLE_SPACE:
            if listed:
                message = f"the whole space {area!r} lies within another area"
                raise make_geography_error("OD-GEOGRAPHY-CYCLE", message, f"area {parent!r}")
        elif (other := parent_of.setdefault(area, parent)) != parent:
            detail = f"area {area!r} lies in {other!r} and {parent!r}"
            raise make_geography_error("OD-GEOGRAPHY-TWO-PARENTS", "an area lies in two areas", detail)
    if not parent_of:
        raise make_geography_error("OD-GEOGRAPHY-EMPTY", "the area list has no rows")
    if (twice := find_first_repeated([area for area in code if area != WHOLE_SPACE])) is not None:
        raise make_geography_error("OD-GEOGRAPHY-DUPLICATE", "an area is listed twice", f"area {twice!r}")
    check_case(list(parent_of), "area")
    return parent_of


def _list_areas_from_top(parent_of: Mapping[str, str]) -> list[str]:
    """Return the areas below the whole space, parents first. Raises OdError if an area does not lie in it."""
    all_areas = {WHOLE_SPACE, *parent_of}
    orphan = next((area for area, parent in parent_of.items() if parent not in all_areas), None)
    if orphan is not None:
        detail = f"area {orphan!r} has the parent {parent_of[orphan]!r}"
        raise make_geography_error(
            "OD-GEOGRAPHY-PARENT-UNLISTED", "an area has a parent that is not in the list", detail
        )
    try:
        return list(TopologicalSorter({area: [parent] for area, parent in parent_of.items()}).static_order())[1:]
    except CycleError as error:
        message = "an area lies within itself"
        raise make_geography_error("OD-GEOGRAPHY-CYCLE", message, detail=f"area {error.args[1][0]!r}") from None


def check_hierarchy(columns: Mapping[str, Sequence[str]]) -> None:
    """Raise OdError unless each area of a zone list lies in one area of the level above, and each zone is listed once.

    ``columns`` has the valid code of the area of each zone, by level, coarse to fine.
    """
    levels = list(columns)
    twice = find_first_repeated(columns[levels[-1]])
    if twice is not None:
        reverse = len(levels) > 1 and find_first_repeated(columns[levels[0]]) is None
        hint = "; name levels coarse to fine: are they the wrong way round?" if reverse else ""
        message = f"column {levels[-1]!r}: a zone is listed twice{hint}"
        raise make_geography_error("OD-GEOGRAPHY-DUPLICATE", message, f"zone {twice!r}")
    for name, codes in columns.items():
        check_case(codes, name)
    for (above, parents), (name, areas) in pairwise(columns.items()):
        if (two := find_first_conflict(zip(areas, parents, strict=True))) is not None:
            area, (parent, other_parent) = two[0], sorted(two[1:])
            message = f"an area of level {name!r} lies in two areas of level {above!r}"
            detail = f"{name} {area!r} lies in {parent!r} and {other_parent!r}"
            raise make_geography_error("OD-GEOGRAPHY-TWO-PARENTS", message, detail)


def build_area_tree(
    columns: Sequence[Sequence[str]],
) -> tuple[tuple[tuple[str, ...], ...], tuple[NDArray[np.int32], ...]]:
    """Return the codes of all areas by level, the whole space first, and the number of each area's parent.

    ``columns`` has the valid code of the area of each zone, for each level, coarse to fine.
    """
    factors = [pd.factorize(np.array(column, dtype=object), sort=True) for column in columns]
    order = np.lexsort([number for number, _ in reversed(factors)])
    codes: list[tuple[str, ...]] = [(WHOLE_SPACE,)]
    parents: list[NDArray[np.int32]] = [np.empty(0, dtype=np.int32)]
    above = np.zeros(len(order), dtype=np.int32)
    for number, alphabet in factors:
        area = number[order]
        starts = np.append(True, np.diff(area) != 0)
        codes.append(tuple(alphabet[area[starts]]))
        parents.append(above[starts])
        above = (np.cumsum(starts) - 1).astype(np.int32)
    return tuple(codes), tuple(parents)


AreaNames = tuple[tuple[str, ...], ...]
"""For each level 0 to the depth, the name of each area in tree order; empty text for an area without a name."""


def name_column(level: str) -> str:
    """Return the column of the names of a level's areas in :meth:`od_core.Geography.to_frame`."""
    return f"{level}: name"


def check_named_levels(levels: Sequence[str], named: Iterable[str]) -> None:
    """Raise OdError if something in ``named`` is no level, or if a level is called like a column of names."""
    strange = [level for level in named if level not in levels]
    if strange:
        raise make_geography_error("OD-GEOGRAPHY-NAMES", f"names are declared for {strange[0]!r}, which is not a level")
    if {*map(name_column, levels)} & {*levels}:
        message = "a level has the name of another level followed by ': name', so it cannot have names"
        raise make_geography_error("OD-GEOGRAPHY-NAMES", message)


def read_area_names(
    codes: Sequence[Sequence[str]], levels: Sequence[str], zones: pd.DataFrame, columns: Mapping[str, str]
) -> AreaNames:
    """Return the names of all areas, whose ``codes`` begin with that of the whole space.

    ``columns`` are the columns of names in a zone list, by level. Blank and missing names are ignored. White space
    within a name becomes one space, and that around it is dropped.

    Raises:
        OdError: as in :func:`check_named_levels` or :func:`check_codes`; an area has two names; a name is not text.
    """
    check_named_levels(levels, columns)
    names: list[tuple[str, ...]] = [("",) * len(codes[0])]
    for level, areas in zip(levels, codes[1:], strict=True):
        name_of: dict[str, str] = {}
        if (column := columns.get(level)) is not None:
            for code, name in zip(zones[level], zones[column], strict=True):
                if not isinstance(name, str) and not pd.isna(name):
                    message = f"column {column!r} contains a name that is not text; read the column as text"
                    raise make_geography_error("OD-GEOGRAPHY-NAMES", message, f"name {name!r}")
                one_line = " ".join(name.split()) if isinstance(name, str) else ""
                if one_line and name_of.setdefault(code, one_line) != one_line:
                    message = f"level {level!r} has an area with two names"
                    raise make_geography_error("OD-GEOGRAPHY-NAMES", message, f"area {code!r}")
            check_codes(list(name_of.values()), column, what="name")
        names.append(tuple(name_of.get(area, "") for area in areas))
    return tuple(names)


def make_area_labels(codes: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return a text for each area of a level that no other area has: its name, with its code if others are alike.

    An area without a name has its code.

    >>> make_area_labels(["17031", "36061", "36005"], ["Cook County", "", "Cook County"])
    ('Cook County (17031)', '36061', 'Cook County (36005)')
    """
    texts = [name or code for code, name in zip(codes, names, strict=True)]
    for _ in range(2):  # a name may be that of another area with its code
        shared = Counter(texts)
        texts = [
            f"{name} ({code})" if shared[text] > 1 and text == name else text
            for code, name, text in zip(codes, names, texts, strict=True)
        ]
    shared = Counter(texts)
    return tuple(code if shared[text] > 1 else text for code, text in zip(codes, texts, strict=True))
