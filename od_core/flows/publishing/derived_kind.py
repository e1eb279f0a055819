"""Define what the bundles of derived flows share: their files, how they are read back, and parts of their reports."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from od_core.errors import OdError
from od_core.flows.derived_flows import D
from od_core.flows.publishing.derived_sources import by_name, sources_of
from od_core.flows.publishing.flow_files import derived_files
from od_core.flows.publishing.report_areas import areas_sections, distance_sections, total_sentences
from od_core.flows.publishing.report_flows import (
    heat_section,
    largest_flows_section,
    leaf_flows,
    map_sections,
    sizes_section,
    trips_title,
)
from od_core.flows.release import Release
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import Period
from od_core.privacy.accounting import text_above
from od_core.privacy.unit import PrivacyUnit
from od_core.publication.html.certificate_page import confidence, how_to_cite, limitations, protected
from od_core.publication.html.report_page import number, page, paragraph, table
from od_core.publication.kind import BundleKind
from od_core.publication.markup import Markup, element, joined
from od_core.publication.read_back import certificate_of, changed
from od_core.publication.tables import BundleFile


class DerivedKind(BundleKind[D]):
    """Base class of the bundles of derived flows. They have no measurements: those are in the bundles of the releases.

    Attributes:
        suffix: end of the series name of these flows, after the name of the series of the releases.
        main: position of the release whose facts, such as how its records were read, the certificate repeats.
        what: what the flows are, in words that end before the number of releases.
        total_of: the releases whose exact total number of trips the flows have, in words.
        adds_up: whether the flows are those of all releases together; otherwise, they are those of the main one.
    """

    contents = "flows"
    suffix: ClassVar[str]
    main: ClassVar[int]
    what: ClassVar[str]
    total_of: ClassVar[str]
    adds_up: ClassVar[bool]

    @abstractmethod
    def derived(self, named: Mapping[str, Release]) -> D:
        """Return the flows that follow from releases, given by the names that messages use."""

    @abstractmethod
    def in_sequence(self, keys: Sequence[ReleaseKey], period: str | None) -> list[ReleaseKey]:
        """Return releases in the order in which these flows are derived from them.

        Args:
            keys: the releases.
            period: period of the flows; None for the one that follows from the releases.

        Raises:
            OdError: the periods of the releases do not fit each other or the period.
        """

    @abstractmethod
    def report(self, flows: D, certificate: dict[str, Any]) -> str:
        """Return the HTML text of the page that presents these flows to their readers."""

    def facts(self, _flows: D) -> dict[str, Any]:
        """Return the fields of the certificate that only these flows have."""
        return {}

    def files(self, flows: D, certificate: dict[str, Any]) -> Sequence[BundleFile]:
        """Return the files of the bundle: the flows in every format, and the areas."""
        return derived_files(flows, certificate)

    def open(self, bundle: Path) -> D:
        """Return the flows in a bundle's folder, derived from the bundles of their releases, below the same folder.

        Raises:
            OdError: a release is missing or is not the one that was used, or the flows differ from the published ones.
        """
        stated = certificate_of(bundle)
        flows = self.derived(by_name(sources_of(bundle, stated)))
        if stated["contents"] != {"flows": len(flows.leaves), "trips": int(flows.leaves.trips.sum())}:
            raise changed("flows")
        return flows


def by_period(keys: Iterable[ReleaseKey], code: str, reason: str = "") -> list[ReleaseKey]:
    """Return keys in the order of their periods. Raises OdError with the given code if two periods overlap.

    ``reason`` ends the message.
    """
    spans = sorted(((Period(key.period), key) for key in keys), key=lambda one: (one[0].first, one[0].end, one[1]))
    for (one, earlier), (other, later) in pairwise(spans):
        if other.first < one.end:
            raise OdError(
                code,
                f"{earlier} and {later} cover the same days{reason}",
                next_step="name one release for each period",
            )
    return [key for _, key in spans]


def derived_page(
    flows: D,
    certificate: dict[str, Any],
    intro: str,
    sources: tuple[str, Markup],
    others: Sequence[tuple[str, Markup]] = (),
) -> str:
    """Return the HTML text of a page on derived flows.

    Args:
        flows, certificate: The flows and their certificate.
        intro: What the flows are, in a sentence that follows the number of the revision.
        sources: Title and text of the section on the releases.
        others: Further sections, which follow it.
    """
    series, period, _ = certificate["release"].split("/")
    leaves = leaf_flows(flows, certificate)
    return page(
        f"Flows: {series}, {period}",
        f"Revision {certificate['revision']}, {intro} All numbers contain noise, except those that are stated as"
        " exact.",
        [
            (
                trips_title(flows.releases[0].plan.unit, exact=flows.exact_trips is not None),
                number(int(flows.leaves.trips.sum())),
            ),
            ("pairs of zones released above 0", number(len(flows.leaves))),
            ("releases", number(len(flows.releases))),
        ],
        [
            ("What is protected", protected(certificate)),
            sources,
            *_counted_section(flows, certificate),
            *others,
            ("The largest flows", largest_flows_section(flows, leaves, confidence(certificate))),
            ("Flows between large areas", heat_section(flows, confidence(certificate))),
            *areas_sections(flows, confidence(certificate)),
            *distance_sections(flows, certificate, confidence(certificate)),
            *map_sections(flows, leaves),
            ("Sizes of flows", sizes_section(flows)),
            ("How to cite", how_to_cite(certificate)),
            ("Assumptions and limitations", limitations(certificate)),
        ],
    )


def _counted_section(flows: D, certificate: dict[str, Any]) -> list[tuple[str, Markup]]:
    """Return the section on the trips that contribution bounds leave out; an empty list if no bound leaves any out."""
    unit = flows.releases[0].plan.unit
    if unit == PrivacyUnit("trip", unit.neighbours):
        return []
    year = unit.max_trips_year
    bound = (
        f" At most {number(unit.contribution_bound)} trips of each user are counted in a release, and at most"
        f" {number(year)} in all periods of a year together."
        if year is not None
        else ""
    )
    return [("Counted trips", paragraph(" ".join(total_sentences(flows, certificate)) + bound))]


def sources_section(certificate: dict[str, Any], text: str) -> Markup:
    """Return a paragraph and a table of the releases that flows are derived from."""
    rows = [
        (
            one["release"],
            one["measured_at"][:10],
            text_above(one["epsilon"]),
            text_above(one["delta"]),
            element("code", one["certificate"]),
        )
        for one in certificate["sources"]
    ]
    return joined(
        paragraph(text),
        table(
            "Releases, by their period",
            ("release", "measured", "epsilon", "delta", "SHA-256 of its certificate"),
            rows,
            numbers={2, 3},
        ),
    )
