"""Read and check the public names of areas, and make labels of them for people.

Codes identify areas in every file. Names are for people, and need not be unique.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from od_core.errors import OdError
from od_core.geography.codes import check_codes

AreaNames = tuple[tuple[str, ...], ...]
"""For each level 0 to the depth, the name of each area in tree order; empty text for an area without a name."""


def name_column(level: str) -> str:
    """Return the column of the names of a level's areas in :meth:`od_core.Geography.to_frame`."""
    return f"{level}: name"


def check_named_levels(levels: Sequence[str], named: Iterable[str]) -> None:
    """Raise OdError if something other than a level has names, or if a level is called like a column of names.

    Args:
        levels: names of the levels.
        named: levels that have names.
    """
    strange = [level for level in named if level not in levels]
    if strange:
        raise _fault(f"names are declared for {strange[0]!r}, which is not a level")
    if {name_column(level) for level in levels} & {*levels}:
        raise _fault("a level has the name of another level followed by ': name', so it cannot have names")


def named_areas(
    codes: Sequence[Sequence[str]],
    levels: Sequence[str],
    listed: Mapping[str, tuple[str, Iterable[tuple[str, Any]]]],
) -> AreaNames:
    """Return the names of all areas.

    Args:
        codes: codes of the areas of each level, the whole space first.
        levels: names of the levels below the whole space.
        listed: for each level that has names, the column of the names, and pairs of an area's code and its name. Blank
            and missing names are ignored. White space within a name becomes one space, and that around it is dropped.

    Raises:
        OdError: as in :func:`check_named_levels`; an area has two names; a name is not text; or
            :func:`od_core.geography.codes.check_codes` refuses it.
    """
    check_named_levels(levels, listed)
    names: list[tuple[str, ...]] = [("",) * len(codes[0])]
    for level, areas in zip(levels, codes[1:], strict=True):
        name_of: dict[str, str] = {}
        column, pairs = listed.get(level, ("", ()))
        for code, name in pairs:
            if isinstance(name, str) or not pd.isna(name):
                given = _text(name, column)
                if given and name_of.setdefault(code, given) != given:
                    raise _fault(f"level {level!r} has an area with two names", f"area {code!r}")
        check_codes(list(name_of.values()), column, what="name")
        names.append(tuple(name_of.get(area, "") for area in areas))
    return tuple(names)


def check_names(names: AreaNames, codes: Sequence[Sequence[str]], levels: Sequence[str]) -> None:
    """Check the names of areas.

    Args:
        names: names of the areas of each level, the whole space first.
        codes: their codes.
        levels: names of all levels, that of the whole space first.

    Raises:
        OdError: the number of names is wrong, or :func:`od_core.geography.codes.check_codes` refuses a name.
    """
    if [len(level) for level in names] != [len(level) for level in codes]:
        raise _fault("the names do not have exactly one text for each area")
    for level, own in zip(levels, names, strict=True):
        check_codes([name for name in own if name != ""], level, what="name")


def labels_of(codes: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return a text for each area of a level that no other area has: its name, with its code if others are alike.

    An area without a name has its code.

    >>> labels_of(["17031", "36061", "36005"], ["Cook County", "", "Cook County"])
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


def _text(name: object, column: str) -> str:
    """Return a name with single spaces. Raises OdError if it is not text."""
    if not isinstance(name, str):
        raise _fault(f"column {column!r} contains a name that is not text; read the column as text", f"name {name!r}")
    return " ".join(name.split())


def _fault(message: str, detail: str | None = None) -> OdError:
    return OdError("OD-GEOGRAPHY-NAMES", message, next_step="correct the public geography", confidential_detail=detail)
