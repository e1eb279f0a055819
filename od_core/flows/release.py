"""Release flows: measure and estimate a planned release. The result has flows, measurements and the spent budget."""

from __future__ import annotations

import secrets
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TypedDict, Unpack

import numpy as np
import pandas as pd
import pyarrow as pa

from od_core.errors import OdError
from od_core.files.data_frame import TableOrFile
from od_core.flows.arrays import Integers
from od_core.flows.estimation.fitted_tree import FittedTree
from od_core.flows.estimation.intervals import SegmentFit, find_contradicted_totals, refuse_without_intervals
from od_core.flows.estimation.least_squares import FittedLevel, build_measured_levels, fit_least_squares
from od_core.flows.estimation.levels import (
    ASSISTING_BYTES,
    Measurement,
    combine_totals,
    list_leaf_parents,
    list_side_totals,
    make_published_root,
    make_released_leaves,
    select_area_totals,
)
from od_core.flows.estimation.refinement import refine, refuse_large_levels
from od_core.flows.estimation.replicates import Replicates
from od_core.flows.estimation.rule_choice import Choice, choose_rule_with_evidence, read_earlier_evidence
from od_core.flows.found_areas import FoundTrips, find_areas, measure_found_levels
from od_core.flows.known_totals import KnownTotals
from od_core.flows.measuring import measure_level, measure_levels, measure_present
from od_core.flows.mechanisms import Mechanism
from od_core.flows.plan import ReleasePlan, plan_release
from od_core.flows.released_flows import ReleasedFlows
from od_core.flows.step import Segments, SegmentStep, ThresholdStep
from od_core.geography.flow_tree import Nodes, TreeOrder
from od_core.geography.found_levels import Found
from od_core.geography.geography import Geography, find_finest_level
from od_core.geography.possible_pairs import PossiblePairs
from od_core.ledger.ledger import Ledger
from od_core.ledger.measurements import Measurements, draw_release, prepare_charge
from od_core.noise.backends import (
    NoiseSource,
    find_backend_name,
    refuse_too_wide,
    require_laplace_source,
    resolve_noise_source,
)
from od_core.parallel import read_memory_limit
from od_core.privacy.accounting import Number, round_up_to_float
from od_core.privacy.budget import Budget
from od_core.privacy.neighbours import FAULT_THRESHOLD, Acceptance, parse_fault_threshold
from od_core.privacy.plan import PlannedRelease, Uncounted
from od_core.privacy.unit import PrivacyUnit
from od_core.publication.columns import NOISY_MEASUREMENTS, SEGMENT_MEASUREMENTS
from od_core.publication.number_formats import Scale
from od_core.publication.tables import make_table_schema
from od_core.publication.templates import render_template
from od_core.records.counting import count_trips
from od_core.records.counts import TripCounts
from od_core.records.segments import find_breakdown

_MAX_SHOWN_AREAS = 8
"""Largest number of areas of a side that a notebook shows."""

_MAX_LEVEL_AREAS = 8 * _MAX_SHOWN_AREAS
"""Largest number of areas of a level of which a notebook shows the busiest; those of more say little of the whole."""

_MAX_FLOWS_WITH_INTERVALS = 1_000_000
"""Largest number of flows between zones for which a notebook shows intervals, since these take time to compute."""

MEASUREMENT_SCHEMA, SEGMENT_MEASUREMENT_SCHEMA = map(make_table_schema, (NOISY_MEASUREMENTS, SEGMENT_MEASUREMENTS))
"""Columns of published measurements, one row per cell, and of those by category."""


