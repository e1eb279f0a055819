"""Make a release as the pipeline does, with its ledger and durable files, and time its phases."""

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
from od_core.flows.estimation.levels import make_root
from od_core.flows.estimation.refinement import refine
from od_core.flows.release import run_plan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.chain import Entries
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.ledger import Ledger
from od_core.ledger.measurements import Draw, Measurements, MemoryMeasurements, NoisyVector, begin_release
from od_core.ledger.release_key import ReleaseKey
from od_core.noise.backends import NoiseSource
from od_core.privacy.budget import Cap
from od_core.privacy.domain import PrivacyDomain
from od_core.privacy.plan import Step
from od_core.records.counts import TripCounts

KEY = ReleaseKey("benchmark", "2001-01")


class TimedLedger(Ledger):
    """A ledger that adds up the seconds of its transactions."""

    seconds = 0.0

    @contextmanager
    def _open_transaction(self, *, whole: bool = False) -> Iterator[Entries]:
        start = time.perf_counter()
        try:
            with super()._open_transaction(whole=whole) as entries:
                yield entries
        finally:
            self.seconds += time.perf_counter() - start


class TimedMeasurements:
    """Measurements that add up the seconds spent in them."""

    def __init__(self, kept: Measurements) -> None:
        self._kept = kept
        self.seconds = 0.0

    def draw_once(self, step: Step, draw: Draw) -> NoisyVector:
        """Return the noisy values from the timed measurements."""
        start = time.perf_counter()
        noisy = self._kept.draw_once(step, draw)
        self.seconds += time.perf_counter() - start
        return noisy


@contextmanager
def durable_release(
    plan: ReleasePlan, trips: TripCounts, noise: NoiseSource
) -> Iterator[tuple[Release, dict[str, float]]]:
    """Yield a release with its ledger and files in a temporary folder, and its seconds by phase.

    ``ledger`` is all transactions of the ledger, each of them synced. ``fingerprint`` is that of the input. ``levels``
    is draws, estimates, writes and waits for the disk. ``rest`` is the remaining time: the refinement, if there is one.
    ``processor`` is the processor time of all threads in all phases.
    """
    with TemporaryDirectory(prefix="od-benchmark-") as name:
        folder = Path(name)
        ledger = TimedLedger(folder / "ledger.sqlite")
        ledger.declare(PrivacyDomain("benchmark", plan.unit, Cap(rho=Fraction(10**6)), "a benchmark"))
        ledger.seconds = 0.0
        start, processor = time.perf_counter(), time.process_time()
        with ledger.keep_open():
            confidential = ConfidentialFolder(folder / "confidential")
            measurements = TimedMeasurements(begin_release(confidential, ledger, KEY, "benchmark", plan, trips))
            begun, reserving = time.perf_counter(), ledger.seconds
            release = run_plan(plan, trips, noise, measurements)
        total, processor = time.perf_counter() - start, time.process_time() - processor
        seconds = {
            "total": total,
            "ledger": ledger.seconds,
            "fingerprint": begun - start - reserving,
            "levels": measurements.seconds - (ledger.seconds - reserving),
        }
        yield release, seconds | {"rest": 2 * total - sum(seconds.values()), "processor": processor}


def unwritten_seconds(plan: ReleasePlan, trips: TripCounts, noise: NoiseSource) -> float:
    """Return the seconds of the same work on all threads without ledger and files: draw, add noise, project."""
    start = time.perf_counter()
    run_plan(plan, trips, noise, MemoryMeasurements())
    return time.perf_counter() - start


def figures(release: Release) -> dict[str, Any]:
    """Return the sizes of a release: cells drawn, leaves among them, inner nodes and leaves released."""
    return {
        "draws": sum(len(measurement.noisy) for measurement in release.measured),
        "measured_leaves": len(release.measured[-1].noisy),
        "inner_nodes": sum(len(m.parents) for m in release.measured if m.parents is not None),
        "leaves": len(release.leaves),
    }


def check_invariants(release: Release, total: int) -> None:
    """Check that released counts are integers of at least 1, that children sum to their parent, and that all sum to n.

    The check goes level by level over the released nodes, so it also works on very large tables.

    Raises:
        ValueError: An invariant is violated.
    """
    tree = release.plan.tree
    if release.plan.mechanism.refines:
        levels = [*refine(release.plan, make_root(release.plan, total), release.measured)[0][:-1], release.leaves]
    else:
        levels = [*(m.parents for m in release.measured if isinstance(m.parents, Nodes)), release.leaves]
    if int(levels[0].trips.sum()) != total:
        raise ValueError("the root is not n")
    for parents, children in pairwise(levels):
        if not tree.has_consistent_sums(parents, children):
            raise ValueError(f"level {children.level} does not sum to the level above")
        if int(children.trips.min(initial=1)) < 1:
            raise ValueError(f"a node of level {children.level} is below 1")
