"""Measure time and memory of a refined release in one pass, in parts on threads, and in parts on Spark.

    python -m benchmarks.parts --json
    python -m benchmarks.parts --large        (300 million records out of core, from the raw file to refined leaves)

Each way runs in its own process, from the same counts. The seconds are from stored counts to durable measurements and
refined leaves, and include the ledger and the fingerprint of the input. They are those of the first release, and the
median of three more in the same process or session. With injected noise, all ways give the same leaves, as their
digests show.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from benchmarks.counting import NATION, REGION, geography, load, make_records, make_zones
from benchmarks.durable import durable_release
from benchmarks.injected_noise import NodeNoise
from benchmarks.measuring import fresh_process, machine, printed, read_peak_memory_gigabytes, reset_peak_memory
from benchmarks.parted_release import PartedRelease, run_in_parts
from od_core import Budget, PrivacyUnit, ReleasePlan, plan_release
from od_core.flows.bands import Bands
from od_core.flows.parts import Threads, Workers
from od_core.flows.staging import StagedRelease
from od_core.geography.flow_tree import Nodes
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.ledger import Ledger
from od_core.ledger.measurements import begin_release
from od_core.ledger.object_store import LocalStore
from od_core.ledger.release_key import ReleaseKey
from od_core.noise.backends import NoiseSource, resolve_noise_source
from od_core.privacy.budget import Cap
from od_core.privacy.domain import PrivacyDomain
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counting import count_records
from od_core.records.counts import CountFiles
from od_core.warmup import compile_all_kernels

KEY = ReleaseKey("benchmark", "2001-01")
REPEATS = 3
CUTS = (4,)


def plan_over(folder: Path, bands: Bands | None) -> ReleasePlan:
    """Return a plan at full depth, with epsilon 1."""
    budget = Budget(epsilon=1, delta="1e-8", conversion="tight")
    plan = plan_release(geography(folder), unit=PrivacyUnit("trip"), budget=budget, bands=bands, acceptance=NO_FAULTS)
    _ = plan.digest
    return plan


def in_memory(folder: Path, _part_trips: int) -> dict[str, Any]:
    """Measure one pass, with all counts and all levels in memory."""
    plan, trips = plan_over(folder, None), StagedRelease(folder).open_trip_counts().read_all()
    compile_all_kernels()
    seconds = []
    for _ in range(REPEATS + 1):
        with durable_release(plan, trips, resolve_noise_source("table")) as (_release, phases):
            seconds.append(phases["total"])
    with durable_release(plan, trips, NodeNoise(1)) as (release, _):
        return measured(seconds, [release.leaves])


def on_threads(folder: Path, part_trips: int) -> dict[str, Any]:
    """Measure parts, as many at a time as there are processors."""
    return in_parts(folder, part_trips, Threads())


def on_spark(folder: Path, part_trips: int) -> dict[str, Any]:
    """Measure parts on the executors of a local master with two cores."""
    from od_core.spark.session import SparkWorkers, open_session

    with open_session("local[2]", folder / "spark") as session:
        return in_parts(folder, part_trips, SparkWorkers(session))


def in_parts(folder: Path, part_trips: int, workers: Workers) -> dict[str, Any]:
    """Measure several releases by the same workers, and one with injected noise."""
    plan, counts = plan_over(folder, Bands(CUTS, part_trips)), StagedRelease(folder).open_trip_counts()
    compile_all_kernels()
    seconds = []
    for _ in range(REPEATS + 1):
        with parted_release(plan, counts, resolve_noise_source("table"), workers) as (_release, taken):
            seconds.append(taken)
    with parted_release(plan, counts, NodeNoise(1), workers) as (release, _):
        parts = {"parts": [len(band.parts) for band in release.bands]}
        return measured(seconds, release.pieces(plan.tree.depth)) | parts


@contextmanager
def parted_release(
    plan: ReleasePlan, counts: CountFiles, noise: NoiseSource, workers: Workers
) -> Iterator[tuple[PartedRelease, float]]:
    """Yield a release with its ledger and files in a temporary folder beside the counts, and its seconds."""
    if not isinstance(counts.store, LocalStore):
        raise TypeError("the counts of a benchmark are in a folder")
    with tempfile.TemporaryDirectory(prefix="parts-", dir=counts.store.folder) as name:
        folder = Path(name)
        ledger = Ledger(folder / "ledger.sqlite")
        ledger.declare(PrivacyDomain("benchmark", plan.unit, Cap(rho=Fraction(10**6)), "a benchmark"))
        store = LocalStore(folder / "store")
        (folder / "store").mkdir()
        (folder / "store" / "trip_counts").symlink_to(counts.store.folder / "trip_counts")
        own = CountFiles(store, counts.folder)
        start = time.perf_counter()
        with ledger.keep_open():
            confidential = ConfidentialFolder(folder / "confidential")
            kept = begin_release(confidential, ledger, KEY, "benchmark", plan, own, None, store)
            release = run_in_parts(plan, own, noise, kept, workers)
        yield release, time.perf_counter() - start


def measured(seconds: list[float], leaves: Iterable[Nodes]) -> dict[str, Any]:
    """Return the seconds of the first release, the median of the others, the peak memory and a digest of the leaves."""
    peak = read_peak_memory_gigabytes()
    digests, number = [hashlib.sha256() for _ in range(3)], 0
    for piece in leaves:
        number += len(piece)
        digests[0].update(piece.origin.tobytes())
        digests[1].update(piece.destination.tobytes())
        digests[2].update(piece.trips.tobytes())
    whole = hashlib.sha256(b"".join(digest.digest() for digest in digests)).hexdigest()
    return {
        "first_seconds": seconds[0],
        "seconds": statistics.median(seconds[1:]),
        "peak_memory_gigabytes": peak,
        "leaves": number,
        "leaves_digest": whole[:16],
    }


def out_of_core(folder: Path, part_trips: int) -> dict[str, Any]:
    """Measure the raw file to refined leaves in one process.

    Neither counts nor levels need to fit into memory.
    """
    compile_all_kernels()
    reset_peak_memory()
    start = time.perf_counter()
    load(folder)()
    loaded = time.perf_counter()
    plan, staged = plan_over(folder, Bands(CUTS, part_trips)), StagedRelease(folder)
    counts = count_records(staged.records, plan.tree, staged.store, staged.begin_trip_counts())
    counted = time.perf_counter()
    counting_peak = read_peak_memory_gigabytes()
    reset_peak_memory()
    with parted_release(plan, counts, resolve_noise_source("table"), Threads()) as (release, seconds):
        leaves = sum(map(len, release.pieces(plan.tree.depth)))
        return {
            "load_seconds": loaded - start,
            "count_seconds": counted - loaded,
            "seconds": seconds,
            "counting_peak_memory_gigabytes": counting_peak,
            "peak_memory_gigabytes": read_peak_memory_gigabytes(),
            "pairs": sum(file.pairs for file in counts.files),
            "trips": counts.total,
            "parts": [len(band.parts) for band in release.bands],
            "leaves": leaves,
        }


WAYS: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "in memory": in_memory,
    "threads": on_threads,
    "spark": on_spark,
    "out of core": out_of_core,
}


def prepare(folder: Path, records: int, zones: tuple[int, ...]) -> None:
    """Write the zones and the raw records."""
    make_zones(zones, folder)
    make_records(records, folder)


def count(folder: Path) -> None:
    """Count the raw records into files."""
    load(folder)()
    staged, plan = StagedRelease(folder), plan_over(folder, None)
    staged.save_trip_counts(count_records(staged.records, plan.tree, staged.store, staged.begin_trip_counts()))


def main() -> None:
    """Write the records, run every way, in a child process unless the records are few, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="few records, to see that it runs; not on Spark")
    parser.add_argument("--large", action="store_true", help="300 million records, out of core alone")
    parser.add_argument("--way", nargs=3, metavar=("NAME", "FOLDER", "TRIPS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        name, place, part_trips = options.way
        print(json.dumps(WAYS[name](Path(place), int(part_trips))))
        return
    records = 100_000 if options.small else 300_000_000 if options.large else 28_800_000
    ways = ["out of core"] if options.large else [way for way in WAYS if options.small or way != "out of core"]
    if importlib.util.find_spec("pyspark") is None or options.small:
        ways = [way for way in ways if way != "spark"]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, records, REGION if options.small else NATION)
        if not options.large:
            count(folder)
        part_trips = max(20_000, records // 30)
        for way in ways:
            if options.small:  # too small for a separate process
                rows.append({"way": way} | WAYS[way](folder, part_trips))
                continue
            child = fresh_process("benchmarks.parts", "--way", way, name, str(part_trips))
            rows.append({"way": way} | json.loads(child))
    printed({"machine": machine(), "records": records, "ways": rows}, as_json=options.json)


if __name__ == "__main__":
    main()