def iterate_measured_cells(plan: ReleasePlan, measurement: Measurement) -> Iterator[pa.RecordBatch]:
    """Yield the noisy counts of a measurement in tree order, one row per cell, as batches with ``MEASUREMENT_SCHEMA``.

    A measurement by category has one row per cell and category, with ``SEGMENT_MEASUREMENT_SCHEMA``.
    """
    step, schema, categories = measurement.step, MEASUREMENT_SCHEMA, [""]
    if isinstance(step, SegmentStep):
        schema, categories = (
            SEGMENT_MEASUREMENT_SCHEMA,
            list(find_breakdown(plan.breakdowns, step.breakdown).categories),
        )
    origin_level, destination_level = plan.level_pair(step)
    origin_codes = plan.tree.origin.code_arrays[origin_level]
    destination_codes = plan.tree.destination.code_arrays[destination_level]
    names = pa.array(categories, pa.large_string())
    for cells, noisy in measurement.iterate_pieces(plan, len(names)):
        columns = {
            "level": pa.array(np.full(len(noisy), step.level, dtype=np.int64)),
            "origin": origin_codes.take(pa.array(np.repeat(cells.origin, len(names)))),
            "destination": destination_codes.take(pa.array(np.repeat(cells.destination, len(names)))),
            "noisy": pa.array(noisy),
            "variance": pa.array(np.full(len(noisy), round_up_to_float(step.variance))),
        }
        if isinstance(step, SegmentStep):
            columns["breakdown"] = pa.repeat(pa.scalar(step.breakdown, pa.large_string()), len(noisy))
            columns["category"] = names.take(pa.array(np.arange(len(noisy)) % len(names)))
        yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


