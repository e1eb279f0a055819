"""One release as the pipeline makes it, ledger and durable files included, with its seconds by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from od_core import Release, ReleasePlan
from od_core.flows.estimation.refinement import refine
from od_core.flows.estimation.top_down import root_of
from od_core.flows.release import run_plan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.chain import Entries
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.ledger import Ledger
from od_core.ledger.measurements import Draw, Measurements, MemoryMeasurements, NoisyVector, begin_release
from od_core.ledger.protocols import PlannedStep
from od_core.ledger.release_key import ReleaseKey
from od_core.noise.sources import NoiseSource
from od_core.privacy.cap import Cap
from od_core.privacy.domain import PrivacyDomain
from od_core.records.trip_counts import TripCounts

KEY = ReleaseKey("benchmark", "2001-01")


class TimedLedger(Ledger):
    """A ledger, and the seconds that went into its transactions."""

    seconds = 0.0

    @contextmanager
    def _transaction(self) -> Iterator[Entries]:
        start = time.perf_counter()
        try:
            with super()._transaction() as entries:
                yield entries
        finally:
            self.seconds += time.perf_counter() - start


class TimedMeasurements:
    """Measurements, and the seconds that went into them."""

    def __init__(self, kept: Measurements) -> None:
        self._kept = kept
        self.seconds = 0.0

    def once(self, step: PlannedStep, draw: Draw) -> NoisyVector:
        """As the measurements that are timed."""
        start = time.perf_counter()
        noisy = self._kept.once(step, draw)
        self.seconds += time.perf_counter() - start
        return noisy


class NothingKept:
    """Measurements that are let go as soon as they are estimated; of no use where they are refined."""

    def once(self, step: PlannedStep, draw: Draw) -> NoisyVector:
        """Draws the level; what is given back is empty."""
        for _ in draw():
            pass
        return NoisyVector.in_memory([])


@contextmanager
def durable_release(
    plan: ReleasePlan, trips: TripCounts, noise: NoiseSource
) -> Iterator[tuple[Release, dict[str, float]]]:
    """A release with its ledger and files in a temporary folder, and the seconds it took, by phase.

    ``ledger`` is every transaction of the ledger, each of them synced; ``fingerprint`` that of the input; ``levels``
    draws, estimates, writes, and waits for the disk; ``rest`` is the refinement, where there is one.
    """
    with TemporaryDirectory(prefix="od-benchmark-") as name:
        folder = Path(name)
        ledger = TimedLedger(folder / "ledger.sqlite")
        ledger.declare(PrivacyDomain("benchmark", plan.unit, Cap(rho=Fraction(10**6)), "a benchmark"))
        ledger.seconds = 0.0
        start = time.perf_counter()
        with ledger.kept_open():
            confidential = ConfidentialFolder(folder / "confidential")
            measurements = TimedMeasurements(begin_release(confidential, ledger, KEY, "benchmark", plan, trips))
            begun, reserving = time.perf_counter(), ledger.seconds
            release = run_plan(plan, trips, noise, measurements)
        total = time.perf_counter() - start
        seconds = {
            "total": total,
            "ledger": ledger.seconds,
            "fingerprint": begun - start - reserving,
            "levels": measurements.seconds - (ledger.seconds - reserving),
        }
        yield release, seconds | {"rest": 2 * total - sum(seconds.values())}


def unwritten_seconds(plan: ReleasePlan, trips: TripCounts, noise: NoiseSource) -> float:
    """Seconds of the same work where nothing is kept: draw, add, project, on all threads; no ledger, no files.

    What is refined has to be kept, in memory.
    """
    start = time.perf_counter()
    run_plan(plan, trips, noise, MemoryMeasurements() if plan.mechanism.refines else NothingKept())
    return time.perf_counter() - start


def figures(release: Release) -> dict[str, Any]:
    """Sizes of a release: cells drawn, inner nodes and leaves released."""
    return {
        "draws": sum(len(measurement.noisy) for measurement in release.measured),
        "inner_nodes": sum(len(m.parents) for m in release.measured if m.parents is not None),
        "leaves": len(release.leaves),
    }


def check_invariants(release: Release, total: int) -> None:
    """Whole numbers of at least 1; the children of every node sum to it; all to n. Raises ValueError.

    Level by level over the released nodes, so that it holds for tables of any size.
    """
    tree = release.plan.tree
    if release.plan.mechanism.refines:
        levels = [*refine(release.plan, root_of(release.plan, total), release.measured)[:-1], release.leaves]
    else:
        levels = [*(m.parents for m in release.measured if isinstance(m.parents, Nodes)), release.leaves]
    if int(levels[0].trips.sum()) != total:
        raise ValueError("the root is not n")
    for parents, children in pairwise(levels):
        if not tree.sums_agree(parents, children):
            raise ValueError(f"level {children.level} does not sum to the level above")
        if int(children.trips.min(initial=1)) < 1:
            raise ValueError(f"a node of level {children.level} is below 1")
