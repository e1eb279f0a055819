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


def indicator_table(*, interval: bool) -> Table:
    """Return the table of the indicators of areas, with or without their intervals."""
    columns: list[Column] = []
    for indicator in _INDICATORS:
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
