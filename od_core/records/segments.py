"""Describe breakdowns, find the category of a record, and number categories.

The trips of one category of a breakdown are called a segment. Each counted trip is in exactly one segment of each
breakdown. The categories, and the columns that they come from, are public: they are fixed before any record is read,
and stored with the settings of reading.

The categories of a confidential record are one number, its code. It has one digit for each breakdown: the position of
the record's category in its list. The first breakdown has the most significant digit. So records are sorted and counted
by a single number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, prod
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError, suggest_known_names
from od_core.geography.codes import fold_case, may_be_formula
from od_core.registry import refuse_unknown

MAX_CATEGORIES = 64
"""Largest number of categories of a breakdown."""

MAX_BREAKDOWNS = 3
"""Largest number of breakdowns of a release."""

TOTAL = "total"
"""Name of the query that counts all trips, which no breakdown may have."""

_RECORD_COLUMNS = ("origin", "destination", "trips", "weight", "in_period", "period", "person")
_COUNT_COLUMNS = ("rank", "faulty", "secret")
_RELEASE_COLUMNS = ("lower", "upper", "level", "noisy", "variance", "query", "segment", "share")

RESERVED_NAMES = frozenset((TOTAL, *_RECORD_COLUMNS, *_COUNT_COLUMNS, *_RELEASE_COLUMNS))
"""Names of columns of records and releases, which no breakdown may have."""

RESERVED_NAMES_OF_COUNTS = frozenset(("area", "count"))
"""Names of columns of counts by one hierarchy, which no breakdown of these may have."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")


@dataclass(frozen=True)
class Breakdown:
    """A public list of categories. Each counted trip belongs to exactly one of them.

    Attributes:
        name: name of the breakdown, which is also the name of its column in records and releases.
        categories: the categories, in the order in which they are published; 2 to ``MAX_CATEGORIES``.
        unknown: category of records whose own category is missing or not listed. If None, such a record is faulty.

    Raises:
        OdError: the name cannot be the name of a column; there are too few or too many categories; a category is empty,
            begins or ends with a space, could be run as a formula by a spreadsheet, or occurs twice, also in different
            case; or ``unknown`` is not in the list.

    Examples:
        >>> Breakdown("mode", ("car", "train"), unknown="train")
        Breakdown(name='mode', categories=('car', 'train'), unknown='train')
    """

    name: str
    categories: tuple[str, ...]
    unknown: str | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        if isinstance(self.categories, str) or not all(isinstance(category, str) for category in self.categories):
            raise _make_breakdown_error(
                f"the categories of {self.name!r} are not a list of texts", "list them as texts"
            )
        object.__setattr__(self, "categories", tuple(self.categories))
        if not 2 <= len(self.categories) <= MAX_CATEGORIES:
            raise _make_breakdown_error(
                f"breakdown {self.name!r} has {len(self.categories)} categories; it may have 2 to {MAX_CATEGORIES}",
                "list at least two categories, and combine those that are rarely used",
            )
        category_of_folded: dict[str, str] = {}
        for category in self.categories:
            self._check_category(category)
            folded = fold_case(category)
            if folded in category_of_folded:
                other = category_of_folded[folded]
                raise _make_breakdown_error(
                    f"breakdown {self.name!r} lists {other!r} and {category!r}, which are equal or differ only in"
                    " case or in how accents are encoded",
                    "list each category once",
                )
            category_of_folded[folded] = category
        if self.unknown is not None and self.unknown not in self.categories:
            near = suggest_known_names(self.unknown, self.categories)
            message = f"category {self.unknown!r} for unlisted records is not in breakdown {self.name!r} ({near})"
            raise _make_breakdown_error(message, "add it to the list of categories, or name one of them")

    def _check_category(self, category: str) -> None:
        """Raise OdError if a category is blank, has spaces around it or invisible characters, or may be a formula."""
        category_text = f"category {category!r} of breakdown {self.name!r}"
        if not category.strip() or category != category.strip() or not category.isprintable():
            raise _make_breakdown_error(
                f"{category_text} is empty, or begins or ends with a space, or has an invisible character",
                "correct the list of categories",
            )
        if may_be_formula(category):
            step = "choose another text, without a sign at its beginning or after a comma"
            raise _make_breakdown_error(f"{category_text} could be run as a formula by a spreadsheet", step)

    def position(self, category: str) -> int:
        """Return the position of a category in the list, from 0. Raises OdError if it is not listed."""
        kind = f"category of {self.name}"
        refuse_unknown(kind, category, self.categories, code="OD-SEGMENT-UNKNOWN", next_step="name a declared one")
        return self.categories.index(category)

    def facts(self) -> dict[str, object]:
        """Return the breakdown as JSON-ready public facts: the arguments of this class."""
        return {"name": self.name, "categories": list(self.categories), "unknown": self.unknown}


