"""Define the public tables of group sizes."""

from __future__ import annotations

from dataclasses import replace

from od_core.publication.columns import (
    AREA,
    AREA_LEVEL,
    CONFIDENCE,
    LISTED,
    LOWER,
    NOISY,
    UPPER,
    CodeList,
    Column,
    Table,
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
