"""Declare a breakdown by which trips are also counted: its categories, and where they are read from."""

from pydantic import Field

from od_assets.declared.section import Section
from od_core.records.segment_source import Derivation, SegmentSource


class SegmentSection(Section):
    """A breakdown: public categories, such as modes of transport, by which every trip is also counted."""

    column: str | None = Field(None, description="Column of the category; that of the breakdown's name if left out.")
    derive: str = Field(
        "text",
        description="What is taken from the column: text, hour (of a time), day_type or day_of_week (of a date or"
        " time), or number (see breaks).",
    )
    lookup: dict[str, str] = Field({}, description="Category of each text; other texts are missing categories.")
    breaks: list[int | float] = Field(
        [], description="Ascending limits between bands of a number; each belongs to the band above it."
    )
    bands: list[str] = Field([], description="Names of the bands of a number, one more than there are breaks.")
    categories: list[str] | None = Field(
        None,
        description="The categories, in the order in which they are published; may be left out for hours, days, bands"
        " and lookups.",
    )
    unknown: str | None = Field(
        None, description="Category of records whose category is missing or not listed; without it, they are faulty."
    )

    def source(self, name: str) -> SegmentSource:
        """Return where the categories are read from. Raises OdError if the options do not fit."""
        derive: Derivation = self.derive  # type: ignore[assignment]  # checked by the source
        return SegmentSource(
            name,
            name if self.column is None else self.column,
            derive,
            tuple(self.lookup.items()),
            tuple(self.breaks),
            tuple(self.bands),
        )

    def listed(self, name: str) -> tuple[str, ...]:
        """Return the declared categories, or those that the source gives and the one of unlisted records."""
        if self.categories is not None:
            return tuple(self.categories)
        given = self.source(name).given or ()
        return given if self.unknown is None or self.unknown in given else (*given, self.unknown)
