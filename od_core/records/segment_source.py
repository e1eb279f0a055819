"""Define where the category of a record comes from, for each breakdown by which trips are also counted.

The rule is public. It is fixed before any record is read, and it is stored with the settings of reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Any, Literal, get_args

from od_core.errors import OdError, nearest_known
from od_core.records.segments import Breakdown, check_name

Derivation = Literal["text", "hour", "day_type", "day_of_week", "number"]

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
"""The categories of ``day_of_week``, in the order of ISO 8601."""

DAY_TYPES = (*["weekday"] * 5, "saturday", "sunday")
"""The category of ``day_type`` for each of ``DAYS``."""

HOURS = tuple(f"{hour:02d}" for hour in range(24))
"""The categories of ``hour``."""

_FIXED = {"hour": HOURS, "day_type": tuple(dict.fromkeys(DAY_TYPES)), "day_of_week": DAYS}


@dataclass(frozen=True)
class SegmentSource:
    """Where a record's category of a breakdown comes from.

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

    Raises:
        OdError: the name cannot be that of a breakdown; ``derive`` is unknown; ``lookup`` states a text twice or one
            that is never derived; the breaks do not ascend; or the options do not apply to ``derive``.
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
            raise self._fault("name no column", "name the column of the file that they are read from")
        if self.derive not in get_args(Derivation):
            known = nearest_known(self.derive, get_args(Derivation))
            raise self._fault(f"cannot be derived as {self.derive!r} ({known})", "correct derive")
        self._check_lookup()
        self._check_bands()

    @property
    def loaded(self) -> str:
        """Name of the column of loaded records that has the category as text."""
        return loaded_column(self.breakdown)

    @property
    def given(self) -> tuple[str, ...] | None:
        """The categories that the source can give, each once; None if they are texts of the column."""
        if self.lookup:
            return tuple(dict.fromkeys(category for _, category in self.lookup))
        return self.bands if self.derive == "number" else _FIXED.get(self.derive)

    def facts(self) -> dict[str, Any]:
        """Return the source as JSON-ready public facts. Options that are not given are left out."""
        facts: dict[str, Any] = {"column": self.column, "derive": self.derive}
        if self.lookup:
            facts["lookup"] = dict(self.lookup)
        if self.derive == "number":
            facts |= {"breaks": list(self.breaks), "bands": list(self.bands)}
        return facts

    def check(self, breakdown: Breakdown) -> None:
        """Check that the source gives categories of its breakdown.

        Raises:
            OdError: a category of ``lookup`` or ``bands`` is not listed; or a listed category, other than ``unknown``,
                is never derived from a time or date.
        """
        if self.given is None:
            return
        is_chosen = bool(self.lookup or self.bands)
        for category in self.given if is_chosen else breakdown.categories:
            if is_chosen and category not in breakdown.categories:
                known = nearest_known(category, breakdown.categories)
                raise self._fault(f"include {category!r}, which is not in its list ({known})", "correct one of them")
            if not is_chosen and category not in (*self.given, breakdown.unknown):
                known = nearest_known(category, self.given)
                raise self._fault(f"list {category!r}, which {self.derive} never gives ({known})", "correct the list")

    def _check_lookup(self) -> None:
        found = [text for text, _ in self.lookup]
        for text, category in self.lookup:
            if not isinstance(text, str) or not isinstance(category, str) or not text:
                raise self._fault("have a lookup of other values than texts", "write texts, such as '1': car")
            if text not in _FIXED.get(self.derive, (text,)):
                known = nearest_known(text, _FIXED[self.derive])
                raise self._fault(f"look up {text!r}, which {self.derive} never gives ({known})", "correct lookup")
        if len(set(found)) < len(found):
            raise self._fault("have a lookup that states a text twice", "state each text once")
        if self.lookup and self.derive == "number":
            raise self._fault("have a lookup of numbers", "use breaks and bands for numbers, or leave out derive")

    def _check_bands(self) -> None:
        if self.derive != "number":
            if self.breaks or self.bands:
                raise self._fault(f"have bands, but derive is {self.derive!r}", "derive number, or leave out the bands")
            return
        if any(isinstance(one, bool) or not isinstance(one, (int, float)) for one in self.breaks):
            raise self._fault("have breaks that are not numbers", "write numbers")
        object.__setattr__(self, "breaks", tuple(map(float, self.breaks)))
        if not all(map(isfinite, self.breaks)) or any(low >= high for low, high in pairwise(self.breaks)):
            raise self._fault("have breaks that do not ascend", "write finite numbers, each above the one before")
        if not self.breaks or len(self.bands) != len(self.breaks) + 1 or len(set(self.bands)) < len(self.bands):
            raise self._fault(
                f"have {len(self.breaks)} breaks and {len(self.bands)} bands",
                "name one band more than there are breaks, each once: the first is below the first break",
            )

    def _fault(self, message: str, next_step: str) -> OdError:
        return OdError("OD-SEGMENT-SOURCE", f"the categories of {self.breakdown!r} {message}", next_step=next_step)


def check_sources(sources: Sequence[SegmentSource], breakdowns: Sequence[Breakdown]) -> None:
    """Check that each breakdown has a source that gives its categories, and each source a breakdown.

    Raises:
        OdError: a breakdown has no source, a source is of no breakdown, or :meth:`SegmentSource.check` raised it.
    """
    declared = {one.name: one for one in breakdowns}
    read = {one.breakdown: one for one in sources}
    for name in declared:
        if name not in read:
            raise OdError(
                "OD-SEGMENT-SOURCE",
                f"no column is declared for the categories of {name!r}",
                next_step="declare the column that they are read from",
            )
    for source in sources:
        if source.breakdown not in declared:
            raise source._fault("are read, but it is no breakdown of the release", "list its categories, too")
        source.check(declared[source.breakdown])


def loaded_column(breakdown: str) -> str:
    """Return the name of the column of loaded records that has the categories of a breakdown.

    The prefix keeps it apart from the other columns of loaded records, such as ``user`` and ``date``.
    """
    return f"segment_{breakdown}"
