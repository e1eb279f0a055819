"""A release read back from its bundle or from the release database."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from od_core.archive.release_key import ReleaseKey
from od_core.errors import OdError
from od_core.estimation.top_down import Measurement
from od_core.flow_tree import Nodes, Pairs
from od_core.geography import Geography, Numbers
from od_core.mechanisms import MECHANISMS
from od_core.plan import ReleasePlan, plan_release
from od_core.privacy.budget import Budget, Spent
from od_core.privacy.unit import PrivacyUnit
from od_core.publication.bundle import CERTIFICATE
from od_core.release import Release


def open_release(
    path: str | Path, release: str | None = None, period: str | None = None, revision: int | None = None
) -> Release:
    """A published release, from a bundle folder or from ``release.duckdb``.

    Args:
        path: the folder or the database file.
        release: name of the series, as ``us_flights``, or the whole key ``us_flights/2001-06/r1``; may be left
            out where the database holds one series.
        period: elementary period; the newest if left out.
        revision: the newest if left out.

    Raises:
        OdError: no such file or release, several series to choose from, or contents that do not fit together.
    """
    place = Path(path)
    if place.is_dir():
        if not (place / CERTIFICATE).exists():
            raise _absent(f"{place.name} is not a bundle: it has no {CERTIFICATE}")
        certificate = json.loads((place / CERTIFICATE).read_text(encoding="utf-8"))
        areas, flows, measurements = (
            pd.read_parquet(place / f"{name}.parquet") for name in ("areas", "flows", "noisy_measurements")
        )
    elif place.is_file():
        with duckdb.connect(str(place), read_only=True) as connection:
            key = _chosen(connection, release, period, revision)
            text = connection.execute("SELECT certificate FROM releases WHERE release = ?", [key]).fetchall()[0][0]
            certificate = json.loads(text)
            areas = connection.execute("SELECT * FROM areas ORDER BY geography, level, position").df()
            flows = connection.execute("SELECT * EXCLUDE release FROM flows WHERE release = ?", [key]).df()
            measurements = connection.execute("SELECT * FROM measurements WHERE release = ? ORDER BY rowid", [key]).df()
    else:
        raise _absent(f"there is no bundle folder or database at {place.name}")
    return _release(certificate, areas, flows, measurements)


def _chosen(
    connection: duckdb.DuckDBPyConnection, release: str | None, period: str | None, revision: int | None
) -> str:
    """Key of the release that is asked for."""
    if release is not None and "/" in release:
        key = ReleaseKey.parse(release)
        release, period, revision = key.release, key.period, key.revision
    found = [ReleaseKey.parse(row[0]) for row in connection.execute("SELECT release FROM releases").fetchall()]
    matching = [
        key
        for key in found
        if release in (None, key.release) and period in (None, key.period) and revision in (None, key.revision)
    ]
    series = sorted({key.release for key in matching})
    if len(series) > 1:
        raise _absent(f"the database holds several series; name one of {', '.join(series)}")
    if not matching:
        raise _absent(f"no such release; the database holds {', '.join(map(str, sorted(found))) or 'none'}")
    return str(max(matching))


def _release(certificate: dict[str, Any], areas: pd.DataFrame, flows: pd.DataFrame, table: pd.DataFrame) -> Release:
    plan = _plan(certificate["plan"], areas)
    tree = plan.tree
    origin, destination = (
        tree.origin.zone_numbers(flows["origin"]),
        tree.destination.zone_numbers(flows["destination"]),
    )
    trips = flows["trips"].to_numpy(dtype=np.int64)
    order = np.argsort(tree.first_rank(Pairs(tree.depth, origin, destination)), kind="stable")
    leaves = Nodes(tree.depth, origin[order], destination[order], trips[order])
    measured = []
    for step in plan.steps:
        rows = table[table["level"] == step.level]
        o_level, d_level = tree.level_pair(step.level)
        cells = Pairs(
            step.level,
            _area_numbers(tree.origin, o_level, rows["origin"]),
            _area_numbers(tree.destination, d_level, rows["destination"]),
        )
        parents = None if step.level == 0 else tree.parents_of(cells)
        measured.append(Measurement(step, parents, rows["noisy"].to_numpy(dtype=np.int64)))
    levels = [Fraction(rho) for rho in certificate["spent"]["rho_by_level_exact"]]
    return Release(plan, leaves, tuple(measured), Spent(tuple(levels), plan.budget.delta), certificate["noise"])


def _plan(facts: dict[str, Any], areas: pd.DataFrame) -> ReleasePlan:
    shares = facts["shares"]
    plan = plan_release(
        _geography(areas, facts["origin_geography"], facts["origin_unknown_zone"]),
        destination_geography=_geography(areas, facts["destination_geography"], facts["destination_unknown_zone"]),
        unit=PrivacyUnit(
            facts["unit"],
            facts["neighbours"],
            facts["user_column"],
            None if facts["unit"] == "trip" else facts["contribution_bound"],
        ),
        budget=Budget(
            facts["epsilon"],
            facts["delta"],
            rho=None if facts["epsilon"] is not None else facts["rho"],
            conversion=facts["conversion"],
            shares=shares,
        ),
        mechanism=MECHANISMS[facts["mechanism"]](**facts["mechanism_options"]),
        tree=facts["tree"],
    )
    if json.loads(json.dumps(plan.facts())) != facts:
        raise OdError(
            "OD-BUNDLE-CHANGED",
            "the published plan is not the one that its settings give",
            next_step="read it with the version of the software that the certificate names, or restore it",
        )
    return plan


def _geography(areas: pd.DataFrame, digest: str, unknown: str | None) -> Geography:
    mine = areas[areas["geography"] == digest].sort_values(["level", "position"])
    codes = tuple(tuple(level["area"]) for _, level in mine.groupby("level"))
    names = tuple(level["level_name"].iloc[0] for _, level in mine.groupby("level"))
    parents = [np.empty(0, dtype=np.int32)]
    for above, (_, level) in zip(codes, list(mine.groupby("level"))[1:], strict=False):
        parents.append(pd.Index(above).get_indexer(pd.Index(level["parent"])).astype(np.int32))
    return Geography(levels=names[1:], codes=codes, parents=tuple(parents), unknown=unknown)


def _area_numbers(geography: Geography, level: int, codes: pd.Series) -> Numbers:
    return pd.Index(geography.codes[level], dtype=object).get_indexer(pd.Index(codes.astype(object))).astype(np.int32)


def _absent(message: str) -> OdError:
    return OdError("OD-RELEASE-ABSENT", message, next_step="name a published release")
