"""List the columns of every public table with their descriptions, for files, database and codebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from od_core.records.segments import Breakdown

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


AREAS = Table(
    "areas",
    "Areas",
    "A public area of a geography.",
    "All areas are listed, including areas without trips. Only the whole space has no parent.",
    (
        Column("geography", "string", "Geography", "SHA-256 of the geography that the area belongs to."),
        Column(
            "level",
            "integer",
            "Number of the level",
            "0 for the whole space; the zones have the largest number.",
            minimum=0,
        ),
        Column("level_name", "string", "Level", "Name of the level."),
        Column("area", "string", "Area", "Code of the area; always text, even if it looks like a number."),
        Column("parent", "string", "Parent", "Code of the area of the level above that contains it.", required=False),
        Column("position", "integer", "Position", "Number of the area within its level, from 0.", minimum=0),
        Column(
            "name",
            "string",
            "Name",
            "Name of the area, for people. Areas may have the same name, or none.",
            required=False,
        ),
        Column(
            "latitude",
            "number",
            "Latitude",
            "Latitude of a zone with coordinates, in degrees north; for maps.",
            unit="degrees",
            required=False,
        ),
        Column(
            "longitude",
            "number",
            "Longitude",
            "Longitude of a zone with coordinates, in degrees east; for maps.",
            unit="degrees",
            required=False,
        ),
    ),
    ("geography", "level", "area"),
)


def described_areas(columns: Sequence[str]) -> Table:
    """Return the table of areas with those of its columns that a release has. Not all have names and coordinates."""
    return replace(AREAS, columns=tuple(column for column in AREAS.columns if column.name in columns))


_BOUNDED = f"The true number lies between the two bounds with a probability of about {100 * CONFIDENCE} %."
_INDICATORS = (
    Column("outflow", "integer", "Outflow", "Trips from the area to other areas of its level.", "trips", minimum=0),
    Column("inflow", "integer", "Inflow", "Trips from other areas of its level to the area.", "trips", minimum=0),
    Column("within", "integer", "Trips within", "Trips that begin and end in the area.", "trips", minimum=0),
    Column("balance", "integer", "Balance", "Inflow minus outflow; below 0 if more trips leave than arrive.", "trips"),
    Column(
        "self_containment",
        "number",
        "Self-containment",
        "Share, from 0 to 1, of the trips that begin in the area and also end in it. Empty if no trips were released"
        " that begin in it.",
        unit="share",
        required=False,
        minimum=0,
    ),
)
_MEAN_DISTANCE = Column(
    "mean_distance",
    "number",
    "Mean distance",
    "Mean great-circle distance of the trips that begin in the area, between the places of their zones; a trip within"
    " a zone has the distance 0. Trips of unknown distance are left out. Empty if there are no others.",
    unit="kilometres",
    required=False,
    minimum=0,
)


def indicator_table(*, interval: bool, distance: bool) -> Table:
    """Return the table of the indicators of areas, with or without their intervals and the mean distance."""
    columns: list[Column] = []
    for indicator in (*_INDICATORS, *((_MEAN_DISTANCE,) if distance else ())):
        columns.append(indicator)
        for end, title in (("lower", "Lower bound"), ("upper", "Upper bound")) if interval else ():
            described = f"{title} of {indicator.name}. {_BOUNDED}"
            bound = replace(indicator, name=f"{indicator.name}_{end}", title=f"{title} of {indicator.title.lower()}")
            columns.append(replace(bound, description=described, required=True))
    return Table(
        "indicators",
        "Indicators of areas",
        "An area of any level, with the trips that leave it, enter it and stay in it.",
        "All areas of all levels below the whole space are listed. Do not add the outflow or the inflow of several"
        " areas, because the trips between them would be counted as trips that leave.",
        (AREA_LEVEL, AREA, *columns),
        ("level", "area"),
        (CodeList(("level", "area"), "areas", LISTED),),
    )


_ENDS = (
    ("from_km", "Begin of the band", "Smallest distance in the band."),
    ("to_km", "End of the band", "End of the band, which does not belong to it. Empty if the band has no end."),
)


def distance_band_table(*, interval: bool) -> Table:
    """Return the table of the trips that begin in each area by bands of distance, with or without their intervals."""
    trips = Column(
        "trips",
        "integer",
        "Released trips",
        "Trips that begin in the area and whose distance is in the band, released with noise.",
        unit="trips",
        minimum=0,
    )
    bounds = [
        replace(trips, name=name, title=f"{title} of the trips", description=_BOUNDED)
        for name, title in (("lower", "Lower bound"), ("upper", "Upper bound"))
    ]
    return Table(
        "distance_bands",
        "Trips by distance",
        "A band of distances, with the trips that begin in an area and are as long as that. A distance is that of the"
        " great circle between the places of two zones; a trip within a zone has the distance 0.",
        "All bands of all listed areas are listed. The bands of an area sum to the trips that begin in it. Do not add"
        " rows of different levels.",
        (
            AREA_LEVEL,
            AREA,
            Column(
                "band",
                "integer",
                "Band",
                "Number of the band, from 1 for the shortest trips; 0 for trips of unknown distance.",
                minimum=0,
            ),
            *(Column(name, "number", title, text, "kilometres", required=False) for name, title, text in _ENDS),
            trips,
            *(bounds if interval else ()),
        ),
        ("level", "area", "band"),
        (CodeList(("level", "area"), "areas", LISTED),),
    )


SIZE = Column(
    "size",
    "integer",
    "Size",
    "Number of members of a group; the top code stands for that size or more.",
    "members",
    minimum=0,
)
GROUPS = Column(
    "groups",
    "integer",
    "Released groups",
    "Number of groups of that size in the area, released with noise; an estimate.",
    unit="groups",
    minimum=0,
)

HISTOGRAM = Table(
    "histogram",
    "Groups by size",
    "The groups of one size in one area.",
    "A size that is not listed for an area was released as 0 groups. Zero is a released estimate, not a certainty. No"
    " number is withheld or missing.",
    (AREA, AREA_LEVEL, SIZE, GROUPS),
    ("level", "area", "size"),
    (CodeList(("level", "area"), "areas", LISTED),),
)

_HOLDS_GROUPS = (
    f"The true number lies between lower and upper with a probability of about {100 * CONFIDENCE} % or more."
)


def _group_ends(what: str, unit: str) -> tuple[Column, Column]:
    """Return the columns of the ends of the interval of a number of a group-size table."""
    return (
        replace(LOWER, description=f"Smallest plausible number of {what}. {_HOLDS_GROUPS}", unit=unit),
        replace(UPPER, description=f"Largest plausible number of {what}. {_HOLDS_GROUPS}", unit=unit),
    )


CUMULATIVE = Table(
    "cumulative",
    "Groups of at most each size",
    "The groups of at most one size in one area, with their interval. Each interval is of its own row: the probability"
    " that all rows of an area hold at once is smaller.",
    "Sizes below the top code with at most two significant digits are listed for every area, even if no group has that"
    " size. All groups have at most the top code, which is not listed.",
    (
        AREA,
        AREA_LEVEL,
        replace(SIZE, description="Largest number of members of the groups that are counted."),
        replace(
            GROUPS,
            description="Number of groups of at most that size in the area, released with noise; an estimate.",
        ),
        *_group_ends("groups of at most that size", "groups"),
    ),
    ("level", "area", "size"),
    (CodeList(("level", "area"), "areas", LISTED),),
)

MEMBERS = Table(
    "members_by_area",
    "Members by area",
    "An area, with the number of members of all its groups and its interval.",
    "Every area is listed. Do not add rows of different levels, because each level has all members.",
    (
        AREA,
        AREA_LEVEL,
        Column(
            "members",
            "integer",
            "Released members",
            "Number of members of all groups of the area, released with noise; an estimate. A group of more members"
            " than the top code counts with the top code.",
            unit="members",
            minimum=0,
        ),
        *_group_ends("members", "members"),
    ),
    ("level", "area"),
    (CodeList(("level", "area"), "areas", LISTED),),
)

GROUPS_BY_AREA = Table(
    "groups_by_area",
    "Groups by area",
    "A zone, with the number of its groups.",
    "Every zone is listed. The list of groups is public, so these numbers are exact.",
    (
        AREA,
        Column("groups", "integer", "Groups", "Public number of groups in the zone, exact.", "groups", minimum=0),
    ),
    ("area",),
    (CodeList(("area",), "areas", ("area",)),),
)

GROUP_MEASUREMENTS = Table(
    "noisy_measurements",
    "Noisy measurements",
    "One measured value of an area's groups.",
    "Every value that was measured is listed; a 0 is a measurement like any other.",
    (
        AREA,
        AREA_LEVEL,
        Column(
            "position",
            "integer",
            "Position",
            "A size, from 0, if the numbers of groups by size were measured; a rank, from 1, if the sizes of the"
            " groups in ascending order were measured. certificate.json states which (plan, query).",
            minimum=0,
        ),
        replace(NOISY, unit="groups or members"),
        Column("scale", "number", "Scale of the noise", "Scale of the Laplace noise.", "groups or members", minimum=0),
    ),
    ("level", "area", "position"),
    (CodeList(("level", "area"), "areas", LISTED),),
)


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
