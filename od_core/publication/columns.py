"""Define every public table and its columns. Codebooks, schemas and comments in the database use these texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

CONFIDENCE = Fraction(9, 10)
"""Probability with which an interval contains the true number of counted trips."""

MOST_LISTED = 5_000_000
"""Largest number of pairs of areas at a pair of levels for which every pair is listed, even a pair with 0 trips."""


@dataclass(frozen=True)
class Column:
    """A column of a public table.

    Attributes:
        name: name in the files.
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


@dataclass(frozen=True)
class CodeList:
    """A reference from columns of codes to the table that lists the codes.

    Attributes:
        columns: columns of the table that uses the codes.
        table: table that lists the codes.
        listed: columns of that table, in the same order.
    """

    columns: tuple[str, ...]
    table: str
    listed: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A public table.

    Attributes:
        name: name of its files, without the extension; a pattern if many files have tables of this form.
        title: short title for people.
        row: meaning of one row.
        absent: meaning of a missing row, and of zero.
        columns: columns in the order of the files.
        key: columns that together identify a row.
        code_lists: tables that list the codes in its columns.
    """

    name: str
    title: str
    row: str
    absent: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    code_lists: tuple[CodeList, ...] = ()

    def column(self, name: str) -> Column:
        """Return the column with that name. Raises KeyError if there is none."""
        return {column.name: column for column in self.columns}[name]


ORIGIN_LEVEL = Column("origin_level", "string", "Level of the origin", "Name of the level of the origin.")
DESTINATION_LEVEL = Column(
    "destination_level", "string", "Level of the destination", "Name of the level of the destination."
)
ORIGIN = Column("origin", "string", "Origin", "Code of the area where the trips begin.")
DESTINATION = Column("destination", "string", "Destination", "Code of the area where the trips end.")
TRIPS = Column(
    "trips",
    "integer",
    "Released trips",
    "Number of trips from the origin to the destination, released with noise. It is an estimate that is consistent at"
    " every pair of levels.",
    unit="trips",
    minimum=0,
)
_HOLDS = (
    f"The true number of counted trips lies between lower and upper with a probability of about {100 * CONFIDENCE} %."
    " If trips is above 0 and equals only one of the two, the interval of the measurements ended at trips or was"
    " widened to contain it: the measurements suggest a number towards the other end."
)
LOWER = Column(
    "lower",
    "integer",
    "Lower end of the interval",
    f"Smallest plausible number of trips. {_HOLDS}",
    unit="trips",
    minimum=0,
)
UPPER = Column(
    "upper",
    "integer",
    "Upper end of the interval",
    f"Largest plausible number of trips. {_HOLDS}",
    unit="trips",
    minimum=0,
)
DISTANCE = Column(
    "distance_km",
    "number",
    "Distance",
    "Great-circle distance between the origin and the destination, each at the mean place of its zones. Public, without"
    " noise. Empty for the whole space, and for areas without coordinates.",
    unit="kilometres",
    required=False,
    minimum=0,
)
PERIOD = Column("period", "string", "Period", "Period of the trips, such as 2001-06.")
NOISY = Column(
    "noisy",
    "integer",
    "Noisy measurement",
    "True count plus random noise, without any change; can be below 0. It is meant for users who make their own"
    " estimates.",
    unit="trips",
)
VARIANCE = Column(
    "variance",
    "number",
    "Variance of the noise",
    "Variance of the noise in the noisy measurement; the last digit is rounded up.",
    unit="trips squared",
    minimum=0,
)

LISTED = ("level_name", "area")
FLOWS = Table(
    "flows",
    "Flows at every pair of levels",
    "The trips from one area to another at one pair of levels. The pairs of levels follow one another, from the whole"
    " space to the zones. Do not add rows of different pairs of levels, because each pair of levels contains all"
    " trips.",
    "A pair of areas that is not listed was released as 0 trips. Zero is a released estimate, not a certainty: the true"
    " number may be a few trips. No number is withheld or missing.",
    (ORIGIN_LEVEL, DESTINATION_LEVEL, ORIGIN, DESTINATION, TRIPS),
    ("origin_level", "destination_level", "origin", "destination"),
    (
        CodeList(("origin_level", "origin"), "areas", LISTED),
        CodeList(("destination_level", "destination"), "areas", LISTED),
    ),
)
"""Table of the flows without intervals."""

FLOWS_WITH_INTERVALS = replace(
    FLOWS,
    columns=(*FLOWS.columns, LOWER, UPPER),
    absent=f"If a pair of levels has at most {MOST_LISTED:,} pairs of areas, every pair is listed; otherwise only the"
    " pairs with released trips are listed. Zero is a released estimate, not a certainty: upper states how many"
    " trips there may be. No number is withheld or missing.",
)

PAIR_FLOWS = Table(
    "flows_<origin level>_<destination level>",
    "Flows at one pair of levels",
    "The trips from one area to another. Each file contains one pair of levels, which its name states, and thereby all"
    " trips once. Do not add rows of different files.",
    FLOWS.absent,
    (ORIGIN, DESTINATION, TRIPS),
    ("origin", "destination"),
    (CodeList(("origin",), "areas", ("area",)), CodeList(("destination",), "areas", ("area",))),
)
"""Table of the flows at one pair of levels, without intervals."""

PAIR_FLOWS_WITH_INTERVALS = replace(
    PAIR_FLOWS, columns=(*PAIR_FLOWS.columns, LOWER, UPPER), absent=FLOWS_WITH_INTERVALS.absent
)

NOISY_MEASUREMENTS = Table(
    "noisy_measurements",
    "Noisy measurements",
    "A pair of areas that was measured, at one level of the flow tree.",
    "A pair that is not listed was not measured. If a pair of areas is estimated as 0, no pair below it is measured,"
    " and those pairs are released as 0. A listed 0 is a measurement like any other.",
    (
        Column(
            "level",
            "integer",
            "Level of the flow tree",
            "Number of the level of the flow tree; certificate.json states the level of the origins and of the"
            " destinations.",
            minimum=0,
        ),
        ORIGIN,
        DESTINATION,
        NOISY,
        VARIANCE,
    ),
    ("level", "origin", "destination"),
)

AREA = Column("area", "string", "Area", "Code of the area.")
AREA_LEVEL = Column("level", "string", "Level", "Name of the level that the area belongs to.")

FLOWMAP_LOCATIONS = Table(
    "flowmap_locations",
    "Places for flowmap.gl",
    "A zone with coordinates.",
    "A zone that is not listed has no coordinates.",
    (
        Column("id", "string", "Zone", "Code of the zone."),
        Column("name", "string", "Name", "Name that a map shows: that of the zone, or its code."),
        Column("lat", "number", "Latitude", "Latitude of the zone, in degrees north.", unit="degrees"),
        Column("lon", "number", "Longitude", "Longitude of the zone, in degrees east.", unit="degrees"),
    ),
    ("id",),
    (CodeList(("id",), "areas", ("area",)),),
)

FLOWMAP_FLOWS = Table(
    "flowmap_flows",
    "Flows for flowmap.gl",
    "The trips from one zone with coordinates to another, or within one.",
    "Only the largest flows between zones with coordinates are listed, of at least one released trip.",
    (
        replace(ORIGIN, description="Code of the zone where the trips begin."),
        Column("dest", "string", "Destination", "Code of the zone where the trips end."),
        replace(TRIPS, name="count", minimum=1),
    ),
    ("origin", "dest"),
    (CodeList(("origin",), "flowmap_locations", ("id",)), CodeList(("dest",), "flowmap_locations", ("id",))),
)

COUNT = Column(
    "count",
    "integer",
    "Released trips",
    "Number of trips in the box, released with noise; a whole number computed from the noisy numbers.",
    unit="trips",
    minimum=0,
)

_HOLDS_COUNT = (
    f"For the given boxes, the true number of trips in the box lies between count_lower and count_upper with a"
    f" probability of about {100 * CONFIDENCE} %."
)
COUNT_ENDS = (
    Column(
        "count_lower",
        "integer",
        "Lower end of the interval",
        f"Smallest plausible number of trips in the box. {_HOLDS_COUNT}",
        unit="trips",
        minimum=0,
    ),
    Column(
        "count_upper",
        "integer",
        "Upper end of the interval",
        f"Largest plausible number of trips in the box. {_HOLDS_COUNT}",
        unit="trips",
        minimum=0,
    ),
)


def boxes_table(dimensions: int, places: Sequence[str] = (), *, interval: bool = True) -> Table:
    """Return the definition of the table of boxes of a grid.

    Args:
        dimensions: number of dimensions of the grid.
        places: names of the places of a trip if the grid is a map, which has two dimensions per place (longitude, then
            latitude); empty for other grids.
        interval: whether the table has the intervals of the trips.
    """

    def of(dimension: int) -> str:
        if not places:
            return f"dimension {dimension + 1}"
        return f"the {('longitude', 'latitude')[dimension % 2]} of place {places[dimension // 2]!r}"

    ends = [
        Column(
            f"{end}_{dimension + 1}",
            "integer",
            f"{title} cell, dimension {dimension + 1}",
            f"{title} cell of the box (inclusive) along {of(dimension)}; cells are numbered from 0.",
            unit="cells",
            minimum=0,
        )
        for end, title in (("lower", "First"), ("upper", "Last"))
        for dimension in range(dimensions)
    ]
    return Table(
        "boxes",
        "Boxes",
        "A box of the grid, with its trips. The boxes fill the grid and do not overlap. The release does not say where"
        " within a box its trips are.",
        "Every box is listed, including boxes with 0 trips. Zero is a released estimate, not a certainty. No number is"
        " withheld or missing.",
        (*ends, COUNT, *(COUNT_ENDS if interval else ()), NOISY),
        tuple(column.name for column in ends),
    )
