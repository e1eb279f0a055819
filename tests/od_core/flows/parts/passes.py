"""One release in parts in a folder, by any workers, beside the same release in one pass."""

import hashlib
from fractions import Fraction
from pathlib import Path

import numpy as np

from benchmarks.injected_noise import NodeNoise
from benchmarks.parted_release import PartedRelease, run_in_parts
from od_core import (
    Bands,
    Budget,
    Cap,
    Ledger,
    NoiseSource,
    PossiblePairs,
    PrivacyUnit,
    ReleaseKey,
    ReleasePlan,
    plan_release,
)
from od_core.evaluation.known_flows import SyntheticFlows, make_italy_flows
from od_core.flows.arrays import Integers
from od_core.flows.estimation.levels import make_published_root
from od_core.flows.estimation.refinement import refine
from od_core.flows.parts import Threads, Workers
from od_core.flows.release import Release, run_plan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.measurements import DurableMeasurements, MemoryMeasurements, begin_release
from od_core.ledger.object_store import LocalStore, Store
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counts import CountFiles, TripCounts, finish_count_files, write_count_files
from tests.od_core.ledger.ledger_rows import charged, declared, states

KEY = ReleaseKey("parts", "2001-01")
NOISE = NodeNoise(20010101)
SHAPES = {
    "a level that is not divided": ([("a", "a", "x"), ("a", "a", "y"), ("b", "b", "z"), ("c", "c", "w")], (3,)),
    "one zone beside many": ([("a", "b", f"{zone}") for zone in range(9)] + [("c", "d", "only")], (2, 4)),
    "one area above": ([("a", f"{zone % 3}", f"{zone}") for zone in range(12)], (2,)),
    "cut just above the leaves": ([(f"{zone % 2}", f"{zone % 4}", f"{zone}") for zone in range(16)], (5,)),
}
"""By what is odd about it: the zones of a geography of three levels, and cuts of its tree."""


class Dying:
    """Noise that dies in the draw of one step of one part, after the claim and before anything is kept."""

    def __init__(self, number: int, ranks: tuple[int, int], categories: int = 1) -> None:
        self.number, self.ranks, self.categories = number, ranks, categories

    def draw(self, variance, number, first, size):
        return NOISE.draw(variance, number, first, size)

    def draw_nodes(self, variance, number, positions):
        if number == self.number and self.ranks[0] <= positions[0] // self.categories < self.ranks[1]:
            raise MemoryError("CANARY 4711 trips from here to there")
        return NOISE.draw_nodes(variance, number, positions)


def small_italy(scale: float = 0.01) -> SyntheticFlows:
    """Six levels of a flow tree; 288,000 trips between 81 zones, or as many fewer of both as the scale is smaller."""
    return make_italy_flows(5, scale=scale)


def plan_of(flows: SyntheticFlows, bands: Bands | None = None, **changes) -> ReleasePlan:
    asked = {"unit": PrivacyUnit("trip"), "budget": Budget(epsilon="1", delta="1e-8"), **changes}
    return plan_release(flows.geography, bands=bands, **asked, acceptance=NO_FAULTS)


def possible_of(flows: SyntheticFlows) -> PossiblePairs:
    """The pairs of the flows with trips, and one in ten of the others."""
    zones = len(flows.geography.zones)
    is_listed = np.random.default_rng(4).random((zones, zones)) < 0.1
    is_listed[flows.origin, flows.destination] = True
    origin, destination = (side.astype(np.int32) for side in np.nonzero(is_listed))
    return PossiblePairs(origin, destination)


def counted(plan: ReleasePlan, flows: SyntheticFlows) -> TripCounts:
    return TripCounts.from_pairs(plan.tree, flows.origin, flows.destination, flows.trips)


def kept_counts(store: Store, trips: TripCounts, *, files: int = 3) -> CountFiles:
    """The counts in files of unequal sizes."""
    written = []
    for number, rows in enumerate(np.array_split(np.arange(len(trips.rank)), files)):
        pairs = trips.rank[rows], np.diff(trips.before)[rows]
        written += write_count_files(store, f"trip_counts/one/{number}-", [pairs] if len(rows) else [])
    return finish_count_files(store, "trip_counts/one", written)


