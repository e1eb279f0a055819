"""Define the public tables with one row per area: the list of areas, and their indicators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from od_core.publication.columns import AREA, AREA_LEVEL, CONFIDENCE, LISTED, CodeList, Column, Table

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
