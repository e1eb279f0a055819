"""Read a release of flows back from its bundle or from the release database."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.estimation.fitted_tree import find_pairs
from od_core.flows.estimation.levels import Measurement
from od_core.flows.plan import ReleasePlan
from od_core.flows.release import Release, iterate_measured_cells
from od_core.flows.step import AreaTotalStep, SegmentStep, TotalStep
from od_core.geography.codes import find_positions
from od_core.geography.flow_tree import FlowTree, Nodes, Pairs
from od_core.geography.possible_pairs import PossiblePairs
from od_core.ledger.measurements import NoisyVector
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.bundle_files import CERTIFICATE, PARQUET, locate_table
from od_core.publication.certificate import Certificate, is_selected
from od_core.publication.database import CLOSED_SETTINGS, read_release_keys, refuse_newer_database, refuse_newer_duckdb
from od_core.publication.read_back import (
    make_absent_release_error,
    make_changed_data_error,
    make_incomplete_bundle_error,
    read_bundle_certificate,
    read_published_areas,
    read_spent_budget,
    refuse_incomplete,
    refuse_other_plan,
)
from od_core.publication.tables import build_published_geography
from od_core.records.segments import find_breakdown

Tables = Mapping[str, pd.DataFrame]
"""The published tables of a release, by the names that the database has for them, and ``areas``.

``flows`` and, with breakdowns, ``segment_flows`` are those between zones, without those of 0 trips.
"""


_SIDES = ("origin", "destination")


def _read_segments(plan: ReleasePlan, leaves: Nodes, tables: Tables) -> dict[str, NDArray[np.int64]]:
    """Return the trips of each leaf in each category, by breakdown; shape (leaves, categories).

    Raises OdError if a row has an unknown leaf or category, or the categories of a leaf do not sum to its trips.
    """
    trips_by_breakdown = {}
    for breakdown in plan.breakdowns:
        rows = tables["segment_flows"][tables["segment_flows"]["breakdown"] == breakdown.name]
        pairs = _resolve_pairs(plan.tree, plan.tree.depth, rows)
        zones = len(plan.tree.destination.zones)
        leaf_of_row = find_pairs(leaves.origin, leaves.destination, pairs.origin, pairs.destination, zones)
        category_of_row = find_positions(rows["category"], breakdown.categories)
        if np.any(category_of_row < 0) or np.any(leaf_of_row < 0):
            raise make_changed_data_error("segments")
        trips = np.zeros((len(leaves), len(breakdown.categories)), dtype=np.int64)
        np.add.at(trips, (leaf_of_row, category_of_row), rows["trips"].to_numpy(dtype=np.int64))
        if np.any(trips.sum(axis=1) != leaves.trips):
            raise make_changed_data_error("segments")
        trips_by_breakdown[breakdown.name] = trips
    return trips_by_breakdown


def _iterate_measurements(plan: ReleasePlan, tables: Tables, levels: list[dict[str, object]]) -> Iterator[Measurement]:
    """Yield the measurement of each step of a plan; ``levels`` are the facts of the certificate on each step.

    Raises OdError if the tables are not those of the certificate.
    """
    steps = (*plan.steps, *plan.area_total_steps)
    if len(steps) != len(levels):
        raise make_changed_data_error("levels")
    for step, level_facts in zip(steps, levels, strict=True):
        if isinstance(step, SegmentStep):
            rows, pairs = _select_segment_rows(plan, step, tables["segment_measurements"])
        else:
            rows = pairs = tables["measurements"][tables["measurements"]["level"] == step.level]
        noisy = NoisyVector.from_arrays([rows["noisy"].to_numpy(dtype=np.int64)])
        divided = None if isinstance(step, AreaTotalStep) else _find_divided_nodes(plan, step, pairs)
        measurement = Measurement(step, divided, noisy)
        if len(rows) != level_facts["measured_cells"] or measurement.count_cells(plan) != len(pairs):
            raise make_changed_data_error("measurements")
        if isinstance(step, AreaTotalStep):
            _refuse_other_areas(plan, measurement, rows)
        yield measurement


def _refuse_other_areas(plan: ReleasePlan, measurement: Measurement, rows: pd.DataFrame) -> None:
    """Raise OdError unless the rows of a measurement of area totals name the areas that a plan measures, in order."""
    (expected,) = iterate_measured_cells(plan, measurement)
    for side in _SIDES:
        if rows[side].tolist() != expected[side].to_pylist():
            raise make_changed_data_error("measurements")


def _find_divided_nodes(plan: ReleasePlan, step: TotalStep, cells: pd.DataFrame) -> Pairs | None:
    """Return the nodes whose children a step measured, given the measured ``cells`` (codes, in tree order).

    For a step with a threshold, return the measured pairs instead. Return None if there is no level above.
    """
    if step.level == 0:
        return None
    measured = _resolve_pairs(plan.tree, step.level, cells)
    if plan.has_threshold:
        return measured
    above = plan.tree.depth - 1 if plan.mechanism.measures == "all_leaves" else plan.find_level_above(step)
    return None if above is None else plan.tree.find_ancestors(measured, above)


def _select_segment_rows(
    plan: ReleasePlan, step: SegmentStep, table: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of ``table`` that a step measured, and of these, the first row of each pair of areas.

    Raises OdError unless the rows of each pair are consecutive, one for each category in the order of the breakdown.
    """
    categories = find_breakdown(plan.breakdowns, step.breakdown).categories
    rows = table[(table["level"] == step.level) & (table["breakdown"] == step.breakdown)]
    first_rows = rows[:: len(categories)]
    expected = {side: np.repeat(first_rows[side].to_numpy(dtype=object), len(categories)) for side in _SIDES}
    expected["category"] = np.tile(np.array(categories, dtype=object), len(first_rows))
    for name, values in expected.items():
        if not np.array_equal(rows[name].to_numpy(dtype=object), values):
            raise make_changed_data_error("measurements")
    return rows, first_rows