def ledger_in(folder: Path, plan: ReleasePlan, cap: Fraction = Fraction(10**6)) -> Ledger:
    return declared(folder, "parts", plan.unit, Cap(rho=cap))


def begun(folder: Path, plan: ReleasePlan, counts: CountFiles, **options) -> DurableMeasurements:
    confidential, ledger = ConfidentialFolder(folder / "confidential"), ledger_in(folder, plan, **options)
    return begin_release(confidential, ledger, KEY, "parts", plan, counts, None, counts.store)


def in_parts(
    folder: Path,
    plan: ReleasePlan,
    trips: TripCounts,
    workers: Workers | None = None,
    noise: NoiseSource = NOISE,
    **options: Fraction,
) -> PartedRelease:
    """Released part by part; a second call in the same folder takes up what the first has left."""
    store = LocalStore(folder / "store")
    counts = CountFiles(store, "trip_counts/one")
    if not store.has("trip_counts/one/counted.json"):
        counts = kept_counts(store, trips)
    return run_in_parts(plan, counts, noise, begun(folder, plan, counts, **options), workers or Threads())


def whole(plan: ReleasePlan, trips: TripCounts, noise: NoiseSource = NOISE) -> Release:
    """Released in one pass, in memory."""
    return run_plan(plan, trips, noise, MemoryMeasurements())


def levels_of(release: Release, trips: TripCounts) -> tuple[list[Nodes], dict[str, Integers]]:
    """The released nodes of every measured level and of a root that is known; and the trips of leaves by category."""
    plan = release.plan
    if plan.mechanism.refines:
        return refine(plan, make_published_root(plan, trips.total), release.measured)
    above = [m.parents for m in release.measured if isinstance(m.parents, Nodes)]
    return [*above, release.leaves], {}


def digest_of(nodes: Nodes) -> str:
    """SHA-256 of some nodes, to be told by another process."""
    whole_bytes = b"".join(array.tobytes() for array in (nodes.origin, nodes.destination, nodes.trips))
    return hashlib.sha256(whole_bytes).hexdigest()


def assert_released_alike(parted: PartedRelease, release: Release, trips: TripCounts) -> None:
    """Every released level, and every category of the leaves, number by number."""
    levels, segments = levels_of(release, trips)
    for expected in levels:
        assert_same(Nodes.concatenate(expected.level, parted.pieces(expected.level)), expected)
    pieces = list(parted.segment_pieces()) if segments else []
    for name, own in segments.items():
        assert_same(Nodes.concatenate(levels[-1].level, [leaves for leaves, _ in pieces]), levels[-1])
        found = [np.empty((0, own.shape[1]), dtype=np.int64), *(of_part[name] for _, of_part in pieces)]
        np.testing.assert_array_equal(np.concatenate(found), own)


def assert_alike(folder: Path, plan: ReleasePlan, one_pass: ReleasePlan, trips: TripCounts) -> PartedRelease:
    """Release in parts and in one pass, and compare all that was measured and released, and what it was charged."""
    expected = whole(one_pass, trips)
    parted = in_parts(folder, plan, trips)
    assert_released_alike(parted, expected, trips)
    counts = CountFiles(LocalStore(folder / "store"), "trip_counts/one")
    assert_measured_alike(begun(folder, plan, counts), expected)
    ledger = folder / "ledger.sqlite"
    assert set(states(ledger, str(KEY)).values()) == {"MEASURED"}
    assert charged(ledger) == plan.spent.rho
    return parted


def assert_same(found: Nodes, expected: Nodes) -> None:
    for name in ("origin", "destination", "trips"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def assert_measured_alike(measurements: DurableMeasurements, release: Release) -> None:
    for measurement in release.measured:
        kept = measurements.read(measurement.step)
        np.testing.assert_array_equal(kept.read_values(), measurement.noisy.read_values())
