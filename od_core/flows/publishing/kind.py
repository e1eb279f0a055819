"""Define flows as a kind of release. Verification of this kind recomputes all levels from the measurements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import chain, pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.estimation.intervals import refuse_without_intervals
from od_core.flows.estimation.levels import Measurement, estimate, make_published_root
from od_core.flows.estimation.refinement import refine
from od_core.flows.interval_ends import compute_lower_bound, compute_upper_bound
from od_core.flows.plan import ReleasePlan
from od_core.flows.publishing.flow_files import list_flow_files, list_flow_notes
from od_core.flows.publishing.flow_tables import (
    FLOWS_SCHEMA,
    SEGMENTS_SCHEMA,
    FlowTables,
    LevelPair,
    label_areas,
    list_level_errors,
    make_flows_table,
    make_known_totals_table,
    make_measurement_reader,
)
from od_core.flows.publishing.read_bundle import open_flows
from od_core.flows.publishing.report import (
    describe_estimation,
    find_largest_changes,
    label_changes,
    render_flow_pictures,
    render_flows_report,
    select_flows_between_zones,
    select_leaf_flows,
)
from od_core.flows.release import Release
from od_core.geography.flow_tree import Nodes
from od_core.geography.geography import Geography
from od_core.languages import translate
from od_core.ledger.measurements import NoisyVector
from od_core.ledger.release_key import ReleaseKey
from od_core.meaning.subject import Subject
from od_core.privacy.accounting import round_up_to_float
from od_core.privacy.budget import Spent
from od_core.privacy.plan import Step
from od_core.publication.certificate import Certificate, has_intervals
from od_core.publication.certify import describe_guarantee
from od_core.publication.columns import CONFIDENCE, DISTANCE, RELIABILITY, describe_unlisted_records
from od_core.publication.database import Rows
from od_core.publication.kind import Examination, Kind, ReleaseContext
from od_core.publication.number_formats import format_number
from od_core.publication.tables import make_table_schema
from od_core.publication.templates import render_data

MAX_STORED_CELLS = 200_000
"""Largest number of public pairs of areas at a pair of levels (by category: times the categories) for which the
database contains intervals. For pairs of levels with more, only the bundle contains them. A month of flows between 229
airports has 88 thousand rows of intervals in total. A month between 8,092 towns in 110 provinces has 366 thousand."""

_SHOWN_ROWS = 10
"""Number of rows of the tables that Dagster shows."""


def describe_uncounted_trips(releases: Sequence[Release], counted: int) -> dict[str, dict[str, object]]:
    """Return the field ``uncounted`` of a certificate: how many trips the releases together do not count.

    The noise of the releases is independent, so numbers and variances add up. Empty if a release did not measure the
    number. ``counted`` is the number of released trips, by which the share of the uncounted trips is computed.
    """
    steps, trips = [], 0
    for release in releases:
        if release.plan.uncounted_step is None or release.uncounted is None:
            return {}
        steps.append(release.plan.uncounted_step)
        trips += release.uncounted
    variance = sum((step.variance for step in steps), Fraction(0))
    estimates, variances = np.array([float(trips)]), np.array([float(variance)])
    uncounted = max(trips, 0)
    facts: dict[str, object] = {
        "trips": trips,
        "lower": int(compute_lower_bound(estimates, variances)[0]),
        "upper": int(compute_upper_bound(estimates, variances)[0]),
        "share": round(uncounted / max(uncounted + counted, 1), 4),
        "max_trips": max(step.max_trips for step in steps),
        "variance_exact": str(variance),
        "rho_exact": str(sum((step.charge.as_rho for step in steps), Fraction(0))),
    }
    return {"uncounted": facts}


class FlowKind(Kind[Release]):
    """The kind of releases of flows.

    A bundle contains the published flows. Verification compares them with estimates recomputed from the measurements.
    """

    contents = "flows"
    format = "od-release certificate 1"
    schema = "database/flows.sql"
    facts_table = "releases"
    list_files = staticmethod(list_flow_files)
    render_report = staticmethod(render_flows_report)
    render_pictures = staticmethod(render_flow_pictures)
    open = staticmethod(open_flows)

    def refuse_comparison(self, key: ReleaseKey) -> None:
        """Do nothing, because any two releases of flows can be compared."""

    def facts(self, release: Release, subject: Subject) -> dict[str, object]:
        """Return the facts that only certificates of flows have, such as the measured levels and the geographies."""
        plan = release.plan
        sides = {"origin": plan.tree.origin, "destination": plan.tree.destination}
        total = translate("the total number of valid {counted}, n")
        return {
            "contents": {"flows": len(release.leaves), "trips": int(release.leaves.trips.sum())},
            "interval": str(CONFIDENCE) if _has_intervals(release) else None,
            "levels": [_make_step_facts(plan, measurement) for measurement in release.measured],
            **({} if release.choice is None else release.choice.facts()),
            **describe_uncounted_trips([release], int(release.leaves.trips.sum())),
            "exact": {"trips": int(release.leaves.trips.sum())} if plan.publishes_total else {},
            "invariants": [total.format(counted=subject.nouns.counted)] if plan.publishes_total else [],
            "geographies": {side: geography.digest for side, geography in sides.items()},
            "geography_versions": {side: geography.version for side, geography in sides.items()},
            "repeated_levels": plan.tree.repeated_levels,
            "mechanism": {"name": plan.mechanism.name, "options": plan.mechanism.options, "tree": plan.tree.order},
        }

    def describe_guarantee(self, plan: ReleasePlan, spent: Spent, subject: Subject) -> dict[str, str]:
        """Return the guarantee in sentences, by name, with further ones about levels, breakdowns and area totals."""
        possible, public = plan.tree.possible, list[str]()
        if possible is not None:
            pairs = translate("which {number} pairs of zones can have {counted}")
            public = [pairs.format(number=format_number(len(possible)), counted=subject.nouns.counted)]
        public += [totals.describe(subject.nouns.counted) for totals in plan.known]
        sentences = describe_guarantee(
            subject, spent, plan.acceptance, public=public, states_total=plan.publishes_total
        )
        further = render_data(
            "flow_guarantee.yaml", plan=plan, subject=subject, nouns=subject.nouns, unlisted=describe_unlisted_records
        )
        return sentences | {name: text for name, text in further.items() if text}

    def make_summary(self, release: Release) -> pd.DataFrame:
        """Return a table with one row per level of the flow tree, and then of the area totals.

        Returns:
            Columns: level, origin_level, destination_level (names), public_pairs, flows (number of released flows),
                noise_standard_deviation (of the totals; 0 if they were not measured).
        """
        tree, table = release.plan.tree, pd.DataFrame(list_level_errors(release))
        numbers_of_flows = []
        for origin_name, destination_name in zip(table["origin_level"], table["destination_level"], strict=True):
            levels = tree.origin.find_level_number(origin_name), tree.destination.find_level_number(destination_name)
            _, _, trips = tree.sum_trips(release.leaves, *levels)
            numbers_of_flows.append(len(trips))
        table["flows"] = numbers_of_flows
        table["noise_standard_deviation"] = table["noise"].astype(float).fillna(0.0).round(3)
        return table.drop(columns=["noise", "error"])

    def list_metadata(self, release: Release) -> dict[str, object]:
        """Return the metadata that Dagster shows of a release: the number of trips, and the largest flows."""
        largest = label_areas(release.tree, release.flows.nlargest(_SHOWN_ROWS, "trips"))
        return {"trips": int(release.leaves.trips.sum()), "largest_flows": largest}

    def list_published_metadata(
        self, release: Release, certificate: Certificate, context: ReleaseContext[Release]
    ) -> dict[str, object]:
        """Return the largest flows with their intervals and, if there is an earlier period, the largest changes."""
        largest = select_flows_between_zones(release, select_leaf_flows(release, certificate)).nlargest(
            _SHOWN_ROWS, "trips"
        )
        metadata: dict[str, object] = {"largest_flows": label_areas(release.tree, largest)}
        changed = find_largest_changes(release, certificate, context)
        if changed is not None:
            metadata["largest_changes"] = label_changes(release, changed.head(_SHOWN_ROWS))
        return metadata

    def list_notes(self, release: Release, certificate: Certificate) -> Sequence[str]:
        """Return further paragraphs of the codebook that users of the files must read."""
        note = describe_estimation(certificate)
        notes = list_flow_notes(release, certificate)
        return [note, *notes] if note else notes

    def list_measurements(self, release: Release) -> list[tuple[Step, NoisyVector]]:
        """Return each charged step of a release with its noisy values, top level first."""
        measured: list[tuple[Step, NoisyVector]] = [(level.step, level.noisy) for level in release.measured]
        step = release.plan.uncounted_step
        if step is not None:
            measured.append((step, NoisyVector.from_arrays([np.array([release.uncounted])])))
        return measured

    def recompute_release(
        self, release: Release, certificate: Certificate
    ) -> tuple[Release, Mapping[str, Examination]]:
        """Return the release with leaves estimated again from the measurements, and the examinations to make, by name.

        The examination ``flows`` compares the leaves with the published ones, ``segments`` compares their trips by
        category if there are breakdowns, and ``invariants`` checks guaranteed properties.
        """
        levels, segments = _estimate_again(release, certificate["contents"]["trips"])
        recomputed = replace(release, leaves=levels[-1], segments=segments)

        def check_invariants() -> Iterator[str]:
            """Yield a message for each guarantee of the published flows that fails."""
            yield from self.check_invariants(release)
            for above, below in pairwise([*levels[:-1], release.leaves]):
                if not release.plan.tree.has_consistent_sums(above, below):
                    yield f"level {below.level} does not sum to the level above"

        def compare_leaves() -> Iterator[str]:
            """Yield a message for each column in which the published leaves differ from the estimated ones."""
            for name in ("origin", "destination", "trips"):
                if not np.array_equal(getattr(release.leaves, name), getattr(recomputed.leaves, name)):
                    yield f"the {name} column differs from the result of the measurements"

        def compare_segments() -> Iterator[str]:
            """Yield a message for each breakdown whose published flows differ from the estimated ones."""
            for name, trips in segments.items():
                if not np.array_equal(release.segments[name], trips):
                    yield f"the flows by {name} differ from the result of the measurements"

        examinations: dict[str, Examination] = {"flows": compare_leaves, "invariants": check_invariants}
        if segments:
            examinations["segments"] = compare_segments
        return recomputed, examinations

    def check_invariants(self, release: Release) -> Iterator[str]:
        """Yield a message if a leaf has fewer than 1 trip, and for each breakdown of which a guarantee fails.

        Flows sum to known totals that are exact. The trips of a leaf in a category are at least 0, and those in all
        categories of a breakdown sum to the trips of the leaf. All published numbers are sums over leaves, so
        categories sum to totals at every pair of levels.
        """
        if np.any(release.leaves.trips < 1):
            yield "a flow is below 1"
        for totals in release.plan.known:
            zone = (release.leaves.origin, release.leaves.destination)[totals.number]
            trips = np.bincount(zone, release.leaves.trips, len(totals.trips))
            if totals.is_exact and not np.array_equal(trips, totals.trips):
                yield f"the flows do not sum to the exact known totals of the {totals.side}s"
        for name, trips in release.segments.items():
            if np.any(trips < 0):
                yield f"a flow by {name} is below 0"
            if not np.array_equal(trips.sum(axis=1), release.leaves.trips):
                yield f"the flows by {name} do not sum to the flows"

    def make_row(self, release: Release) -> dict[str, object]:
        """Return the values of the columns that only the database table ``releases`` has, by column."""
        tree = release.plan.tree
        return {
            "rho": round_up_to_float(release.spent.rho),
            "delta": round_up_to_float(release.spent.delta),
            "trips": int(release.leaves.trips.sum()),
            "origin_geography": tree.origin.digest,
            "destination_geography": tree.destination.digest,
        }

    def list_geographies(self, release: Release) -> list[Geography]:
        """Return the geographies of the origins and of the destinations."""
        return [release.plan.tree.origin, release.plan.tree.destination]

    def make_tables(self, release: Release, certificate: Certificate) -> dict[str, Rows]:
        """Return the tables that the database stores of a release, by name.

        Tables of intervals are left out if the release has none, and tables by category if it has no breakdowns.
        Intervals are stored of the pairs of levels with at most ``MAX_STORED_CELLS`` public pairs of areas.
        """
        tables, intervals = FlowTables.from_release(release, certificate), has_intervals(certificate)
        stored: dict[str, Rows] = {
            "flows": make_flows_table(release),
            "measurements": make_measurement_reader(release, by_segment=False),
        }
        if release.plan.known:
            stored["known_totals"] = make_known_totals_table(release)
        if intervals:
            schema = pa.schema([field for field in FLOWS_SCHEMA if field.name not in (DISTANCE.name, RELIABILITY.name)])
            stored["flow_intervals"] = _select_small_pairs(tables.pairs, schema)
        if tables.breakdowns:
            schema = pa.schema(map(SEGMENTS_SCHEMA.field, ("breakdown", "origin", "destination", "category", "trips")))
            leaves = [pairs[-1].make_table(schema) for pairs in tables.segments.values()]
            stored["segment_flows"] = pa.concat_tables(leaves).filter(pc.field("trips") != 0)
            stored["segment_measurements"] = make_measurement_reader(release, by_segment=True)
            if intervals:
                stored["segment_intervals"] = _select_small_pairs(chain(*tables.segments.values()), SEGMENTS_SCHEMA)
        return stored

    def derive_tables(self, release: Release, certificate: Certificate) -> dict[str, Rows]:
        """Return the tables that follow from others or from the plan alone, by name.

        They are the expected errors and, if the bundle has them, the indicators. The rows of these are those of the
        bundle, and are computed when they are read. Columns that the bundle lacks are left out.
        """
        tables = FlowTables.from_release(release, certificate)
        stored: dict[str, Rows] = {
            "expected_error": _make_expected_errors_table(release, [""]).drop_columns("breakdown")
        }
        if tables.has_indicators:
            schema = make_table_schema(tables.make_table_definition("indicators"))
            stored["indicators"] = pa.RecordBatchReader.from_batches(schema, _iterate_indicator_batches(tables, schema))
        if tables.breakdowns:
            stored["segment_expected_error"] = _make_expected_errors_table(
                release, [breakdown.name for breakdown in tables.breakdowns]
            )
        return stored


FLOWS = FlowKind()


def _estimate_again(release: Release, trips: int) -> tuple[list[Nodes], dict[str, NDArray[np.int64]]]:
    """Return the nodes of each level, top first, and the trips of leaves by category, estimated from the measurements.

    ``trips`` is the published number of trips. Only a mechanism that refines has trips by category.
    """
    plan = release.plan
    nodes = make_published_root(plan, trips)
    if plan.mechanism.refines:
        return refine(plan, nodes, release.measured)
    levels = [] if nodes is None else [nodes]
    for measurement in release.measured:
        nodes = estimate(plan, measurement.step, nodes, measurement.noisy)
        levels.append(nodes)
    return levels, {}


_STATED_FACTS = ("breakdown", "area_totals", "sensitivity", "scale")
"""Facts of a step's noise that the certificate states of the steps that have them."""