def _resolve_pairs(tree: FlowTree, level: int, table: pd.DataFrame) -> Pairs:
    """Return the area numbers of the codes in a table, row by row. Raises OdError if the geography lacks a code."""
    origin_level, destination_level = tree.level_pair(level)
    origin = find_positions(table["origin"], tree.origin.codes[origin_level])
    destination = find_positions(table["destination"], tree.destination.codes[destination_level])
    if np.any(origin < 0) or np.any(destination < 0):
        raise make_changed_data_error("areas")
    return Pairs(level, origin, destination)


@dataclass(frozen=True)
class ReleaseRequest:
    """A request for a published release, by series name, period and revision. None matches any value."""

    release: str | None = None
    period: str | None = None
    revision: int | None = None

    @classmethod
    def parse(cls, release: str | None, period: str | None, revision: int | None) -> ReleaseRequest:
        """Return a request for a release of a series, or for the key that ``release`` states.

        Raises OdError if the key has another form, or another period or revision than those asked for.
        """
        if release is None or "/" not in release:
            return cls(release, period, revision)
        key = ReleaseKey.parse(release)
        if not cls(key.release, period, revision).matches(key):
            other = f"revision {revision}" if period in (None, key.period) else f"a release of {period}"
            raise OdError(
                "OD-RELEASE-PERIOD",
                f"{key} is not {other}",
                next_step="give the key of a release, or a series and a period",
            )
        return cls(key.release, key.period, key.revision)

    def matches(self, key: ReleaseKey) -> bool:
        """Return whether the release with this key matches the request."""
        return (
            self.release in (None, key.release)
            and self.period in (None, key.period)
            and self.revision in (None, key.revision)
        )

    def find_newest(self, keys: list[ReleaseKey]) -> ReleaseKey:
        """Return the newest key that matches. Raises OdError if none matches, or keys of several series match."""
        matching = [key for key in keys if self.matches(key)]
        series = sorted({key.release for key in matching})
        if len(series) > 1:
            raise make_absent_release_error(f"the database has several series; name one of {', '.join(series)}")
        if not matching:
            raise make_absent_release_error(
                f"there is no such release; published releases: {', '.join(map(str, sorted(keys))) or 'none'}"
            )
        return max(matching)