@dataclass(frozen=True, eq=False, repr=False)
class Release(ReleasedFlows, PlannedRelease):
    """A released origin-destination table. Flows at every pair of levels are sums of the same leaf flows.

    Attributes:
        plan, spent, noise: see :class:`od_core.privacy.plan.PlannedRelease`.
        leaves, segments, selected: see :class:`od_core.flows.released_flows.ReleasedFlows`.
        measured: the noisy measurements that the leaves were estimated from, in the order of the plan's steps.

    Examples:
        >>> release.levels
        [('all', 'all'), ('all', 'region'), ('region', 'region'), ('region', 'zone'), ('zone', 'zone')]
        >>> release.flows_at("region", "region", interval=True).columns.tolist()
        ['origin', 'destination', 'trips', 'lower', 'upper']
    """

    plan: ReleasePlan
    leaves: Nodes
    measured: tuple[Measurement, ...]
    segments: Mapping[str, Integers] = field(default_factory=dict)
    selected: bool = True

    def _render_picture(self) -> str:
        """Return the heat map of :func:`_render_heat_map` for a notebook."""
        return _render_heat_map(self)

    def _describe_contents(self) -> tuple[str, str, str]:
        """Return three texts for a notebook: what the release is, its levels, and the calls that read it."""
        tree = self.plan.tree
        pair = ", ".join(f'"{level}"' for level in tree.level_names[-1])
        interval = "" if self.plan.has_threshold else ", interval=True"
        sums = "" if self.plan.has_threshold else " .trips_between(...);"
        origins, destinations = (", ".join(geography.levels) for geography in (tree.origin, tree.destination))
        if tree.has_one_side:
            contents = f"counts by {self.plan.mechanism.name}: {self.leaves.trips.sum():,} records"
            reading_calls = f'.counts; .counts_at("{tree.origin.levels[-1]}"{interval}); .measurements'
            return f"{contents}, {len(self.leaves.trips):,} areas with records", origins, reading_calls
        levels = origins if origins == destinations else f"{origins} (origins); {destinations} (destinations)"
        return (
            f"flows by {self.plan.mechanism.name}: {self.leaves.trips.sum():,} trips,"
            f" {len(self.leaves.trips):,} pairs of zones with trips",
            levels,
            f".flows; .flows_at({pair}{interval});{sums} .measurements",
        )

    @property
    def parts(self) -> tuple[Release, ...]:
        """This release alone, which has its own measurements."""
        return (self,)

    @cached_property
    def choice(self) -> Choice | None:
        """The rule of estimation that held-out noise chose, computed again from the measurements.

        None if the mechanism does not choose a rule. Raises OdError if a noisy value is too large.
        """
        if self.plan.mechanism.estimator.key != "auto":
            return None
        levels = build_measured_levels(self.plan, self.exact_trips, combine_totals(self.plan, self.measured))
        refuse_large_levels(levels)
        return choose_rule_with_evidence(self.plan, levels, self.measured)

    @cached_property
    def fitted(self) -> FittedTree:
        """The flow tree with the least-squares estimates of all nodes. Raises OdError as :attr:`intervals` does."""
        totals = combine_totals(self.plan, self.measured)
        refuse_without_intervals(self.plan, max(len(measurement.noisy) for measurement in totals))
        levels = fit_least_squares(self.plan, int(self.leaves.trips.sum()), totals)
        return FittedTree(self.tree, levels, area_totals=list_side_totals(self.plan, select_area_totals(self.measured)))

    @cached_property
    def contradicted_totals(self) -> pd.DataFrame:
        """Known totals that differ from the estimate by the flow tree by more than four standard deviations.

        The columns are side, area (code), known and estimate (in trips), and deviations, the known number minus the
        estimate in standard deviations of this difference. Raises OdError as :attr:`intervals` does.
        """
        rows = []
        for totals in self.plan.known:
            geography = (self.tree.origin, self.tree.destination)[totals.number]
            for zone, estimate, deviations in zip(*find_contradicted_totals(self.fitted, totals), strict=True):
                known = float(totals.trips[zone])
                rows.append((totals.side, geography.zones[zone], known, float(estimate), float(deviations)))
        return pd.DataFrame(rows, columns=["side", "area", "known", "estimate", "deviations"])

    def fit_segment(self, segment: str) -> SegmentFit:
        """Return the least-squares estimates in each category of a breakdown, which are computed once.

        Raises OdError as :meth:`segment_intervals` does.
        """
        name = find_breakdown(self.breakdowns, segment).name
        return self.compute_once(("fit_segment", name), lambda: SegmentFit(self.plan, self.fitted, self.measured, name))

    def measurements_at(self, level: int) -> pd.DataFrame:
        """Return the noisy counts of the totals of a level of the flow tree, or of area totals, by number of the level.

        There is one row per cell, with the columns level, origin, destination (codes), noisy and variance (of the
        noise). Raises OdError if the level is not measured.
        """
        step = self.plan.step(level)
        measurement = next(measurement for measurement in self.measured if measurement.step == step)
        cells = pa.Table.from_batches(iterate_measured_cells(self.plan, measurement), MEASUREMENT_SCHEMA)
        table: pd.DataFrame = cells.to_pandas()
        return table

    def fit_levels(self) -> list[FittedLevel]:
        """Return all levels of the flow tree with their estimates by least squares, top level first.

        The mechanism must measure every level. Raises OdError if a level exceeds memory or a noisy value is too large.
        """
        totals = combine_totals(self.plan, self.measured)
        needed = ASSISTING_BYTES * max(len(measurement.noisy) for measurement in totals)
        if needed > read_memory_limit():
            raise OdError(
                "OD-LEVEL-MEMORY",
                f"whole levels need about {needed / 1e9:,.0f} GB of memory; this process may use"
                f" {read_memory_limit() / 1e9:,.0f} GB",
                next_step="use a larger machine",
            )
        levels = fit_least_squares(self.plan, self.exact_trips, totals)
        refuse_large_levels(levels)
        return levels

    def replicates(self, number: int = 100) -> Iterator[pd.DataFrame]:
        """Yield tables whose spread around the least-squares estimate is the error of this estimate.

        They are used as the replicate weights of survey statistics; see :mod:`od_core.flows.estimation.replicates`. The
        standard deviation over them of a linear statistic, or of a smooth function of large sums, is its standard
        error. They say nothing about the number of pairs with trips, entropy, maxima or the ranks of small flows. They
        follow from published values alone, are the same on every call and every machine, and cost no budget.

        Yields:
            Tables with the columns of :attr:`flows` and a row for each measured pair of zones. Trips may be negative.

        Raises:
            OdError: If the number is not positive, or as for :attr:`replicated`.
        """
        if number < 1:
            raise OdError("OD-REPLICATES-NUMBER", f"{number} replicates cannot be made", next_step="ask for at least 1")
        replicated = self.replicated
        sides = zip((self.tree.origin, self.tree.destination), replicated.ends, strict=True)
        origin, destination = (geography.codes_of(geography.depth, zones) for geography, zones in sides)
        for trips in replicated.tables(number):
            yield pd.DataFrame({"origin": origin, "destination": destination, "trips": trips})

    @cached_property
    def replicated(self) -> Replicates:
        """The replicates as arrays. Raises OdError as :attr:`intervals` does."""
        return Replicates(self.fitted, has_laplace_noise=self.has_laplace_noise)

    @property
    def measurements(self) -> pd.DataFrame:
        """Noisy counts of all measured levels, without those by category; see :meth:`measurements_at`."""
        levels = [measurement.step.level for measurement in self.measured if not measurement.step.by_segment]
        return pd.concat([self.measurements_at(level) for level in levels], ignore_index=True)


