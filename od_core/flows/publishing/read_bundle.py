"""Read a published release of flows from its bundle or from the release database."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from od_core.errors import OdError
from od_core.flows.bands import Bands
from od_core.flows.estimation.top_down import Measurement
from od_core.flows.mechanisms import MECHANISMS
from od_core.flows.plan import ReleasePlan, plan_release
from od_core.flows.release import Release, finish
from od_core.geography.flow_tree import FlowTree, Nodes, Pairs
from od_core.geography.geography import Geography, Numbers
from od_core.ledger.measurements import NoisyVector
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.budget import Budget
from od_core.privacy.neighbours import Acceptance
from od_core.privacy.unit import PrivacyUnit
from od_core.publication.bundle import AREAS_FILE, FLOWS_FILE, MEASUREMENTS_FILE
from od_core.publication.bundle_integrity import CERTIFICATE
from od_core.publication.database import CLOSED, named_releases, refuse_newer, refuse_newer_duckdb
from od_core.publication.read_back import absent, changed, refuse_incomplete, refuse_other_plan, stated_spent
from od_core.publication.tables import published_geography


def open_flows(
    path: str | Path, release: str | None = None, period: str | None = None, revision: int | None = None
) -> Release:
    """Return a published release of flows, read from a bundle folder or from a release database (``release.duckdb``).

    For arguments and errors, see :func:`od_core.published.opening.open_release`.
    """
    place, asked = Path(path), Asked.of(release, period, revision)
    with refuse_incomplete(place.name):
        if place.is_dir():
            return _release(*_from_bundle(place, asked))
        if place.is_file():
            return _release(*_from_database(place, asked))
    raise absent(f"{place.name} is not a bundle or database")


@dataclass(frozen=True)
class Asked:
    """A request for a published release, by series name, period and revision. None matches any value."""

    release: str | None
    period: str | None
    revision: int | None

    @classmethod
    def of(cls, release: str | None, period: str | None, revision: int | None) -> Asked:
        """Return a request for a release.

        Args:
            release: Name of a series, or a whole key such as ``us_flights/2001-06/r1``; None for any series.
            period, revision: Period and revision; ignored if ``release`` is a whole key.
        """
        if release is None or "/" not in release:
            return cls(release, period, revision)
        key = ReleaseKey.parse(release)
        return cls(key.release, key.period, key.revision)

    def matches(self, key: ReleaseKey) -> bool:
        """Return whether the release with this key matches the request."""
        return (
            self.release in (None, key.release)
            and self.period in (None, key.period)
            and self.revision in (None, key.revision)
        )

    def newest(self, keys: list[ReleaseKey]) -> ReleaseKey:
        """Return the newest of the keys that match the request.

        Raises:
            OdError: If no key matches, or if the matching keys belong to several series.
        """
        matching = [key for key in keys if self.matches(key)]
        series = sorted({key.release for key in matching})
        if len(series) > 1:
            raise absent(f"the database has several series; name one of {', '.join(series)}")
        if not matching:
            raise absent(f"there is no such release; published releases: {', '.join(map(str, sorted(keys))) or 'none'}")
        return max(matching)


ANY = Asked(None, None, None)

_Contents = tuple[dict[str, Any], pd.DataFrame, pd.DataFrame, pd.DataFrame]
"""Contents of a published release: certificate, and tables of areas, flows between zones and measurements."""


def _from_bundle(folder: Path, asked: Asked) -> _Contents:
    if not (folder / FLOWS_FILE).exists() and (folder / CERTIFICATE).exists():
        raise absent(f"{folder.name} is a bundle without flows: it belongs to another kind of release or is incomplete")
    missing = [
        name for name in (AREAS_FILE, FLOWS_FILE, MEASUREMENTS_FILE, CERTIFICATE) if not (folder / name).exists()
    ]
    if missing:
        raise absent(f"{folder.name} is not a complete bundle: {missing[0]} is missing")
    certificate = json.loads((folder / CERTIFICATE).read_text(encoding="utf-8"))
    asked.newest([ReleaseKey.parse(certificate["release"])])
    leaves = certificate["levels"][-1]
    pair = [(side, "==", leaves[side]) for side in ("origin_level", "destination_level")]
    try:
        areas, measurements = (pd.read_parquet(folder / name) for name in (AREAS_FILE, MEASUREMENTS_FILE))
        flows = pd.read_parquet(folder / FLOWS_FILE, columns=["origin", "destination", "trips"], filters=pair)
    except (OSError, ValueError):
        raise absent(f"{folder.name} is not a complete bundle: a table of it cannot be read") from None
    return certificate, areas, flows[flows["trips"] != 0], measurements


def _from_database(file: Path, asked: Asked) -> _Contents:
    try:
        with duckdb.connect(str(file), read_only=True, config=CLOSED) as connection:
            refuse_newer(connection, file.name)
            key = str(_newest_flows(connection, asked))
            text = connection.execute("SELECT certificate FROM releases WHERE release = ?", [key]).fetchall()[0][0]
            areas = connection.execute("SELECT * FROM areas ORDER BY geography, level, position").df()
            flows = connection.execute("SELECT * EXCLUDE release FROM flows WHERE release = ?", [key]).df()
            measured = connection.execute("SELECT * FROM measurements WHERE release = ? ORDER BY rowid", [key]).df()
    except duckdb.Error as error:
        refuse_newer_duckdb(error, file.name)
        raise absent(
            f"{file.name} is not a release database, or is open elsewhere for writing or with different settings"
        ) from None
    return json.loads(text), areas, flows, measured


def _newest_flows(connection: duckdb.DuckDBPyConnection, asked: Asked) -> ReleaseKey:
    """Return the key of the newest release of flows that matches the request. Raises OdError if none matches."""
    flows = named_releases(connection, ("releases",))
    others = [key for key in named_releases(connection) if asked.matches(key) and key not in flows]
    if others and not any(map(asked.matches, flows)):
        raise OdError(
            "OD-RELEASE-KIND",
            f"{max(others)} is not a release of flows, and only flows can be opened from a database",
            next_step="open its bundle, or read its tables in the database with DuckDB",
        )
    return asked.newest(flows)


def _release(
    certificate: dict[str, Any], areas: pd.DataFrame, flows: pd.DataFrame, measurements: pd.DataFrame
) -> Release:
    """Return the release, built from its published certificate and tables.

    Raises:
        OdError: If the tables do not match the certificate or each other.
    """
    plan = _plan(certificate["plan"], areas, certificate.get("geography_versions", {}))
    tree = plan.tree
    leaves = _pairs(tree, tree.depth, flows)
    order = np.argsort(tree.first_rank(leaves), kind="stable")
    trips = flows["trips"].to_numpy(dtype=np.int64)
    if certificate["contents"] != {"flows": len(trips), "trips": int(trips.sum())}:
        raise changed("flows")
    measured = []
    for step, stated in zip(plan.steps, certificate["levels"], strict=True):
        rows = measurements[measurements["level"] == step.level]
        cells, above = _pairs(tree, step.level, rows), plan.level_above(step)
        measurement = Measurement(
            step,
            None if above is None else tree.ancestors_of(cells, above),
            NoisyVector.in_memory([rows["noisy"].to_numpy(dtype=np.int64)]),
        )
        if len(rows) != stated["measured_cells"] or measurement.cells(plan) != len(rows):
            raise changed("measurements")
        measured.append(measurement)
    return finish(
        plan,
        Nodes(tree.depth, leaves.origin[order], leaves.destination[order], trips[order]),
        measured,
        noise=certificate["noise"],
        spent=stated_spent(plan, certificate),
    )


def _pairs(tree: FlowTree, level: int, table: pd.DataFrame) -> Pairs:
    """Return the area numbers of the codes in a table's columns ``origin`` and ``destination``, row by row.

    Raises:
        OdError: If a code is not in the geography.
    """
    o_level, d_level = tree.level_pair(level)
    pairs = Pairs(
        level,
        _area_numbers(tree.origin, o_level, table["origin"]),
        _area_numbers(tree.destination, d_level, table["destination"]),
    )
    if np.any(pairs.origin < 0) or np.any(pairs.destination < 0):
        raise changed("areas")
    return pairs


def _plan(facts: dict[str, Any], areas: pd.DataFrame, versions: dict[str, str | None]) -> ReleasePlan:
    shares = facts["shares"]
    origin, destination = (
        published_geography(areas, facts[f"{side}_geography"], facts[f"{side}_unknown_zone"], versions.get(side))
        for side in ("origin", "destination")
    )
    plan = plan_release(
        origin,
        destination_geography=destination,
        unit=PrivacyUnit(
            facts["unit"],
            facts["neighbours"],
            facts["user_column"],
            None if facts["unit"] == "trip" else facts["contribution_bound"],
            facts.get("max_weight"),
        ),
        budget=Budget(
            facts["epsilon"],
            facts["delta"],
            rho=None if facts["epsilon"] is not None else facts["rho"],
            conversion=facts["conversion"],
            shares=shares,
        ),
        mechanism=MECHANISMS.make(facts["mechanism"], **facts["mechanism_options"]),
        tree=facts["tree"],
        bands=Bands.from_facts(facts["bands"]) if "bands" in facts else None,
        acceptance=Acceptance.from_facts(facts["acceptance"]),
    )
    refuse_other_plan(plan, facts)
    return plan


def _area_numbers(geography: Geography, level: int, codes: pd.Series) -> Numbers:
    return pd.Index(geography.codes[level], dtype=object).get_indexer(pd.Index(codes.astype(object))).astype(np.int32)
