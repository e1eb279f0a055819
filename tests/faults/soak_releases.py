"""Small releases of every kind, measured under a ledger and published as the pipeline does it."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.parted_release import run_in_parts
from od_core import Budget, Geography, PrivacyUnit, release_flows, release_group_sizes, release_stops
from od_core.flows.bands import Bands
from od_core.flows.parts import PartMeasurements, Threads
from od_core.flows.plan import plan_release
from od_core.flows.publishing.kind import FLOWS
from od_core.flows.release import run_plan
from od_core.group_sizes.publishing import GROUP_SIZES
from od_core.ledger.confidential import ConfidentialFolder, lock_folder
from od_core.ledger.ledger import Ledger
from od_core.ledger.measurements import DurableMeasurements, begin_release
from od_core.ledger.object_store import LocalStore
from od_core.ledger.release_key import ReleaseKey
from od_core.noise import table_sampler
from od_core.noise.backends import BACKENDS, resolve_noise_source
from od_core.privacy.budget import Cap
from od_core.privacy.domain import PrivacyDomain
from od_core.publication.certificate import CheckResult
from od_core.publication.certify import build_certificate, read_release_context
from od_core.published.publishing import Published, publish_release
from od_core.records.counting import count_trips
from od_core.records.counts import CountFiles, finish_count_files, write_count_files
from od_core.stops.publishing import STOPS
from tests.faults.soak_shim import mark
from tests.od_core.ledger.ledger_rows import ledger_at

UNIT = PrivacyUnit("trip", "bounded")
EARLIER, PERIOD = "2001-05", "2001-06"
ZONES = ["a", "b", "c", "d"]
GEOGRAPHY = Geography.from_frame(pd.DataFrame({"zone": pd.Series(ZONES, dtype="str")}), ["zone"])
TRIPS = pd.DataFrame(
    [("a", "b", 40), ("b", "b", 70), ("c", "a", 90), ("d", "c", 300)], columns=["origin", "destination", "trips"]
)
GROUPS = pd.DataFrame({"group": [f"g{k}" for k in range(20)], "area": pd.Series(ZONES * 5, dtype="str"), "size": 2})
POINTS = np.random.default_rng(4).integers(0, 4, (300, 2))
FLOW_BUDGET = Budget(rho=Fraction(4, 7), delta="1e-8", shares="uniform")


def _flows(ledger: Ledger, key: ReleaseKey, noise: str) -> Any:
    return release_flows(
        TRIPS, GEOGRAPHY, unit=UNIT, budget=FLOW_BUDGET, ledger=ledger, release_id=str(key), noise=noise
    )


def _parts(ledger: Ledger, key: ReleaseKey, noise: str) -> Any:
    """Released part by part in the confidential folder; then once more as a whole, from what was kept."""
    source = resolve_noise_source(noise)
    plan = plan_release(GEOGRAPHY, unit=UNIT, budget=FLOW_BUDGET, bands=Bands((1,), part_trips=150))
    confidential = ConfidentialFolder(ledger.path.parent / "confidential")
    with lock_folder(ledger.path.parent), ledger.keep_open():
        trips = count_trips(TRIPS, plan.tree, unit=UNIT, key=confidential.read_or_make_key(), period=key.period)
        store = LocalStore(confidential.make_subfolder(key.folder))
        counts = CountFiles(store, "trip_counts/one")
        if not store.has("trip_counts/one/counted.json"):
            store.remove("trip_counts")
            pairs = trips.rank, np.diff(trips.before)
            counts = finish_count_files(store, counts.folder, write_count_files(store, "trip_counts/one/", [pairs]))
        measurements = begin_release(confidential, ledger, key, key.release, plan, counts, noise, store)
        parted = run_in_parts(plan, counts, source, measurements, Threads())
        whole = run_plan(plan, trips, source, measurements)
        leaves = np.concatenate([nodes.trips for nodes in parted.pieces(plan.tree.depth)])
        if not np.array_equal(leaves, whole.leaves.trips):
            raise ValueError("the release in parts is not that of its measurements")
        return _charged(whole, ledger, key)


def _group_sizes(ledger: Ledger, key: ReleaseKey, noise: str) -> Any:
    given = {"unit": UNIT, "budget": Budget(epsilon=1), "mechanism": "cumulative", "top_code": 9}
    return release_group_sizes(GROUPS, GEOGRAPHY, **given, ledger=ledger, release_id=str(key), noise=noise)


def _stops(ledger: Ledger, key: ReleaseKey, noise: str) -> Any:
    return release_stops(
        POINTS, (4, 4), unit=UNIT, budget=Budget(epsilon=2), ledger=ledger, release_id=str(key), noise=noise
    )


def _charged(release: Any, ledger: Ledger, key: ReleaseKey) -> Any:
    return replace(release, spent=ledger.compute_spent_budget(key, release.plan), noise=ledger.read_noise_backends(key))


RELEASES: dict[str, tuple[Callable[[Ledger, ReleaseKey, str], Any], Any]] = {
    "flows": (_flows, FLOWS),
    "group_sizes": (_group_sizes, GROUP_SIZES),
    "stops": (_stops, STOPS),
    "parts": (_parts, FLOWS),
}
"""How each kind is measured, and as what it is published."""


def publish(root: Path, kind: str, noise: str, period: str = PERIOD) -> Published:
    """Measure and publish a release below a folder, or what is left to do of it."""
    released, published_as = RELEASES[kind]
    ledger, key = ledger_at(root / "ledger.sqlite"), ReleaseKey(kind, period)
    ledger.declare(PrivacyDomain(kind, UNIT, Cap(rho=Fraction(10**6)), "a table and any number of lost draws"))
    release = released(ledger, key, noise)
    place = Published.from_folder(root, key, ledger)
    checks = [CheckResult(subject="release", check="made by a soak", passed=True)]
    facts = build_certificate(published_as, release, key, kind, checks, record=ledger.record(key))
    context = read_release_context(published_as, ledger, key, kind, place.releases)
    publish_release(place, published_as, release, facts, context)
    return place


def marked(seed: str) -> None:
    """From now on every draw is marked in the log, and the noise of the tables follows from a seed.

    ``draw 3`` and ``drawn 3`` stand context the draw of level 3, of a part ``3.1``; ``DRAWING 3`` and ``MEASURED 3``
    follow on entries of the ledger; ``noise`` stands at each request for random bits.
    """

    def around(once):
        def replaced(self, step, draw):
            name = f"{step.level}.{self.part}" if isinstance(self, PartMeasurements) else f"{step.level}"

            def noted():
                mark(f"draw {name}")
                yield from draw()
                mark(f"drawn {name}")

            return once(self, step, noted)

        return replaced

    def after(entry, name):
        def replaced(self, key, level, *rest):
            result = entry(self, key, level, *rest)
            mark(f"{name} {level}")
            return result

        return replaced

    def noted(draw):
        def replaced(*arguments):
            mark("noise")
            return draw(*arguments)

        return replaced

    chance = Random(seed)  # noqa: S311  # the same again, so that a trial can be repeated

    def bits(size):
        mark("bits")
        return chance.randbytes(size)

    for kept in (DurableMeasurements, PartMeasurements):
        kept.draw_once = around(kept.draw_once)
    Ledger.start_draw = after(Ledger.start_draw, "DRAWING")
    Ledger.finish_draw = after(Ledger.finish_draw, "MEASURED")
    for backend in BACKENDS.values():
        backend.draw, backend.draw_laplace = noted(backend.draw), noted(backend.draw_laplace)
    table_sampler.os = SimpleNamespace(urandom=bits)
