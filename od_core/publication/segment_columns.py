"""Define the public tables of flows by category. Codebooks, schemas and comments in the database use these texts."""

from __future__ import annotations

from dataclasses import replace

from od_core.publication.columns import (
    DESTINATION_LEVEL,
    FLOWS,
    LOWER,
    MOST_LISTED,
    NOISY_MEASUREMENTS,
    ORIGIN_LEVEL,
    PAIR_FLOWS,
    TRIPS,
    UPPER,
    Column,
    Table,
)
from od_core.records.segments import Breakdown

BREAKDOWN = Column(
    "breakdown", "string", "Breakdown", "Name of the breakdown, the list of categories that the row belongs to."
)
CATEGORY = Column("category", "string", "Category", "Category of the trips, in the list of the breakdown.")
CATEGORY_TRIPS = replace(
    TRIPS,
    description="Number of trips of the category from the origin to the destination, released with noise. The trips of"
    " all categories of a breakdown sum to the released trips of the pair of areas.",
)
_BOUND = (
    "The true number of counted trips of the category lies between lower and upper with a probability of about 90 %."
    " The interval comes from an unbiased estimate, before trips were made whole numbers of at least 0 that sum to the"
    " totals. If the interval did not contain trips, it was widened to them."
)
CATEGORY_LOWER = replace(LOWER, description=f"Smallest plausible number of trips of the category. {_BOUND}")
CATEGORY_UPPER = replace(UPPER, description=f"Largest plausible number of trips of the category. {_BOUND}")

_ABSENT = (
    "A category that is not listed for a pair of areas was released as 0 trips. Zero is a released estimate, not a"
    " certainty: the true number may be a few trips. No number is withheld or missing."
)
_ABSENT_WITH_INTERVALS = (
    f"If a pair of levels has at most {MOST_LISTED:,} pairs of areas, times the categories of the breakdown, every pair"
    " is listed in every category; otherwise only the pairs with released trips are listed, in every category. Zero is"
    " a released estimate, not a certainty: upper states how many trips there may be. No number is withheld or missing."
)
_SEGMENTS = Table(
    "segments",
    "Flows by category at every pair of levels",
    "The trips of one category of one breakdown from one area to another, at one pair of levels. Each breakdown counts"
    " all trips, and so does each pair of levels: do not add rows of different breakdowns or pairs of levels.",
    _ABSENT,
    (
        BREAKDOWN,
        ORIGIN_LEVEL,
        DESTINATION_LEVEL,
        *FLOWS.columns[2:4],
        CATEGORY,
        CATEGORY_TRIPS,
    ),
    ("breakdown", *FLOWS.key, "category"),
    FLOWS.code_lists,
)

SEGMENT_MEASUREMENTS = replace(
    NOISY_MEASUREMENTS,
    name="segment_measurements",
    title="Noisy measurements by category",
    row="A pair of areas that was measured in one category of a breakdown, at one level of the flow tree.",
    columns=(NOISY_MEASUREMENTS.columns[0], BREAKDOWN, CATEGORY, *NOISY_MEASUREMENTS.columns[1:]),
    key=("level", "breakdown", "category", "origin", "destination"),
)
"""Table of the noisy measurements by category. Those of the totals are in ``NOISY_MEASUREMENTS``."""


def segments_table(*, interval: bool) -> Table:
    """Return the definition of the table of all breakdowns at every pair of levels.

    Args:
        interval: whether the table has the interval of each number of trips.
    """
    return _with_intervals(_SEGMENTS) if interval else _SEGMENTS


def pair_segments_table(breakdown: Breakdown, *, interval: bool) -> Table:
    """Return the definition of the table of one breakdown at one pair of levels.

    The column of the categories has the name of the breakdown.

    Args:
        breakdown: the breakdown.
        interval: whether the table has the interval of each number of trips.
    """
    described = f"{listed_categories(breakdown)} {unlisted(breakdown)}"
    category = Column(breakdown.name, "string", f"Category of {breakdown.name}", described)
    table = replace(
        PAIR_FLOWS,
        name=f"{PAIR_FLOWS.name}_by_{breakdown.name}",
        title=f"Flows by {breakdown.name} at one pair of levels",
        row=f"The trips from one area to another in one category of {breakdown.name}. Each file contains one pair of"
        " levels, which its name states, and thereby all trips once. Do not add rows of different files.",
        absent=_ABSENT,
        columns=(*PAIR_FLOWS.columns[:2], category, CATEGORY_TRIPS),
        key=(*PAIR_FLOWS.key, breakdown.name),
    )
    return _with_intervals(table) if interval else table


def listed_categories(breakdown: Breakdown) -> str:
    """Return a sentence that lists the categories of a breakdown."""
    return f"One of {len(breakdown.categories)} categories: {'; '.join(breakdown.categories)}."


def unlisted(breakdown: Breakdown) -> str:
    """Return a sentence on the records whose category is missing or not in the list."""
    if breakdown.unknown is None:
        return f"A record whose {breakdown.name} is missing or not listed is faulty and is not counted."
    return f"A record whose {breakdown.name} is missing or not listed is counted as {breakdown.unknown}."


def _with_intervals(table: Table) -> Table:
    return replace(table, columns=(*table.columns, CATEGORY_LOWER, CATEGORY_UPPER), absent=_ABSENT_WITH_INTERVALS)
