"""Define the bundle of a sum of releases of flows: its files, the notes of its codebook, and its report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from od_core.flows.flow_sum import FlowSum
from od_core.flows.publishing.flow_files import flow_notes, sum_files
from od_core.flows.publishing.report_flows import (
    confidence,
    heat_section,
    largest_flows_section,
    leaf_flows,
    map_sections,
    sizes_section,
)
from od_core.flows.publishing.sum_sources import SUM_FORMAT, sources_of, summed
from od_core.publication.certificate import certificate_digest
from od_core.publication.html.report_certificate import limitations, protected
from od_core.publication.html.report_page import number, page, paragraph, table
from od_core.publication.kind import BundleKind
from od_core.publication.markup import Markup, element, joined
from od_core.publication.read_back import certificate_of, changed
from od_core.publication.tables import BundleFile


class SumKind(BundleKind[FlowSum]):
    """The bundle of a sum of releases of flows. It has no measurements: those are in the bundles of the releases."""

    contents = "flows"
    format = SUM_FORMAT

    def files(self, total: FlowSum, certificate: dict[str, Any]) -> Sequence[BundleFile]:
        """Return the files of the bundle: the summed flows in every format, and the areas."""
        return sum_files(total, certificate)

    def notes(self, total: FlowSum, certificate: dict[str, Any]) -> Sequence[str]:
        """Return further paragraphs of the codebook that users of the files must read."""
        named = ", ".join(f"`{source['release']}`" for source in certificate["sources"])
        return [
            f"The trips are the exact sums of the released trips of {named}. The intervals are those of the sums: the"
            " estimates of the releases add up, and so do the variances of their independent noise. They are not the"
            " sums of the intervals of the releases, which would be too wide. The measurements are in the bundles of"
            " the releases.",
            *flow_notes(total, certificate),
        ]

    def open(self, bundle: Path) -> FlowSum:
        """Return the sum in a bundle's folder, computed from the bundles of its releases, below the same folder.

        Raises:
            OdError: a release is missing or is not the one that was summed, or the sum differs from the published one.
        """
        stated = certificate_of(bundle)
        total = summed(sources_of(bundle, stated))
        if stated["contents"] != {"flows": len(total.leaves), "trips": int(total.leaves.trips.sum())}:
            raise changed("flows")
        return total

    def report(self, total: FlowSum, certificate: dict[str, Any]) -> str:
        """Return the HTML text of the page that presents a sum to its readers."""
        leaves = leaf_flows(total, certificate)
        series, period, _ = certificate["release"].split("/")
        trips = number(int(total.leaves.trips.sum()))
        return page(
            f"Flows: {series}, {period}",
            f"Revision {certificate['revision']}, the sum of {number(len(total.releases))} releases of data set"
            f" {certificate['data_set']}. All numbers contain noise, except those that are stated as exact.",
            [
                ("trips" if total.exact_trips is None else "trips, exact", trips),
                ("pairs of zones with trips", number(len(total.leaves))),
                ("releases", number(len(total.releases))),
            ],
            [
                ("What is protected", protected(certificate)),
                ("The releases that were summed", _sources(certificate)),
                ("The largest flows", largest_flows_section(total, leaves, confidence(certificate))),
                ("Flows between large areas", heat_section(total)),
                *map_sections(total, leaves),
                ("Sizes of flows", sizes_section(total)),
                ("How to cite", _citation(certificate)),
                ("Assumptions and limitations", limitations(certificate)),
            ],
        )


SUMS = SumKind()


def _sources(certificate: dict[str, Any]) -> Markup:
    rows = [
        (
            one["release"],
            one["measured_at"][:10],
            f"{one['epsilon']:.6g}",
            f"{one['delta']:.3g}",
            element("code", one["certificate"]),
        )
        for one in certificate["sources"]
    ]
    return joined(
        paragraph(
            "The trips are the exact sums of the released trips of these releases. The sum was charged nothing, because"
            " it was computed from their bundles alone."
        ),
        table(
            "Releases, by their period",
            ("release", "measured", "epsilon", "delta", "SHA-256 of its certificate"),
            rows,
            numbers={2, 3},
        ),
    )


def _citation(certificate: dict[str, Any]) -> Markup:
    named = (
        f"{certificate['release']}, the sum of {len(certificate['sources'])} releases with differential privacy"
        f" ({certificate['sources'][0]['release']} to {certificate['sources'][-1]['release']}). Certificate"
        f" {certificate_digest(certificate)[:16]}."
    )
    return element("blockquote", named)