def check_name(name: str, *, of_counts: bool = False) -> None:
    """Raise OdError if a text cannot name a breakdown, or one of counts by one hierarchy if ``of_counts``."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _make_breakdown_error(
            f"{name!r} cannot name a breakdown", "use letters, digits and underscores, a letter first"
        )
    if name.casefold() in (RESERVED_NAMES | RESERVED_NAMES_OF_COUNTS if of_counts else RESERVED_NAMES):
        raise _make_breakdown_error(
            f"{name!r} cannot name a breakdown, because it names a column of every release",
            f"choose another name, such as {name}_category",
        )


def make_breakdowns(
    segments: Mapping[str, Sequence[str]] | None, unknown: Mapping[str, str] | None = None
) -> tuple[Breakdown, ...]:
    """Return the breakdowns that a caller declares, in the given order.

    ``segments`` are the categories of each breakdown, by its name; ``unknown`` is, for some, the category of records
    whose category is missing or not listed. Raises OdError if there are more than ``MAX_BREAKDOWNS``, ``unknown``
    names a breakdown that is not declared, two names differ only in case, or a breakdown is not valid.
    """
    segments, unknown = segments or {}, unknown or {}
    for name in unknown:
        refuse_unknown("breakdown", name, tuple(segments), code="OD-SEGMENT-LIST", next_step="correct segment_unknown")
    if len(segments) > MAX_BREAKDOWNS:
        raise _make_breakdown_error(
            f"there are {len(segments)} breakdowns; a release has at most {MAX_BREAKDOWNS}",
            "leave some out, because each one takes its share of the budget",
        )
    if len({str(name).casefold() for name in segments}) < len(segments):
        raise _make_breakdown_error("the names of two breakdowns differ only in case", "choose names that differ")
    return tuple(Breakdown(name, categories, unknown.get(name)) for name, categories in segments.items())  # type: ignore[arg-type]  # checked by Breakdown


def has_unknown_categories(declared: Sequence[Breakdown]) -> bool:
    """Return whether every breakdown has an ``unknown`` category, so that no record is dropped for its category."""
    return all(breakdown.unknown is not None for breakdown in declared)


def find_breakdown(declared: Sequence[Breakdown], name: str) -> Breakdown:
    """Return the breakdown with this name. Raises OdError if there is none."""
    names = [breakdown.name for breakdown in declared]
    refuse_unknown("breakdown", name, names, code="OD-SEGMENT-UNKNOWN", next_step="name a declared one")
    return next(breakdown for breakdown in declared if breakdown.name == name)


def _make_breakdown_error(message: str, next_step: str) -> OdError:
    """Return the OdError for a declaration of breakdowns that is not valid."""
    return OdError("OD-SEGMENT-LIST", message, next_step=next_step)


def split_by_category(
    code: NDArray[np.integer], position: int, breakdowns: Sequence[Breakdown]
) -> Iterator[NDArray[np.int64]]:
    """Yield, for each category of one breakdown, the positions of the records of this category in ascending order.

    Args:
        code: code of each record, at least 0; shape (records,). See the description of this module.
        position: position, from 0, of the breakdown in ``breakdowns``.
        breakdowns: all breakdowns of the code, in its order.
    """
    sizes = [len(breakdown.categories) for breakdown in breakdowns]
    digit = code // prod(sizes[position + 1 :]) % sizes[position]
    category = digit.astype(np.uint8)  # bytes sort in linear time
    records_by_category = np.argsort(category, kind="stable")
    ends = np.cumsum(np.bincount(category, minlength=sizes[position]))
    yield from np.split(records_by_category, ends[:-1])


Derivation = Literal["text", "hour", "day_type", "day_of_week", "number"]

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
"""The categories of ``day_of_week``, in the order of ISO 8601."""

DAY_TYPES = (*["weekday"] * 5, "saturday", "sunday")
"""The category of ``day_type`` for each of ``DAYS``."""

HOURS = tuple(f"{hour:02d}" for hour in range(24))
"""The categories of ``hour``."""

_FIXED_CATEGORIES = {"hour": HOURS, "day_type": tuple(dict.fromkeys(DAY_TYPES)), "day_of_week": DAYS}
"""The texts that some derivations give; ``text`` and ``number`` may give any."""


@dataclass(frozen=True)
class SegmentSource:
    """Where a record's category of a breakdown comes from.

    Raises OdError if the name cannot be that of a breakdown; ``derive`` is unknown; ``lookup`` states a text twice or
    one that is never derived; the breaks do not ascend; or the options do not apply to ``derive``.

    Attributes:
        breakdown: name of the breakdown.
        column: exact name of the column of a file of records.
        derive: what is taken from the column. ``text``: the text itself; with ``lookup``, also a whole number or a
            Boolean, as text. ``hour``: the hour of a time, "00" to "23". ``day_type``: ``weekday``, ``saturday`` or
            ``sunday``, and ``day_of_week``: one of ``DAYS``, of a date or time. ``number``: the band of a number. Times
            that have a zone are converted to the declared time zone, and local times are not converted, as in
            :func:`od_core.records.load.load_records`.
        lookup: pairs of a text that is derived and the category that replaces it. Any other text is a missing category.
            If empty, the text is the category.
        breaks: for ``number``, the ascending limits between the bands. A limit belongs to the band above it.
        bands: for ``number``, the categories from the lowest to the highest band, one more than ``breaks``. The first
            has no lower limit, and the last no upper limit. A value that is not a finite number is a missing category.
    """

    breakdown: str
    column: str
    derive: Derivation = "text"
    lookup: tuple[tuple[str, str], ...] = ()
    breaks: tuple[float, ...] = ()
    bands: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_name(self.breakdown)
        object.__setattr__(self, "lookup", tuple((text, category) for text, category in self.lookup))
        object.__setattr__(self, "bands", tuple(self.bands))
        if not isinstance(self.column, str) or not self.column:
            raise self._make_source_error("name no column", "name the column of the file that they are read from")
        if self.derive not in get_args(Derivation):
            suggestion = suggest_known_names(self.derive, get_args(Derivation))
            raise self._make_source_error(f"cannot be derived as {self.derive!r} ({suggestion})", "correct derive")
        self._check_lookup()
        self._check_bands()

    @property
    def loaded(self) -> str:
        """Name of the column of loaded records that has the category as text."""
        return name_segment_column(self.breakdown)

    @property
    def given(self) -> tuple[str, ...] | None:
        """The categories that the source can give, each once; None if they are any texts of the column."""
        if self.lookup:
            return tuple(dict.fromkeys(category for _, category in self.lookup))
        return self.bands if self.derive == "number" else _FIXED_CATEGORIES.get(self.derive)

    def facts(self) -> dict[str, object]:
        """Return the source as JSON-ready public facts. Options that are not given are left out."""
        facts: dict[str, object] = {"column": self.column, "derive": self.derive}
        if self.lookup:
            facts["lookup"] = dict(self.lookup)
        if self.derive == "number":
            facts |= {"breaks": list(self.breaks), "bands": list(self.bands)}
        return facts

    def check_breakdown(self, breakdown: Breakdown) -> None:
        """Raise OdError if the source can give a category that the breakdown lacks, or never gives one that it lists.

        The first applies to ``lookup`` and ``bands``, and the second to hours and days, where the category ``unknown``
        need not be given.
        """
        given = self.given
        if given is None:
            return
        if self.lookup or self.bands:
            for category in given:
                if category not in breakdown.categories:
                    near = suggest_known_names(category, breakdown.categories)
                    raise self._make_source_error(
                        f"include {category!r}, which is not in its list ({near})", "correct one of them"
                    )
            return
        for category in breakdown.categories:
            if category not in (*given, breakdown.unknown):
                near = suggest_known_names(category, given)
                raise self._make_source_error(
                    f"list {category!r}, which {self.derive} never gives ({near})", "correct the list"
                )

    def _check_lookup(self) -> None:
        """Raise OdError unless ``lookup`` has texts that ``derive`` can give, each once, and categories as texts."""
        texts = [text for text, _ in self.lookup]
        for text, category in self.lookup:
            if not isinstance(text, str) or not isinstance(category, str) or not text:
                raise self._make_source_error(
                    "have a lookup of other values than texts", "write texts, such as '1': car"
                )
            if text not in _FIXED_CATEGORIES.get(self.derive, (text,)):
                suggestion = suggest_known_names(text, _FIXED_CATEGORIES[self.derive])
                raise self._make_source_error(
                    f"look up {text!r}, which {self.derive} never gives ({suggestion})", "correct lookup"
                )
        if len(set(texts)) < len(texts):
            raise self._make_source_error("have a lookup that states a text twice", "state each text once")
        if self.lookup and self.derive == "number":
            raise self._make_source_error(
                "have a lookup of numbers", "use breaks and bands for numbers, or leave out derive"
            )

    def _check_bands(self) -> None:
        """Raise OdError unless breaks ascend, with one band more than breaks, or if they do not apply to ``derive``.

        The breaks are converted to floating-point numbers.
        """
        if self.derive != "number":
            if self.breaks or self.bands:
                raise self._make_source_error(
                    f"have bands, but derive is {self.derive!r}", "derive number, or leave out the bands"
                )
            return
        if any(isinstance(number, bool) or not isinstance(number, (int, float)) for number in self.breaks):
            raise self._make_source_error("have breaks that are not numbers", "write numbers")
        object.__setattr__(self, "breaks", tuple(map(float, self.breaks)))
        if not all(map(isfinite, self.breaks)) or any(low >= high for low, high in pairwise(self.breaks)):
            raise self._make_source_error(
                "have breaks that do not ascend", "write finite numbers, each above the one before"
            )
        if not self.breaks or len(self.bands) != len(self.breaks) + 1 or len(set(self.bands)) < len(self.bands):
            raise self._make_source_error(
                f"have {len(self.breaks)} breaks and {len(self.bands)} bands",
                "name one band more than there are breaks, each once: the first is below the first break",
            )

    def _make_source_error(self, message: str, next_step: str) -> OdError:
        """Return the OdError for this source; ``message`` is the rest of a sentence on its categories."""
        return OdError("OD-SEGMENT-SOURCE", f"the categories of {self.breakdown!r} {message}", next_step=next_step)


def check_sources(sources: Sequence[SegmentSource], breakdowns: Sequence[Breakdown]) -> None:
    """Raise OdError unless each breakdown has a source that gives its categories, and each source has a breakdown."""
    declared = {breakdown.name: breakdown for breakdown in breakdowns}
    breakdowns_read = [source.breakdown for source in sources]
    missing = next((name for name in declared if name not in breakdowns_read), None)
    if missing is not None:
        message = f"no column is declared for the categories of {missing!r}"
        raise OdError("OD-SEGMENT-SOURCE", message, next_step="declare the column that they are read from")
    for source in sources:
        if source.breakdown not in declared:
            raise source._make_source_error(
                "are read, but it is no breakdown of the release", "list its categories, too"
            )
        source.check_breakdown(declared[source.breakdown])


def name_segment_column(breakdown: str) -> str:
    """Return the name of the column of loaded records that has the categories of a breakdown.

    The prefix keeps it apart from the other columns of loaded records, such as ``user`` and ``date``.
    """
    return f"segment_{breakdown}"
