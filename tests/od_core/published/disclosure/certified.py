"""Certificates of releases of every kind in small folders like bundles, and what their plans say."""

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from od_core import Budget, MapGrid, PrivacyUnit, ReleaseKey, release_counts, release_flows, release_stops
from od_core.flows.publishing import derived_kind
from od_core.flows.publishing.derived_kind import ASSISTED, SUMS, index_releases_by_name, make_derived_certificate
from od_core.flows.publishing.kind import FLOWS
from od_core.group_sizes.publishing import GROUP_SIZES
from od_core.publication.certify import build_certificate
from od_core.stops.publishing import STOPS
from tests.od_core.group_sizes.test_release import released
from tests.od_core.ledger import ledger_rows
from tests.od_core.publication.examples import CHECKS, RECORD, checked_again
from tests.od_core.publication.published_kinds import POINTS, flows_by_category

DIGESTS = {"tables/flows.parquet": "ab" * 32, "tables/areas.csv": "0c" * 32}
FILES = [{"path": path, "hash": f"sha256:{digest}"} for path, digest in DIGESTS.items()]
TRIP = PrivacyUnit("trip")


def single_trips() -> pd.DataFrame:
    """One row a trip, of users with four trips each."""
    rows = ledger_rows.FLOWS.loc[ledger_rows.FLOWS.index.repeat(ledger_rows.FLOWS["trips"])]
    rows = rows.drop(columns="trips").reset_index(drop=True)
    return rows.assign(who=[f"u{number // 4}" for number in range(len(rows))])


def flows(unit: PrivacyUnit = TRIP, trips: pd.DataFrame | None = None, **changes: Any) -> Any:
    given = {"budget": Budget(epsilon=1, delta="1e-8"), "noise": "table"} | changes
    return release_flows(ledger_rows.FLOWS if trips is None else trips, ledger_rows.GEOGRAPHY, unit=unit, **given)


def boxes(mechanism: str) -> Any:
    grid = MapGrid(-10, 30, 40, 60, 8, ("origin", "destination"))
    return release_stops(POINTS, grid, unit=TRIP, budget=Budget(2), mechanism=mechanism, noise="table")


def weighted() -> Any:
    trips = single_trips().drop(columns="who").assign(weight=2)
    return flows(PrivacyUnit("trip", "unbounded", max_weight=2), trips)


def counts() -> Any:
    """Counts by one hierarchy, by weight."""
    records = single_trips()[["origin"]].rename(columns={"origin": "area"}).assign(weight=2)
    unit = PrivacyUnit("trip", "unbounded", max_weight=2)
    return release_counts(records, ledger_rows.GEOGRAPHY, unit=unit, budget=Budget(1, "1e-8"), noise="table")


MADE: dict[str, tuple[Any, Callable[[], Any]]] = {
    "trips": (FLOWS, lambda: flows(fault_threshold=0)),
    "weak": (FLOWS, lambda: flows(budget=Budget(rho=4, delta="1e-4"))),
    "unbounded": (FLOWS, lambda: flows(PrivacyUnit("trip", "unbounded"), budget=Budget(rho="0.1", delta="1e-6"))),
    "segments": (FLOWS, lambda: flows_by_category(noise="table")),
    "area totals": (FLOWS, lambda: flows(area_totals="1/10")),
    "users": (FLOWS, lambda: flows(PrivacyUnit("user", "unbounded", "who", 3), single_trips())),
    "user periods": (FLOWS, lambda: flows(PrivacyUnit("user_period", "bounded", "who", 2), single_trips())),
    "weights": (FLOWS, weighted),
    "counts": (FLOWS, counts),
    "threshold": (FLOWS, lambda: flows(mechanism="stability_histogram", budget=Budget(epsilon=1, delta="1e-6"))),
    "group sizes": (GROUP_SIZES, lambda: released(unit=TRIP)),
    "tree of boxes": (STOPS, lambda: boxes("privtree")),
    "grid of boxes": (STOPS, lambda: boxes("eug")),
    "boxes by dimension": (STOPS, lambda: boxes("daf_entropy")),
}
DERIVED = {"sum": SUMS, "assisted": ASSISTED, "sum of users": SUMS}
KINDS = [*MADE, *DERIVED]


@dataclass(frozen=True, eq=False)
class Certified:
    """A release, or what follows from some, with its certificate.

    Attributes:
        facts: the certificate.
        plan: the plan; None if it is derived.
    """

    facts: dict[str, Any]
    plan: Any

    @property
    def key(self) -> ReleaseKey:
        return ReleaseKey.parse(self.facts["release"])


@functools.cache
def certified(name: str) -> Certified:
    """The release of this name, drawn once."""
    if name in DERIVED:
        return Certified(_derived(name), None)
    kind, make = MADE[name]
    release = make()
    return Certified(_facts(kind, release, ReleaseKey(name.replace(" ", "_"), "2001-06")), release.plan)


def _facts(kind: Any, release: Any, key: ReleaseKey) -> dict[str, Any]:
    stated = build_certificate(kind, release, key, "survey", CHECKS, record=RECORD)
    facts: dict[str, Any] = json.loads(json.dumps(stated, sort_keys=True))
    return facts


def _derived(name: str) -> dict[str, Any]:
    return derived_from("users" if name == "sum of users" else "trips", DERIVED[name])


def derived_from(name: str, kind: Any = SUMS, **changed: Any) -> dict[str, Any]:
    """The certificate of what follows from two releases of flows of this name, with other facts of theirs."""
    sources = []
    for period in ("2001-05", "2001-06"):
        release, key = MADE[name][1](), ReleaseKey("commuters", period)
        sources.append(derived_kind.Source(key, release, _facts(FLOWS, release, key) | changed))
    key = ReleaseKey(f"commuters_{kind.name}", "2001-06" if kind is ASSISTED else "2001-05--2001-06")
    stated = make_derived_certificate(kind, key, kind.derive_flows(index_releases_by_name(sources)), sources)
    facts: dict[str, Any] = json.loads(json.dumps(stated, sort_keys=True))
    return facts


def written(facts: dict[str, Any], folder: Path) -> Path:
    """Write a certificate and a data package with their checksums, as a bundle has them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("certificate.json", facts), ("datapackage.json", {"resources": FILES})):
        (folder / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    checked_again(folder)
    return folder
