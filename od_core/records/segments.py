"""Define breakdowns: public lists of categories, such as modes of transport, by which every trip is also counted.

The trips of one category are called a segment. Each counted trip is in exactly one segment of each breakdown. The list
is fixed before any data is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from od_core.errors import OdError, nearest_known
from od_core.geography.codes import caseless, may_be_formula
from od_core.registry import refuse_unknown

MOST_CATEGORIES = 64
"""Largest number of categories of a breakdown."""

MOST_BREAKDOWNS = 3
"""Largest number of breakdowns of a release."""

TOTAL = "total"
"""Name of the query that counts all trips, which no breakdown may have."""

_OF_RECORDS = ("origin", "destination", "trips", "weight", "in_period", "period", "person", "rank", "faulty", "secret")
_OF_RELEASES = ("lower", "upper", "level", "noisy", "variance", "query", "segment", "share")

RESERVED_NAMES = frozenset((TOTAL, *_OF_RECORDS, *_OF_RELEASES))
"""Names of columns of records and releases, which no breakdown may have."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")


@dataclass(frozen=True)
class Breakdown:
    """A public list of categories. Each counted trip belongs to exactly one of them.

    Attributes:
        name: name of the breakdown, which is also the name of its column in records and releases.
        categories: the categories, in the order in which they are published; 2 to ``MOST_CATEGORIES``.
        unknown: category of the records whose category is missing or not listed. If it is None, such a record is
            faulty and is not counted.

    Raises:
        OdError: the name cannot be the name of a column; there are too few or too many categories; a category is empty,
            begins or ends with a space, could be run as a formula by a spreadsheet, or occurs twice, also in different
            case; or ``unknown`` is not in the list.
    """

    name: str
    categories: tuple[str, ...]
    unknown: str | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        if isinstance(self.categories, str) or not all(isinstance(one, str) for one in self.categories):
            raise _fault(f"the categories of {self.name!r} are not a list of texts", "list them as texts")
        object.__setattr__(self, "categories", tuple(self.categories))
        if not 2 <= len(self.categories) <= MOST_CATEGORIES:
            raise _fault(
                f"breakdown {self.name!r} has {len(self.categories)} categories; it may have 2 to {MOST_CATEGORIES}",
                "list at least two categories, and combine those that are rarely used",
            )
        for category in self.categories:
            if not category.strip() or category != category.strip() or not category.isprintable():
                raise _fault(
                    f"category {category!r} of breakdown {self.name!r} is empty, or begins or ends with a space, or has"
                    " an invisible character",
                    "correct the list of categories",
                )
            if may_be_formula(category):
                raise _fault(
                    f"category {category!r} of breakdown {self.name!r} could be run as a formula by a spreadsheet",
                    "choose another text, without a sign at its beginning or after a comma",
                )
        self._refuse_duplicates()
        if self.unknown is not None and self.unknown not in self.categories:
            raise _fault(
                f"category {self.unknown!r} for unlisted records is not in breakdown {self.name!r}"
                f" ({nearest_known(self.unknown, self.categories)})",
                "add it to the list of categories, or name one of them",
            )

    def _refuse_duplicates(self) -> None:
        """Raise OdError if two categories are caseless equal, because records could not be told apart reliably."""
        known: dict[str, str] = {}
        for category in self.categories:
            other = known.get(caseless(category))
            if other is not None:
                raise _fault(
                    f"breakdown {self.name!r} lists {other!r} and {category!r}, which are equal or differ only in"
                    " case or in how accents are encoded",
                    "list each category once",
                )
            known[caseless(category)] = category

    def position(self, category: str) -> int:
        """Return the position of a category in the list. Raises OdError if there is none."""
        refuse_unknown(
            f"category of {self.name}",
            category,
            self.categories,
            code="OD-SEGMENT-UNKNOWN",
            next_step="name a declared one",
        )
        return self.categories.index(category)

    def facts(self) -> dict[str, Any]:
        """Return the breakdown as JSON-ready public facts, which :meth:`from_facts` reads."""
        return {"name": self.name, "categories": list(self.categories), "unknown": self.unknown}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Breakdown:
        """Return the breakdown whose :meth:`facts` are given."""
        return cls(facts["name"], tuple(facts["categories"]), facts["unknown"])


def check_name(name: str) -> None:
    """Raise OdError if a text cannot name a breakdown."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _fault(f"{name!r} cannot name a breakdown", "use letters, digits and underscores, a letter first")
    if name.casefold() in RESERVED_NAMES:
        raise _fault(
            f"{name!r} cannot name a breakdown, because it names a column of every release",
            f"choose another name, such as {name}_category",
        )


def breakdowns(
    segments: Mapping[str, Sequence[str]] | None, unknown: Mapping[str, str] | None = None
) -> tuple[Breakdown, ...]:
    """Return the breakdowns that a caller declares, in the given order.

    Args:
        segments: categories of each breakdown, by its name; None for no breakdown.
        unknown: for some of the breakdowns, the category of records whose category is missing or not listed.

    Raises:
        OdError: there are more than ``MOST_BREAKDOWNS``, ``unknown`` names a breakdown that is not declared, two names
            differ only in case, or a breakdown is not valid.
    """
    segments, unknown = segments or {}, unknown or {}
    for name in unknown:
        refuse_unknown("breakdown", name, tuple(segments), code="OD-SEGMENT-LIST", next_step="correct segment_unknown")
    if len(segments) > MOST_BREAKDOWNS:
        raise _fault(
            f"there are {len(segments)} breakdowns; a release has at most {MOST_BREAKDOWNS}",
            "leave some out, because each one takes its share of the budget",
        )
    if len({str(name).casefold() for name in segments}) < len(segments):
        raise _fault("the names of two breakdowns differ only in case", "choose names that differ")
    return tuple(
        Breakdown(name, categories if isinstance(categories, str) else tuple(categories), unknown.get(name))  # type: ignore[arg-type]  # a text is refused
        for name, categories in segments.items()
    )


def counts_unlisted(declared: Sequence[Breakdown]) -> bool:
    """Return whether every breakdown has a category for unlisted records, so that none is dropped for its category."""
    return all(one.unknown is not None for one in declared)


def find(declared: Sequence[Breakdown], name: str) -> Breakdown:
    """Return the breakdown with a name. Raises OdError if there is none."""
    refuse_unknown(
        "breakdown", name, [one.name for one in declared], code="OD-SEGMENT-UNKNOWN", next_step="name a declared one"
    )
    return next(one for one in declared if one.name == name)


def _fault(message: str, next_step: str) -> OdError:
    return OdError("OD-SEGMENT-LIST", message, next_step=next_step)
