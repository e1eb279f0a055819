"""Define flows as a kind of release. Verification of this kind recomputes all levels from the measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from od_core.errors import OdError
from od_core.flows.estimation.intervals import refuse_without_intervals
from od_core.flows.estimation.refinement import refine
from od_core.flows.estimation.top_down import estimate, root_of
from od_core.flows.plan import ReleasePlan
from od_core.flows.publishing.flow_database import SCHEMA, expected_error_table, stored_tables
from od_core.flows.publishing.flow_files import BUNDLE_FORMAT, flow_files, flow_notes
from od_core.flows.publishing.read_bundle import open_flows
from od_core.flows.publishing.report import flow_pictures, flows_report
from od_core.flows.release import Release
from od_core.geography.align import repeated_levels, repetition_sentence
from od_core.geography.flow_tree import Nodes
from od_core.geography.geography import Geography
from od_core.ledger.measurements import NoisyVector
from od_core.privacy.accounting import float_above
from od_core.privacy.budget import Spent
from od_core.privacy.plan import Step
from od_core.publication.certificate import guarantee_sentences
from od_core.publication.columns import CONFIDENCE
from od_core.publication.kind import Examination, Kind, ReleaseContext
from od_core.publication.markup import Markup
from od_core.publication.tables import BundleFile


class FlowKind(Kind[Release]):
    """The kind of releases of flows.

    A bundle contains the published flows. Verification compares them with estimates recomputed from the measurements.
    """

    contents = "flows"
    format = "od-release certificate 1"
    schema = SCHEMA
    facts_table = "releases"

    def facts(self, release: Release) -> dict[str, Any]:
        """Return the facts that only certificates of flows have, such as the measured levels and the geographies."""
        plan = release.plan
        return {
            "bundle_format": BUNDLE_FORMAT,
            "contents": {"flows": len(release.leaves), "trips": int(release.leaves.trips.sum())},
            "interval": _interval(release),
            "levels": [
                {
                    "level": m.step.level,
                    "origin_level": plan.tree.level_names[m.step.level][0],
                    "destination_level": plan.tree.level_names[m.step.level][1],
                    "sensitivity_squared": m.step.sensitivity_squared,
                    "variance": float_above(m.step.variance),
                    "variance_exact": str(m.step.variance),
                    "rho": float_above(m.step.rho),
                    "rho_exact": str(m.step.rho),
                    "public_cells": plan.tree.cells(m.step.level),
                    "measured_cells": len(m.noisy),
                }
                for m in release.measured
            ],
            "exact": {"trips": int(release.leaves.trips.sum())} if plan.publishes_total else {},
            "invariants": ["the total number of valid trips, n"] if plan.publishes_total else [],
            "geographies": {"origin": plan.tree.origin.digest, "destination": plan.tree.destination.digest},
            "geography_versions": {"origin": plan.tree.origin.version, "destination": plan.tree.destination.version},
            "repeated_levels": {
                "origin": repeated_levels(plan.tree.origin),
                "destination": repeated_levels(plan.tree.destination),
            },
            "mechanism": {"name": plan.mechanism.name, "options": plan.mechanism.options, "tree": plan.tree.order},
        }

    def guarantee(self, plan: ReleasePlan, spent: Spent) -> dict[str, str]:
        """Return the guarantee in sentences, by name, with one about repeated levels if a geography has any."""
        public = plan.neighbours.public() if plan.publishes_total else []
        repetition = repetition_sentence(plan.tree)
        levels = {} if repetition is None else {"levels": repetition}
        return guarantee_sentences(plan.neighbours, spent, public) | levels

    def summary(self, release: Release) -> pd.DataFrame:
        """Return a table with one row per level of the flow tree.

        Returns:
            Columns: level, origin_level, destination_level (names), public_pairs, flows (number of released flows),
            noise_standard_deviation (0 if the level was not measured).
        """
        plan, rows = release.plan, []
        for level, (origin_level, destination_level) in enumerate(release.levels):
            trips = plan.tree.sums_at(release.leaves, *plan.tree.level_pair(level))[2]
            measured = next((step for step in plan.steps if step.level == level), None)
            rows.append(
                {
                    "level": level,
                    "origin_level": origin_level,
                    "destination_level": destination_level,
                    "public_pairs": plan.tree.cells(level),
                    "flows": len(trips),
                    "noise_standard_deviation": 0.0 if measured is None else round(float(measured.variance) ** 0.5, 3),
                }
            )
        return pd.DataFrame(rows)

    def files(self, release: Release, certificate: dict[str, Any]) -> Sequence[BundleFile]:
        """Return the files of the bundle of a release: its tables in every format, and the noisy measurements."""
        return flow_files(release, certificate)

    def notes(self, release: Release, certificate: dict[str, Any]) -> Sequence[str]:
        """Return further paragraphs of the codebook that users of the files must read."""
        return flow_notes(release, certificate)

    def report(self, release: Release, certificate: dict[str, Any], context: ReleaseContext[Release]) -> str:
        """Return the HTML text of the page that presents a release to its readers."""
        return flows_report(release, certificate, context)

    def pictures(self, release: Release, certificate: dict[str, Any]) -> Mapping[str, Markup]:
        """Return the map of the largest flows as SVG, by title; empty if no flow can be drawn."""
        return flow_pictures(release, certificate)

    def open(self, bundle: Path) -> Release:
        """Return the release in a bundle's folder. Raises OdError if the files do not fit the certificate."""
        return open_flows(bundle)

    def measured(self, release: Release) -> list[tuple[Step, NoisyVector]]:
        """Return each step of a release with its noisy values, top level first."""
        return [(measurement.step, measurement.noisy) for measurement in release.measured]

    def recomputed(self, release: Release, certificate: dict[str, Any]) -> tuple[Release, Mapping[str, Examination]]:
        """Return the release with leaves estimated again from the measurements, and the examinations to make, by name.

        The examination ``flows`` compares the leaves with the published ones, and ``invariants`` checks guaranteed
        properties.
        """
        levels = _levels(release, certificate)
        rebuilt = replace(release, leaves=levels[-1])
        examinations = {
            "flows": lambda: _differing_columns(release, rebuilt),
            "invariants": lambda: chain(self.invariants(release), _sums(release, levels)),
        }
        return rebuilt, examinations

    def invariants(self, release: Release) -> Iterator[str]:
        """Yield a message if a leaf has fewer than 1 trip."""
        if np.any(release.leaves.trips < 1):
            yield "a flow is below 1"

    def row(self, release: Release) -> dict[str, Any]:
        """Return the values of the columns that only the database table ``releases`` has, by column."""
        tree = release.plan.tree
        return {
            "rho": float_above(release.spent.rho),
            "delta": float_above(release.spent.delta),
            "trips": int(release.leaves.trips.sum()),
            "origin_geography": tree.origin.digest,
            "destination_geography": tree.destination.digest,
        }

    def geographies(self, release: Release) -> list[Geography]:
        """Return the geographies of the origins and of the destinations."""
        return [release.plan.tree.origin, release.plan.tree.destination]

    def tables(self, release: Release, certificate: dict[str, Any]) -> Mapping[str, pa.Table | pa.RecordBatchReader]:
        """Return the flows, measurements and intervals of a release, by table of the release database."""
        return stored_tables(release, certificate)

    def derived(self, release: Release) -> Mapping[str, pa.Table]:
        """Return the expected error of each level as the table ``expected_error``."""
        return {"expected_error": expected_error_table(release)}


