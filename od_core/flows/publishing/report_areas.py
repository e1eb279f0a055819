"""Write the sections of a report that state the main results, the indicators of areas, and trips by distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from od_core.flows.distance_bands import distance_bands
from od_core.flows.indicators import has_indicators, indicators
from od_core.flows.publishing.atlas import FIRST_WITH_ATLAS
from od_core.flows.publishing.flow_tables import FlowTables, labelled
from od_core.flows.publishing.report_flows import between_zones, level_up_to
from od_core.flows.released_flows import ReleasedFlows
from od_core.publication.bundle import ATLAS
from od_core.publication.html.report_page import bar, between, number, paragraph, table, with_interval
from od_core.publication.markup import Markup, element, joined

_MOST_AREAS = 24
"""Largest number of areas in the table of indicators."""


@dataclass(frozen=True)
class CountedChanges:
    """How many flows changed by more than their uncertainty.

    Attributes:
        period: the previous period.
        grew, fell: numbers of increases and of decreases that are larger than their uncertainty.
        compared: number of all compared pairs.
        caution: sentences on other reasons for changes than the trips; empty if there are none.
    """

    period: str
    grew: int
    fell: int
    compared: int
    caution: str

    @property
    def marked(self) -> int:
        """Number of changes that are larger than their uncertainty."""
        return self.grew + self.fell


def main_results(
    release: ReleasedFlows,
    leaves: pd.DataFrame,
    certificate: dict[str, Any],
    interval: str | None,
    changes: CountedChanges | None,
) -> Markup:
    """Return the main results as a list of sentences, and a link to the atlas if the bundle has one.

    Args:
        release: the released flows.
        leaves: its flows between zones, with intervals if it has some.
        certificate: the certificate.
        interval: confidence of the intervals; None if there are none.
        changes: changes since the previous period; None if no release is compared.
    """
    tree = release.tree
    sentences = total_sentences(release, certificate)
    largest = labelled(tree, between_zones(release, leaves).nlargest(1, "trips"))
    for flow in largest.to_dict("records"):
        reach = f" ({interval} interval: {between(flow['lower'], flow['upper'])})" if interval else ""
        sentences.append(
            f"The largest flow is from {flow['origin']} to {flow['destination']}: {number(flow['trips'])} trips{reach}."
        )
    if interval and len(release.leaves) < tree.cells(tree.depth):
        zones = tree.origin.levels[-1], tree.destination.levels[-1]
        most = number(release.zero_bound(*zones))
        sentences.append(
            f"A pair of zones that is released with 0 trips has at most {most}, with a confidence of {interval}."
            " This is the largest upper end of all such pairs; most are lower."
        )
    if changes is not None:
        sentences.append(
            f"Since {changes.period}, {number(changes.marked)} of {number(changes.compared)} flows between large areas"
            f" changed by more than their uncertainty: {number(changes.grew)} grew, and {number(changes.fell)} fell."
            f"{changes.caution}"
        )
    results = element("ul", *(element("li", sentence) for sentence in sentences))
    if certificate.get("bundle_format", 1) < FIRST_WITH_ATLAS:
        return results
    link = element("a", "atlas", href=ATLAS)
    return joined(results, paragraph("Choose areas of your own, and see their trips, in the ", link, "."))


def total_sentences(release: ReleasedFlows, certificate: dict[str, Any]) -> list[str]:
    """Return sentences on the number of trips: of all, or of those that contribution bounds let count."""
    period, trips = certificate["period"], number(int(release.leaves.trips.sum()))
    if certificate["contribution_bound"] == 1 and certificate["unit"] == "trip":
        exact = "exactly " if "trips" in certificate["exact"] else ""
        return [f"{period} has {exact}{trips} trips."]
    sentences = [f"{trips} trips are counted in {period}. Further trips are left out by the contribution bound."]
    if uncounted := certificate.get("uncounted"):
        reach = between(uncounted["lower"], uncounted["upper"])
        where = "in each release" if "sources" in certificate else "in these numbers"
        sentences.append(
            f"About {number(max(uncounted['trips'], 0))} trips are not counted (90 % interval: {reach}),"
            f" {100 * uncounted['share']:.3g} % of all trips. At most {number(uncounted['max_trips'])} of each user are"
            f" considered {where}."
        )
    return sentences


def areas_sections(release: ReleasedFlows, interval: str | None) -> list[tuple[str, Markup]]:
    """Return the section with the indicators of large areas; an empty list if both sides have different areas."""
    if not has_indicators(release):
        return []
    geography = release.tree.origin
    level = level_up_to(geography, _MOST_AREAS)
    name = geography.level_names[level]
    rows = indicators(release, [name], interval=interval is not None).assign(area=geography.labels[level])
    shown = rows.nlargest(_MOST_AREAS, "outflow").sort_index() if len(rows) > _MOST_AREAS else rows
    ends = f" In brackets is the {interval} interval; the dark line over a bar shows that of the share."
    text = (
        f"Trips from each {name} to the others, from the others to it, and within it. The share is that of the trips"
        f" that begin in the area and also end in it (self-containment).{ends if interval else ''}"
    )
    listed = [
        (
            row["area"],
            *(_number(row, indicator, interval) for indicator in ("outflow", "inflow", "within")),
            *_share(row, interval),
        )
        for row in shown.to_dict("records")
    ]
    content = table(
        f"Indicators of each {name}",
        (name, "outflow", "inflow", "within", "share within", ""),
        listed,
        numbers={1, 2, 3, 4},
        bars={5},
    )
    left_out = (
        [paragraph(f"Only the {number(_MOST_AREAS)} areas with the largest outflow are shown.", note=True)]
        if len(rows) > _MOST_AREAS
        else []
    )
    more = paragraph("All areas of all levels are in ", element("code", "indicators.csv"), ".", note=True)
    return [("Trips from, to and within areas", joined(paragraph(text), content, *left_out, more))]


def distance_sections(
    release: ReleasedFlows, certificate: dict[str, Any], interval: str | None
) -> list[tuple[str, Markup]]:
    """Return the section with all trips by distance; an empty list if the bundle has no distances."""
    tables = FlowTables.of(release, certificate)
    if not tables.distance:
        return []
    everywhere = release.tree.origin.level_names[0]
    rows = distance_bands(release, [everywhere], interval=interval is not None).to_dict("records")
    most = max(1, *(row["upper" if interval else "trips"] for row in rows))
    listed = [
        (
            _band(row),
            with_interval(number(row["trips"]), between(row["lower"], row["upper"]) if interval else None),
            bar(max(0, row["trips"]), most, (max(0, row["lower"]), row["upper"]) if interval else None),
        )
        for row in rows
    ]
    ends = f" In brackets is the {interval} interval; the dark line over a bar shows it." if interval else ""
    text = (
        "All trips by the distance along the great circle between the places of their two zones. A trip within a zone"
        f" has the distance 0.{ends}"
    )
    more = paragraph(
        "The trips from each area by distance are in ", element("code", "distance_bands.csv"), ".", note=True
    )
    content = table("Trips by distance", ("distance", "trips", ""), listed, numbers={1}, bars={2})
    return [("Trips by distance", joined(paragraph(text), content, more))]


def _band(row: dict[Any, Any]) -> str:
    """Return the name of a band of distance for people."""
    if row["band"] == 0:
        return "unknown"
    if pd.isna(row["to_km"]):
        return f"{row['from_km']:,g} km or more"
    if row["band"] == 1:
        return f"below {row['to_km']:,g} km"
    return f"{row['from_km']:,g} to {row['to_km']:,g} km"


def _number(row: dict[Any, Any], indicator: str, interval: str | None) -> Markup:
    reach = between(row[f"{indicator}_lower"], row[f"{indicator}_upper"]) if interval else None
    return with_interval(number(row[indicator]), reach)


def _share(row: dict[Any, Any], interval: str | None) -> tuple[Markup, Markup]:
    """Return the share of trips within an area as text and as a bar."""
    if pd.isna(row["self_containment"]):
        return joined("\u2013"), bar(0, 1)
    share = row["self_containment"]
    if interval is None:
        return joined(f"{share:.1%}"), bar(share, 1)
    reach = row["self_containment_lower"], row["self_containment_upper"]
    return with_interval(f"{share:.1%}", f"{reach[0]:.1%} to {reach[1]:.1%}"), bar(share, 1, reach)