def _list_table_names(certificate: Certificate) -> list[str]:
    """Return the names of the tables that a release has, ``areas`` first.

    Tables by category are only in releases with breakdowns, and known totals only in releases that state some.
    """
    plan = certificate["plan"]
    names = list(PARQUET)
    if "segments" not in plan:
        names = [name for name in names if not name.startswith("segment_")]
    if "known" not in plan:
        names.remove("known_totals")
    return names


def open_flows(place: Path, request: ReleaseRequest | None = None) -> Release:
    """Return a published release of flows, read from a bundle's folder or from a release database (``release.duckdb``).

    ``request`` chooses the release of a database. Raises OdError if there is no bundle or database, if it does not have
    the release, or if its files are damaged or do not match its certificate.
    """
    with refuse_incomplete(place.name):
        if place.is_dir():
            return _build_release(*_read_bundle_tables(place))
        if place.is_file():
            return _build_release(*_read_database_tables(place, request or ReleaseRequest()))
    raise make_absent_release_error(f"{place.name} is not a bundle or database")


def _read_bundle_tables(folder: Path) -> tuple[Certificate, Tables]:
    """Return the certificate and the tables of a bundle's folder. Raises OdError if a file is missing or damaged."""
    if not locate_table(folder, PARQUET["flows"]).exists() and (folder / CERTIFICATE).exists():
        raise make_absent_release_error(
            f"{folder.name} is a bundle without flows: it belongs to another kind of release or is incomplete"
        )
    _refuse_missing(folder, [*(PARQUET[name] for name in ("areas", "flows", "measurements")), CERTIFICATE])
    certificate = read_bundle_certificate(folder)
    names = _list_table_names(certificate)
    leaves = next(level for level in reversed(certificate["levels"]) if "area_totals" not in level)
    _refuse_missing(folder, [PARQUET[name] for name in names])
    at_leaves = [(side, "==", leaves[side]) for side in ("origin_level", "destination_level")]
    columns = {"flows": [*_SIDES, "trips"], "segment_flows": ["breakdown", "category", *_SIDES, "trips"]}
    filters = {name: [*at_leaves, ("trips", "!=", 0)] for name in columns}
    try:
        tables = {"areas": read_published_areas(folder)}
        for name in names[1:]:
            file = locate_table(folder, PARQUET[name])
            tables[name] = pd.read_parquet(file, columns=columns.get(name), filters=filters.get(name))
    except (OSError, ValueError):
        raise make_incomplete_bundle_error(folder, "a table of it cannot be read") from None
    return certificate, tables


def _refuse_missing(folder: Path, names: Sequence[str]) -> None:
    """Raise OdError if a bundle lacks one of some files."""
    for name in names:
        if not locate_table(folder, name).exists():
            raise make_incomplete_bundle_error(folder, f"{name} is missing")


def _read_database_tables(file: Path, request: ReleaseRequest) -> tuple[Certificate, Tables]:
    """Return the certificate and the tables of the newest requested release in a database.

    Raises OdError if the file is not a release database, is open elsewhere, or has no such release of flows.
    """
    try:
        with _open_for_reading(file) as connection:
            refuse_newer_database(connection, file.name)
            key = str(_find_newest_flows(connection, request))
            text = connection.execute("SELECT certificate FROM releases WHERE release = ?", [key]).fetchall()[0][0]
            certificate = json.loads(text)
            tables = {"areas": connection.execute("SELECT * FROM areas ORDER BY geography, level, position").df()}
            for name in _list_table_names(certificate)[1:]:
                query = f"SELECT * EXCLUDE release FROM {name} WHERE release = ? ORDER BY rowid"  # noqa: S608  # names above
                tables[name] = connection.execute(query, [key]).df()
            return certificate, tables
    except duckdb.Error as error:
        refuse_newer_duckdb(error, file.name)
        raise make_absent_release_error(
            f"{file.name} is not a release database, or is open elsewhere for writing"
        ) from None