FLOWS = FlowKind()


def _interval(release: Release) -> str | None:
    """Return the confidence of the intervals as text; None if the release has no intervals.

    A release has no intervals if its mechanism has none or if a level has too many measured cells.
    """
    try:
        refuse_without_intervals(release.plan, max(len(m.noisy) for m in release.measured))
    except OdError:
        return None
    return str(CONFIDENCE)


def _levels(public: Release, stated: dict[str, Any]) -> list[Nodes]:
    """Return the estimates of an exact root and of all measured levels, top first, recomputed from the measurements."""
    plan = public.plan
    nodes = root_of(plan, stated["contents"]["trips"]) if plan.publishes_total else None
    if plan.mechanism.refines:
        return refine(plan, nodes, public.measured)
    levels = [] if nodes is None else [nodes]
    for measurement in public.measured:
        nodes = estimate(plan, measurement.step, nodes, measurement.noisy)
        levels.append(nodes)
    return levels


def _differing_columns(public: Release, rebuilt: Release) -> Iterator[str]:
    """Yield a message for each column of the published leaves that differs from the recomputed leaves."""
    for name in ("origin", "destination", "trips"):
        if not np.array_equal(getattr(public.leaves, name), getattr(rebuilt.leaves, name)):
            yield f"the {name} column differs from the result of the measurements"


def _sums(public: Release, levels: Sequence[Nodes]) -> Iterator[str]:
    """Yield a message for each level that does not sum to the level above. The last level is the published leaves."""
    tree = public.plan.tree
    for above, below in pairwise([*levels[:-1], public.leaves]):
        if not tree.sums_agree(above, below):
            yield f"level {below.level} does not sum to the level above"
