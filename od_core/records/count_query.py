"""Confidential: from records to the trips at every rank, as one SQL text that DuckDB and Spark both run.

The text reads these relations: ``records`` with the columns origin and destination (text), in_period, and where they
are needed trips, weight, or person, which is the user id, NULL where it is none; the public ``origin_zones`` and
``destination_zones`` of :func:`zone_tables`; under a user unit the ``secret`` of
:func:`od_core.records.contribution_bound.secret_table`. What it says of a record follows from that record and public
facts alone; but for the contribution bound, which looks at the other records of the same user.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography, Numbers
from od_core.privacy.unit import PrivacyUnit
from od_core.records.contribution_bound import bounded
from od_core.records.count_files import Ranked
from od_core.records.faults import filled_with_zeros
from od_core.records.weights import counted_trips


def zone_tables(tree: FlowTree) -> dict[str, pa.Table]:
    """The public zones of both sides by the names of their relations: code, and what it brings to a rank.

    The rank of a leaf pair is the sum of the products of both sides' terms; see :meth:`FlowTree.rank_terms`.
    """
    return {
        f"{side}_zones": pa.table(
            {"code": geography.code_array(geography.depth)}
            | {f"term_{step}": np.ascontiguousarray(column) for step, column in enumerate(terms.T, start=1)}
        )
        for side, geography, terms in _sides(tree)
    }


def ranked_records(tree: FlowTree, unit: PrivacyUnit, *, is_flows: bool) -> str:
    """Of every record: rank, -1 where it is not counted; whether it is faulty; trips, for flows and weights.

    A record goes to the ``unknown`` zone, or has no rank, as in :func:`od_core.records.trip_counts.count_trips`.

    Args:
        tree, unit: see there.
        is_flows: whether records have a column ``trips``; their counts are whole numbers from 0 to 2^53.
    """
    if unit.max_weight is not None:
        counted = f"(SELECT *, {counted_trips(unit.max_weight)} AS trips FROM records) AS records"  # noqa: S608  # our own
        return _ranked(tree, counted, fields=", trips", is_valid="records.in_period AND records.trips IS NOT NULL")
    if unit.kind == "trip":
        return _ranked(tree, "records", fields=", trips" if is_flows else "", is_valid="records.in_period")
    fields = ", person, records.origin, records.destination"
    whole = "records.in_period AND records.person IS NOT NULL"
    return bounded(_ranked(tree, "records", fields=fields, is_valid=whole), unit.contribution_bound)


def trips_by_rank(ranked: str, unit: PrivacyUnit, *, is_flows: bool) -> str:
    """Of every rank, in any order: rank, trips, and of what the share of faults counts: all (counted), and faulty ones.

    Args:
        ranked: :func:`ranked_records` in brackets, or the name of its result.
        unit, is_flows: as there.
    """
    each = "CAST(trips AS BIGINT)" if is_flows or unit.max_weight is not None else "1"
    trips = f"CAST(coalesce(sum({each}), 0) AS BIGINT)" if each != "1" else "count(*)"
    faulty = "count(CASE WHEN faulty THEN 1 END)"
    if is_flows:
        faulty = f"CAST(coalesce(sum(CASE WHEN faulty THEN {each} END), 0) AS BIGINT)"
    counted = ", count(*) AS counted" if unit.max_weight is not None else ""
    return f"SELECT rank, {trips} AS trips, {faulty} AS faulty{counted} FROM {ranked} GROUP BY rank"  # noqa: S608  # our own


class Tally:
    """Confidential: what the share of faults is made of, summed up while the result of :func:`trips_by_rank` passes.

    Attributes:
        counted, faulty: all, and those of faulty records: trips; of records with weights the records.
    """

    def __init__(self) -> None:
        self.counted = self.faulty = 0

    def take(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Ranked]:
        """Ranks that have trips, and these, batch by batch."""
        for batch in batches:
            columns = {name: batch[name].to_numpy() for name in batch.schema.names}
            self.counted += int(columns.get("counted", columns["trips"]).sum())
            self.faulty += int(columns["faulty"].sum())
            has_place = (columns["rank"] >= 0) & (columns["trips"] > 0)
            yield columns["rank"][has_place], columns["trips"][has_place]


def lost_zeros(tree: FlowTree) -> str:
    """Whether most of the codes that are not listed would be, with zeros before them to the usual length."""
    unlisted = " UNION ALL ".join(
        f"""
        SELECT listed.code AS listed FROM (
            SELECT {filled_with_zeros(f"records.{side}", geography.zones)} AS filled
            FROM records LEFT JOIN {side}_zones AS zones ON records.{side} = zones.code
            WHERE records.{side} IS NOT NULL AND zones.code IS NULL
        ) AS unlisted LEFT JOIN {side}_zones AS listed ON unlisted.filled = listed.code
        """  # noqa: S608  # our own
        for side, geography, _ in _sides(tree)
    )
    return f"SELECT 2 * count(listed) > count(*) AS lost FROM ({unlisted}) AS both_sides"  # noqa: S608  # our own


def _ranked(tree: FlowTree, records: str, *, fields: str, is_valid: str) -> str:
    products = zip(*(_side_terms(f"{side}s", geography, terms) for side, geography, terms in _sides(tree)), strict=True)
    rank = " + ".join(
        f"CAST({origin} AS BIGINT) * {destination}"
        for origin, destination in products
        if "0" not in (origin, destination)
    )
    listed = [f"{side}s.code IS NOT NULL" for side, geography, _ in _sides(tree) if geography.unknown is None]
    has_rank = " AND ".join([is_valid, *listed])
    # The comment in the text is for Spark: to copy the zones to where the records are, and not the reverse.
    return f"""
        SELECT /*+ BROADCAST(origins, destinations) */
            coalesce(CASE WHEN {has_rank} THEN {rank or "CAST(0 AS BIGINT)"} END, -1) AS rank,
            origins.code IS NULL OR destinations.code IS NULL OR ({is_valid}) IS NOT TRUE AS faulty
            {fields}
        FROM {records}
        LEFT JOIN origin_zones AS origins ON records.origin = origins.code
        LEFT JOIN destination_zones AS destinations ON records.destination = destinations.code
    """  # noqa: S608  # numbers, and names of our own


def _side_terms(table: str, geography: Geography, terms: Numbers) -> list[str]:
    """What a record's zone brings to its rank: a number where all zones bring the same.

    Where a record's zone is not listed, that is what the ``unknown`` zone brings; or it has no rank.
    """
    unknown = None if geography.unknown is None else geography.zones.index(geography.unknown)
    brought = []
    for step, column in enumerate(terms.T, start=1):
        name = f"{table}.term_{step}"
        if np.all(column == column[0]):
            brought.append(str(column[0]))
        else:
            brought.append(name if unknown is None else f"coalesce({name}, {column[unknown]})")
    return brought


def _sides(tree: FlowTree) -> tuple[tuple[str, Geography, Numbers], tuple[str, Geography, Numbers]]:
    """Each side's name, its geography, and the terms of its zones; shape (zones, depth of the tree)."""
    origins, destinations = tree.rank_terms(tree.depth)
    return ("origin", tree.origin, origins), ("destination", tree.destination, destinations)