def _render_heat_map(release: Release) -> str:
    """Return a heat map of the flows between the busiest areas of a coarse level, as HTML.

    It is empty if every level has so many areas that few of them can be shown.
    """
    origin, destination = release.tree.origin, release.tree.destination
    origin_level = find_finest_level(origin, _MAX_SHOWN_AREAS)
    destination_level = find_finest_level(destination, _MAX_SHOWN_AREAS)
    if max(origin.size(origin_level), destination.size(destination_level)) > _MAX_LEVEL_AREAS:
        return ""
    names = [origin.level_names[origin_level], destination.level_names[destination_level]]
    has_intervals = not release.plan.has_threshold and len(release.leaves.trips) <= _MAX_FLOWS_WITH_INTERVALS
    flows = release.flows_at(*names, interval=has_intervals).set_index(["origin", "destination"])
    # Trips of each pair and, if there are intervals, their ends.
    cells: dict[Hashable, list[int]] = dict(zip(flows.index, flows.to_numpy(np.int64).tolist(), strict=True))
    busiest_origins, busiest_destinations = (
        flows["trips"].groupby(level=side).sum().nlargest(_MAX_SHOWN_AREAS).index for side in (0, 1)
    )
    origin_labels = dict(zip(origin.codes[origin_level], origin.labels[origin_level], strict=True))
    destination_labels = dict(
        zip(destination.codes[destination_level], destination.labels[destination_level], strict=True)
    )

    def list_row(code: Hashable) -> list[list[int]]:
        """Return the cells of the row of an origin."""
        return [cells.get((code, other), [0]) for other in busiest_destinations]

    rows = [(origin_labels[code], list_row(code)) for code in busiest_origins]
    columns = [destination_labels[code] for code in busiest_destinations]
    largest = max((trips for _, cells_of_row in rows for trips, *_ in cells_of_row), default=0)
    scale = Scale.from_maximum(largest)
    return render_template("release_map.html", levels=names, columns=columns, rows=rows, scale=scale)


class PlanOptions(TypedDict, total=False):
    """Options of :func:`od_core.flows.plan.plan_release`, for a release whose plan is not made before it."""

    unit: PrivacyUnit
    budget: Budget
    mechanism: str | Mechanism
    tree: TreeOrder
    destination_geography: Geography | None
    segments: Mapping[str, Sequence[str]] | Segments | None
    segment_unknown: Mapping[str, str] | None
    segment_share: Number | None
    uncounted: Uncounted | None
    area_totals: Number | None
    possible: pd.DataFrame | PossiblePairs | None
    known: KnownTotals | Sequence[KnownTotals] | None
    found: Found | None


class ReleaseOptions(PlanOptions, total=False):
    """Options of :func:`release_flows`."""

    ledger: Ledger | None
    release_id: str | None
    noise: str | NoiseSource
    fault_threshold: Number | None
    one_row_a_trip: bool
    columns: Mapping[str, str] | None
    previous: Release | None


