"""Confidential: build one SQL text, run by DuckDB and by Spark, that turns records into the trips at every rank.

The text reads these relations:

- ``records``, with the columns origin and destination (text), in_period and, if they are needed, trips, weight, or
  person (the user id, NULL if it is not valid);
- the public ``origin_zones`` and ``destination_zones`` of :func:`zone_tables`;
- under a user unit, the ``secret`` of :func:`od_core.records.contribution_bound.secret_table`.

The result for a record follows from that record and public facts alone, except for the contribution bound, which also
depends on the other records of the same user.
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
    """Return the public zones of both sides by relation name: their codes and the terms that they add to a rank.

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
    """Return SQL for every record's rank, whether it is faulty, and, for flows and weights, its trips.

    The rank is -1 if the record is not counted. A record goes to the ``unknown`` zone, or has no rank, as in
    :func:`od_core.records.trip_counts.count_trips`.

    Args:
        tree, unit: as in :func:`od_core.records.trip_counts.count_trips`.
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
    """Return SQL for the rank, trips and faulty trips of every rank, in any order.

    If the unit bounds weights, ``faulty`` is a number of records, and a further column ``counted`` is the number of all
    records.

    Args:
        ranked: :func:`ranked_records` in brackets, or the name of its result.
        unit, is_flows: as in :func:`ranked_records`.
    """
    each = "CAST(trips AS BIGINT)" if is_flows or unit.max_weight is not None else "1"
    trips = f"CAST(coalesce(sum({each}), 0) AS BIGINT)" if each != "1" else "count(*)"
    faulty = "count(CASE WHEN faulty THEN 1 END)"
    if is_flows:
        faulty = f"CAST(coalesce(sum(CASE WHEN faulty THEN {each} END), 0) AS BIGINT)"
    counted = ", count(*) AS counted" if unit.max_weight is not None else ""
    return f"SELECT rank, {trips} AS trips, {faulty} AS faulty{counted} FROM {ranked} GROUP BY rank"  # noqa: S608  # our own


class Tally:
    """Confidential: sums for the share of faults, updated while the result of :func:`trips_by_rank` passes through.

    Attributes:
        counted: number of trips; for records with weights, number of records.
        faulty: those of them that are faulty.
    """

    def __init__(self) -> None:
        self.counted = self.faulty = 0

    def take(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Ranked]:
        """Yield the ranks that have trips, and these trips, batch by batch."""
        for batch in batches:
            columns = {name: batch[name].to_numpy() for name in batch.schema.names}
            self.counted += int(columns.get("counted", columns["trips"]).sum())
            self.faulty += int(columns["faulty"].sum())
            has_place = (columns["rank"] >= 0) & (columns["trips"] > 0)
            yield columns["rank"][has_place], columns["trips"][has_place]


def lost_zeros(tree: FlowTree) -> str:
    """Return SQL for whether most unlisted codes would be listed with zeros before them, up to the usual length."""
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
    # The hint in the SQL makes Spark copy the zones to the records, not the records to the zones.
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
    """Return SQL for the terms that a record's zone adds to its rank; a number for a term that all zones share.

    An unlisted zone has the terms of the ``unknown`` zone; without an ``unknown`` zone, the record has no rank.
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
    """Return each side's name, its geography, and the terms of its zones; shape (zones, depth of the tree)."""
    origins, destinations = tree.rank_terms(tree.depth)
    return ("origin", tree.origin, origins), ("destination", tree.destination, destinations)
