"""One release in parts in a folder, by any workers, beside the same release in one pass."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np

from od_core.archive.confidential import ConfidentialFolder
from od_core.archive.ledger import Ledger
from od_core.archive.measurements import DurableMeasurements, MemoryMeasurements, begin_release
from od_core.archive.release_key import ReleaseKey
from od_core.archive.store import LocalStore
from od_core.flow_tree import Nodes
from od_core.parts.release import PartedRelease, run_in_parts
from od_core.parts.workers import Threads
from od_core.plan import ReleasePlan
from od_core.privacy.cap import Cap
from od_core.privacy.domain import PrivacyDomain
from od_core.release import run_plan

KEY = ReleaseKey("parts", "2001-01")


class Slices:
    def __init__(self, trips):
        self.trips, self.folder = trips, ""

    def between(self, first, end):
        from od_core.trips import TripCounts

        a, b = np.searchsorted(self.trips.rank, [first, end])
        return TripCounts(self.trips.rank[a:b], self.trips.before[a : b + 1] - self.trips.before[a])

    def at_level(self, tree, level):
        from od_core.trips import TripCounts

        nodes = tree.public_nodes(level)
        first = tree.first_rank(nodes)
        place = np.searchsorted(first, self.trips.rank, side="right") - 1
        totals = np.zeros(len(first), dtype=np.int64)
        np.add.at(totals, place, np.diff(self.trips.before))
        return TripCounts.from_ranks(tree, first.copy(), totals)


def begun(folder: Path, plan: ReleasePlan, trips, noise=None) -> DurableMeasurements:
    ledger = Ledger(folder / "ledger.sqlite")
    ledger.declare(PrivacyDomain("parts", plan.unit, Cap(rho=Fraction(10**6)), "a test"))
    store = LocalStore(folder / "store")
    return begin_release(ConfidentialFolder(folder / "confidential"), ledger, KEY, "parts", plan, trips, noise, store)


def in_parts(folder: Path, plan: ReleasePlan, trips, noise, workers=None) -> PartedRelease:
    return run_in_parts(plan, Slices(trips), noise, begun(folder, plan, trips), workers or Threads())


def whole(plan: ReleasePlan, trips, noise) -> Nodes:
    return run_plan(plan, trips, noise, MemoryMeasurements()).leaves


def leaves_of(parted: PartedRelease) -> Nodes:
    depth = parted.work.plan.tree.depth
    return Nodes.joined(depth, parted.pieces(depth))


def assert_same(one: Nodes, other: Nodes) -> None:
    for name in ("origin", "destination", "trips"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