@contextmanager
def _open_for_reading(file: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database for reading, or a copy of it if the caller's program has it open with other settings."""
    with TemporaryDirectory(prefix="od-release-") as folder:
        try:
            connection = duckdb.connect(str(file), read_only=True, config=CLOSED_SETTINGS)
        except duckdb.ConnectionException:  # DuckDB allows one configuration of a file in a process
            copy = shutil.copy(file, folder)
            log = file.with_name(f"{file.name}.wal")  # rows that were committed, but are not in the file yet
            if log.exists():
                shutil.copy(log, folder)
            connection = duckdb.connect(copy, config=CLOSED_SETTINGS)
        with connection:
            yield connection


def _find_newest_flows(connection: duckdb.DuckDBPyConnection, request: ReleaseRequest) -> ReleaseKey:
    """Return the key of the newest release of flows that matches the request. Raises OdError if none matches."""
    flows = read_release_keys(connection, ("releases",))
    others = [key for key in read_release_keys(connection) if request.matches(key) and key not in flows]
    if others and not any(map(request.matches, flows)):
        raise OdError(
            "OD-RELEASE-KIND",
            f"{max(others)} is not a release of flows, and only flows can be opened from a database",
            next_step="open its bundle, or read its tables in the database with DuckDB",
        )
    return request.find_newest(flows)


def _build_release(certificate: Certificate, tables: Tables) -> Release:
    """Return the release from its certificate and tables. Raises OdError if they do not match each other."""
    plan = _build_plan(certificate["plan"], tables, certificate.get("geography_versions", {}))
    pairs = _resolve_pairs(plan.tree, plan.tree.depth, tables["flows"])
    trips = tables["flows"]["trips"].to_numpy(dtype=np.int64)
    order = np.argsort(plan.tree.compute_first_ranks(pairs), kind="stable")
    leaves = Nodes(plan.tree.depth, pairs.origin[order], pairs.destination[order], trips[order])
    if certificate["contents"] != {"flows": len(leaves), "trips": int(leaves.trips.sum())}:
        raise make_changed_data_error("flows")
    return Release(
        plan,
        leaves=leaves,
        measured=tuple(_iterate_measurements(plan, tables, certificate["levels"])),
        noise=certificate["noise"],
        spent=read_spent_budget(plan, certificate),
        segments=_read_segments(plan, leaves, tables),
        selected=is_selected(certificate),
        uncounted=certificate["uncounted"]["trips"] if "uncounted" in certificate else None,
    )


def _build_plan(facts: Mapping[str, Any], tables: Tables, versions: dict[str, str | None]) -> ReleasePlan:
    """Plan a release again from the facts of its plan. Raises OdError if this version plans something else.

    If the facts state that only some pairs can have trips, these are the pairs of the measured leaves, because such a
    release drops no node.
    """
    areas = tables["areas"]
    origin, destination = (
        build_published_geography(areas, facts[f"{side}_geography"], facts[f"{side}_unknown_zone"], versions.get(side))
        for side in _SIDES
    )
    possible = None
    if "possible" in facts:
        measured = tables["measurements"]
        leaves = max(step["level"] for step in facts["steps"] if "area_totals" not in step)
        possible = PossiblePairs.from_frame(measured[measured["level"] == leaves], origin, destination)
    known = tables["known_totals"] if "known" in facts else None
    plan = ReleasePlan.from_facts(facts, origin, destination, possible, known)
    refuse_other_plan(plan, facts)
    return plan