def _make_step_facts(plan: ReleasePlan, measurement: Measurement) -> dict[str, object]:
    """Return the facts of the certificate on a step: a level, a level by categories of a breakdown, or area totals."""
    step, (origin_level, destination_level) = measurement.step, plan.level_names(measurement.step)
    return {
        "level": step.level,
        **{name: fact for name, fact in step.noise_facts.items() if name in _STATED_FACTS},
        "origin_level": origin_level,
        "destination_level": destination_level,
        "sensitivity_squared": step.sensitivity_squared,
        **({"epsilon_exact": str(step.charge.epsilon)} if step.charge.epsilon else {}),
        "variance": round_up_to_float(step.variance),
        "variance_exact": str(step.variance),
        "rho": round_up_to_float(step.rho),
        "rho_exact": str(step.rho),
        "public_cells": plan.count_public_cells(step),
        "measured_cells": len(measurement.noisy),
    }


def _has_intervals(release: Release) -> bool:
    """Return whether the mechanism of a release has intervals and no level has too many measured cells for them."""
    with suppress(OdError):
        refuse_without_intervals(release.plan, max(len(measurement.noisy) for measurement in release.measured))
        return True
    return False


def _select_small_pairs(pairs: Iterable[LevelPair], schema: pa.Schema) -> pa.RecordBatchReader:
    """Return the flows at the pairs of levels with at most ``MAX_STORED_CELLS`` cells; they are computed when read."""
    tables = (pair.make_table(schema) for pair in pairs if pair.cells <= MAX_STORED_CELLS)
    return pa.RecordBatchReader.from_batches(schema, (batch for table in tables for batch in table.to_batches()))


def _iterate_indicator_batches(tables: FlowTables, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the indicators, which are computed when the first batch is read."""
    yield from tables.indicators.cast(schema).to_batches()


def _make_expected_errors_table(release: Release, breakdowns: Iterable[str]) -> pa.Table:
    """Return a table with the expected error of each level, in trips, by breakdown; see :func:`list_level_errors`."""
    rows = [{"breakdown": name, **row} for name in breakdowns for row in list_level_errors(release, name)]
    columns = ["breakdown", "level", "origin_level", "destination_level", "error"]
    return pa.Table.from_pylist(rows).select(columns).rename_columns([*columns[:-1], "root_mean_square_error"])