def release_flows(
    flows: TableOrFile,
    geography: Geography | ReleasePlan,
    *,
    ledger: Ledger | None = None,
    release_id: str | None = None,
    noise: str | NoiseSource = "opendp",
    fault_threshold: Number | None = None,
    one_row_a_trip: bool = False,
    columns: Mapping[str, str] | None = None,
    previous: Release | None = None,
    **options: Unpack[PlanOptions],
) -> Release:
    """Release the flows of trips with a differential privacy guarantee.

    Give the plan that you looked at, or a geography with the unit, the budget and further options of a plan.

    Without a ledger, the guarantee covers this one call. A second call on the same trips draws new noise, and the two
    results together reveal more than either: averaging them removes noise. With a ledger, the release is charged to the
    privacy domain of its series, and a repeated call reads the stored measurements back.

    Args:
        flows: confidential table of pandas, Arrow, Polars or DuckDB, or the path of a Parquet or CSV file (also
            .csv.gz), with text columns ``origin`` and ``destination``. It has one row per trip, or a column ``trips``
            with the number of trips of each row. For a user unit, it has one row per trip and the unit's column of user
            ids; at most m trips of each user are counted, where m is the unit's contribution bound. If the unit bounds
            weights, it has one row per record and a column ``weight``. With segments, it has a text column with the
            name of each breakdown.
        geography: the plan; or public geography of the origins, and of the destinations unless
            ``destination_geography`` is given.
        ledger: ledger that is charged. It must declare a privacy domain with the name of the series. The measurements
            are stored in the folder ``confidential`` beside the ledger.
        release_id: with a ledger, the key of the release, such as ``us_flights/2001-06/r1``.
        noise: name of a noise backend, or a noise source. With a source that is not a backend of this library, the
            release has no guarantee and cannot be published.
        fault_threshold: with a geography, the largest accepted share of faulty trips, by default 1/1000. Up to this
            share, faulty trips are dropped. Above it, the input is refused. A trip is faulty if it has an unlisted zone
            and the geography has no unknown area, or if it lacks a valid user id or a weight that the unit needs. The
            total number of trips is an invariant, which is published exactly, only if the unit is a single unweighted
            trip with bounded neighbours and no trip can be dropped: both geographies have an unknown area and every
            breakdown an unknown category, or the threshold is 0.
        one_row_a_trip: whether each row is one trip. It must be stated if the table has columns that are not read, and
            no column of trips or weights; see :func:`od_core.records.counting.count_trips`.
        columns: your names of the columns in ``flows``, if they differ, such as ``{"origin": "from_zone"}``. The keys
            are ``origin``, ``destination``, ``trips``, ``weight`` and the names of the breakdowns.
        previous: the release of the period before, if the mechanism chooses its rule (``estimate="auto"``). If both
            have the same plan, its rule stays unless the evidence of both is clearly against it.
        options: ``unit`` and ``budget``, which a geography needs, and ``mechanism``, ``tree``,
            ``destination_geography``, ``segments``, ``segment_unknown``, ``segment_share``, ``uncounted`` (with a
            ledger), ``area_totals``, ``possible``, ``known`` and ``found``: see
            :func:`od_core.flows.plan.plan_release`.

    Raises:
        OdError: If the plan, the trips or the noise source is not valid, or if the ledger refuses the release. No noise
            is drawn before the plan and the trips have been checked.

    Examples:
        >>> release_flows(flows, plan).flows_at("region", "region").columns.tolist()
        ['origin', 'destination', 'trips']
        >>> release_flows(flows, geography, unit=unit, budget=budget).plan.digest == plan.digest
        True
    """
    plan = _make_plan(geography, fault_threshold, options)
    if previous is not None and previous.choice is not None:
        facts = {"release": None, "plan": previous.plan.stored_facts, **previous.choice.facts()}
        plan = replace(plan, earlier=read_earlier_evidence(plan, facts))
    source = resolve_noise_source(noise)
    refuse_too_wide(source, (step.variance_bound for step in plan.charged_steps))
    if plan.has_threshold:
        require_laplace_source(source)
    with prepare_charge(plan, ledger, release_id, source) as charged:
        key = secrets.token_bytes(32) if charged is None else charged.confidential.read_or_make_key()
        period = "" if charged is None else charged.key.period
        counters = None if charged is None else charged.make_counters(plan.unit)
        tree = find_areas(flows, plan.tree, columns)
        trips = count_trips(
            flows,
            tree,
            unit=plan.unit,
            key=key,
            period=period,
            fault_threshold=plan.acceptance.fault_threshold,
            one_row_a_trip=one_row_a_trip,
            columns=columns,
            breakdowns=plan.breakdowns,
            counters=counters,
        )
        counted = trips if tree.found is None else FoundTrips(tree, trips)
        return draw_release(run_plan, charged, plan, counted, source, counters)


def _make_plan(geography: Geography | ReleasePlan, fault_threshold: Number | None, options: PlanOptions) -> ReleasePlan:
    """Return the plan that is given, or that of a geography with options.

    Raises OdError if a plan has options beside it, or what only a project applies: bands or rules that choose records.
    """
    if isinstance(geography, Geography):
        threshold = FAULT_THRESHOLD if fault_threshold is None else parse_fault_threshold(fault_threshold)
        return plan_release(geography, acceptance=Acceptance(threshold), **options)
    given = [*options, *([] if fault_threshold is None else ["fault_threshold"])]
    if given:
        message = f"a plan has all its options, so none is given beside it: {', '.join(given)}"
        raise OdError("OD-PLAN-GIVEN", message, next_step="give them to plan_release")
    has_rules_of_projects = geography.acceptance != Acceptance(geography.acceptance.fault_threshold)
    if geography.bands is not None or has_rules_of_projects:
        message = "the plan has bands, or categories of records, or refuses inputs without records: a project does that"
        raise OdError("OD-PLAN-GIVEN", message, next_step="leave these options of plan_release out")
    return geography


