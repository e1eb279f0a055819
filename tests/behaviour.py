"""Freeze what is published: the digest of every file and table of releases of all kinds and options, as JSON.

    python -m tests.behaviour > before.json      # in the checkout before a change that must change nothing
    python -m tests.behaviour > after.json       # in the checkout after it; compare the two with diff

Noise, clock and keys are fixed, so the same code writes the same digests. Text that states the version of the software
is part of the files: compare checkouts of one version.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import duckdb
import pandas as pd

from od_core import Budget, Cap, Geography, Ledger, MapGrid, PrivacyDomain, PrivacyUnit, release_flows, release_stops
from od_core.flows.mechanisms import MECHANISMS
from od_core.group_sizes.mechanisms import MECHANISMS as OF_GROUP_SIZES
from od_core.stops.mechanisms import MECHANISMS as OF_STOPS
from tests.od_core.ledger import ledger_rows
from tests.od_core.publication.published_kinds import BY_CATEGORY, EXAMPLES, POINTS, Example, publish

DATA = Path(__file__).parents[1] / "data" / "us_flights"
REFINED: dict[str, dict[str, str]] = {
    "refined": {},
    "shrunk": {"estimate": "shrunk"},
    "mixture": {"estimate": "shrunk", "leaves": "empirical_bayes"},
    "empirical Bayes": {"leaves": "empirical_bayes"},
    "auto": {"estimate": "auto"},
    "dropped": {"keep_all_cap": "1"},
}


class Clock(datetime.datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Clock:
        return cls(2001, 7, 1, 12, tzinfo=tz)


def examples() -> Iterator[tuple[str, Example, dict[str, Any]]]:
    """Yield the name of each release, how it is made, and its options."""
    flows, sizes, boxes = EXAMPLES["flows"], EXAMPLES["group sizes"], EXAMPLES["boxes"]
    for neighbours in ("bounded", "unbounded"):
        given: dict[str, Any] = {"unit": PrivacyUnit("trip", neighbours), "fault_threshold": 0}
        for tree in ("destination", "origin"):
            for mechanism in (name for name in MECHANISMS if MECHANISMS.make(name).measures == "every_level"):
                options = given | {"mechanism": mechanism, "tree": tree, "budget": Budget(1, "1e-8")}
                yield f"flows {neighbours} {tree} {mechanism}", replace(flows, make=few_flows), options
        of_areas = given | {"budget": Budget(1, "1e-8"), "area_totals": "1/10"}
        yield f"flows with area totals {neighbours}", replace(flows, make=few_flows), of_areas
        yield f"flows by category {neighbours}", BY_CATEGORY, {"neighbours": neighbours}
    for name, estimation in REFINED.items():
        mechanism = MECHANISMS.make("inftda_refined", **estimation)
        yield f"flights {name}", replace(flows, make=flights), {"mechanism": mechanism, "unit": PrivacyUnit("trip")}
    for mechanism in OF_GROUP_SIZES:
        yield f"group sizes {mechanism}", sizes, {"mechanism": mechanism, "neighbours": "bounded"}
    for mechanism in OF_STOPS:
        yield (
            f"boxes {mechanism}",
            replace(boxes, make=many_boxes),
            {"mechanism": mechanism, "unit": PrivacyUnit("trip")},
        )


few_flows = partial(release_flows, ledger_rows.FLOWS, ledger_rows.GEOGRAPHY)
many_boxes = partial(
    release_stops,
    POINTS,
    MapGrid(-10, 30, 40, 60, 8, ("origin", "destination")),
    budget=Budget(2),
)


def flights(**options: Any) -> Any:
    """Return a release of a month of flights."""
    zones = pd.read_csv(DATA / "airports.csv", dtype=str, keep_default_na=False)
    geography = Geography.from_frame(zones, levels=["region", "division", "state", "airport"])
    trips = pd.read_parquet(DATA / "2001-05.parquet", columns=["origin", "destination"])
    return release_flows(trips, geography, budget=Budget(1, "1e-8"), **options)


def published(example: Example, options: dict[str, Any], root: Path) -> None:
    """Publish one release below a folder."""
    ledger = Ledger(root / "ledger.sqlite")
    unit = PrivacyUnit("trip", options["neighbours"] if "neighbours" in options else options["unit"].neighbours)
    ledger.declare(PrivacyDomain(example.series, unit, Cap(rho=Fraction(9)), "a test"))
    release = example.make(ledger=ledger, release_id=str(example.key), noise="table", **options)
    publish(example.kind, release, example.key, example.series, root)


def digests(root: Path) -> dict[str, str]:
    """Return the digest of each public file below a folder, and of each table of its database."""
    files = sorted(path for path in (root / "releases").rglob("*") if path.is_file())
    found = {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in files}
    with duckdb.connect(str(root / "release.duckdb"), read_only=True) as database:
        for (table,) in database.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall():
            rows = database.sql(f'SELECT * FROM "{table}" ORDER BY ALL').fetchall()  # names of tables
            found[f"database {table}"] = hashlib.sha256(repr(rows).encode()).hexdigest()[:16]
        schema = database.execute("SELECT sql FROM duckdb_tables() ORDER BY 1").fetchall()
        found["database schema"] = hashlib.sha256(repr(schema).encode()).hexdigest()[:16]
    return found


def fixed() -> tuple[Any, ...]:
    """Return contexts in which clock and keys, and so the noise that is derived from them, are always the same."""
    names = count()
    return (
        patch("od_core.ledger.chain.datetime", SimpleNamespace(datetime=Clock, UTC=datetime.UTC)),
        patch.object(secrets, "token_bytes", lambda size: b"k" * size),
        patch.object(secrets, "token_hex", lambda size: f"{next(names):0{2 * size}x}"),
        patch.object(os, "urandom", lambda size: b"u" * size),
    )


def main() -> None:
    """Print the digests of every release, or the error that refuses it."""
    found: dict[str, Any] = {}
    same = fixed()
    for name, example, options in examples():
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            for one in same:
                stack.enter_context(one)
            try:
                published(example, options, Path(folder))
                found[name] = digests(Path(folder))
            except Exception as error:  # noqa: BLE001  # what is refused stays refused, in the same words
                found[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