def release_counts(table: TableOrFile, hierarchy: Geography, **options: Unpack[ReleaseOptions]) -> Release:
    """Release the counts of a table by one hierarchy with a differential privacy guarantee.

    Examples are people by region, province and municipality, and patients by chapter, block and diagnosis. The table is
    one of flows to a single area, the whole space, and the flow tree is the hierarchy itself [boninsegna2025inftda,
    section 2.2]. A record of the table is a trip in the words of other functions.

    Args:
        table: confidential, as in :func:`release_flows`, but with the single text column ``area``, a code of the last
            level, and either a column ``count`` with the number of records of each row, or one row a record.
        hierarchy: public, coarse to fine; see :meth:`Geography.from_frame` and :meth:`Geography.from_parents`.
        options: ``unit``, ``budget`` and the others of :func:`release_flows`, but for ``tree``,
            ``destination_geography`` and ``area_totals``. The keys of ``columns`` are ``area``, ``count``, ``weight``
            and the names of the breakdowns.

    Returns:
        The release. Its counts are :attr:`Release.counts` and :meth:`Release.counts_at`. ``destination`` is ``all``
        wherever a table of flows has that column.

    Raises:
        OdError: as :func:`release_flows` does.

    Examples:
        >>> people = pd.DataFrame({"area": ["N1", "N2", "S1"], "count": [900, 150, 2000]})
        >>> release_counts(people, geography, unit=PrivacyUnit("trip"), budget=budget).flows["origin"].tolist()
        ['N1', 'N2', 'S1']
    """
    options["destination_geography"] = Geography.whole()
    return release_flows(table, hierarchy, **options)


def run_plan(
    plan: ReleasePlan, counted: TripCounts | FoundTrips, noise: NoiseSource, measurements: Measurements
) -> Release:
    """Measure and estimate the levels of a plan, refine the estimates if the mechanism refines, and return the release.

    Args:
        plan: the plan. With found levels, the tree of the release has the published areas in place of those of the
            plan.
        counted: the confidential counts of leaf pairs; with found levels, also the confidential tree.
        noise: source of the noise.
        measurements: the stored measurements; a step that has one is not measured again.

    Raises:
        OdError: if the noise source returns invalid values, a level does not fit into memory, or a noisy value is too
            large.
    """
    if isinstance(counted, FoundTrips):
        plan, trips = replace(plan, tree=counted.tree), counted.counts
    else:
        trips = counted
    first = plan.steps[0]
    if isinstance(first, ThresholdStep) and plan.tree.found is None:
        noisy = measurements.draw_once(first, partial(measure_present, first, trips, noise))
        leaves, measurement = make_released_leaves(plan, first, noisy)
        return Release(plan, plan.spent, find_backend_name(noise), leaves, (measurement,))
    measures_leaves_alone = plan.mechanism.measures == "all_leaves"
    parents = list_leaf_parents(plan) if measures_leaves_alone else make_published_root(plan, trips.total)
    public_steps = [step for step in plan.steps if not isinstance(step, ThresholdStep)]
    measured, nodes = measure_levels(plan, public_steps, parents, trips, noise, measurements)
    if plan.tree.found is not None and nodes is not None:
        plan, found_measurements, nodes = measure_found_levels(plan, nodes, trips, noise, measurements)
        measured += found_measurements
    for step in plan.area_total_steps:
        measured += measure_level(plan, [step], None, trips, noise, measurements)
    segments: dict[str, Integers] = {}
    if nodes is None:  # the mechanism refines, so measure_levels leaves the estimate of the leaves to refine
        (*_, nodes), segments = refine(plan, parents, measured)
    return Release(plan, plan.spent, find_backend_name(noise), nodes, tuple(measured), segments)
