"""A release on a cluster of two executors: the same bytes as in one pass, and one that is killed at four moments.

What was kept stays, what was lost is charged: before, during and after a draw.
"""

import itertools
import json
import time
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from benchmarks.parted_release import PartedRelease, run_in_parts
from od_core.errors import OdError
from od_core.flows.bands import Bands
from od_core.flows.mechanisms import InfTDARefined
from od_core.flows.parts import read_claimed_rounds
from od_core.geography.flow_tree import Nodes
from od_core.ledger.object_store import name_part_file
from od_core.records.counts import CountFiles
from od_core.spark.session import SparkWorkers, open_session
from tests.od_core.flows.parts import passes
from tests.od_core.ledger.ledger_rows import charged, reservations, states
from tests.spark.killing import MOMENTS, KillingStore, LoggedNoise
from tests.spark.plans import plans_of

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sockets of PySpark

ROOT = Path(__file__).parents[2]
LEVEL, PART = 5, 2
MECHANISM = InfTDARefined(keep_all_cap=0, leaves="empirical_bayes")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two executors of 1 GB, each a process that can be killed."""
    place = tmp_path_factory.mktemp("cluster")
    settings = {"spark.executorEnv.PYTHONPATH": str(ROOT), "spark.executorEnv.OD_THREADS": "1"}
    with open_session("local-cluster[2,1,1024]", place, settings) as session:
        yield SparkWorkers(session)


FLOWS = passes.small_italy()
PLAN = passes.plan_of(FLOWS, Bands((4,), 40_000), mechanism=MECHANISM)
TRIPS = passes.counted(PLAN, FLOWS)
ONE_PASS = passes.whole(passes.plan_of(FLOWS, mechanism=MECHANISM), TRIPS)


CUTS = [((4,), 10**9), ((4,), 60_000), ((4,), 15_000), ((2, 5), 40_000), ((1, 3, 4), 60_000)]
"""Three numbers of parts below one cut, and three plans of bands."""


@pytest.mark.parametrize("cuts", CUTS)
def test_the_same_noise_gives_the_same_release(tmp_path, cluster, cuts):
    """And no data frame of any query holds noise, nor a count: numbers of parts go out, codes come back."""
    plan = passes.plan_of(FLOWS, Bands(*cuts), mechanism=MECHANISM)
    with plans_of() as ran:
        parted = passes.in_parts(tmp_path, plan, TRIPS, cluster)
    passes.assert_released_alike(parted, ONE_PASS, TRIPS)
    assert len(ran.plans) >= 3 * len(cuts[0])
    assert ran.handed_out_only


def test_spark_connect_gives_the_same_release(tmp_path, spark_process):
    """In a process of its own, which prints what it has released."""
    found = json.loads(spark_process("connected", tmp_path, json.dumps(CUTS)).stdout.splitlines()[-1])
    assert found == [passes.digest_of(ONE_PASS.leaves)] * len(CUTS)


def released(folder: Path, workers: SparkWorkers, store: KillingStore) -> PartedRelease:
    return run_in_parts(
        PLAN, CountFiles(store, "trip_counts/one"), LoggedNoise(folder / "draws"), begun_in(folder, store), workers
    )


def begun_in(folder: Path, store: KillingStore):
    return passes.begun(folder, PLAN, CountFiles(store, "trip_counts/one"))


def kept(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Claims and measurements: which file it is, when it was written, and what it says."""
    found = [*(folder / "store" / "claims").glob("*"), *(folder / "store" / "parts").glob("*")]
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()) for path in found}


def settled(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """The same, once no task that was ended is still at work: nothing new for a second."""
    seen, still = kept(folder), 0
    while still < 5:
        time.sleep(0.2)
        now = kept(folder)
        seen, still = now, still + 1 if now == seen else 0
    return seen


def lost_draws(store: KillingStore) -> set[tuple[int, int]]:
    """Levels and parts that are claimed and not kept."""
    levels = [step.level for step in PLAN.step_bands[1]]
    claimed = [(level, part) for level in levels for part in read_claimed_rounds(store, level)]
    return {(level, part) for level, part in claimed if not store.has(name_part_file(level, part))}


def draws(folder: Path) -> Counter[str]:
    return Counter(path.name.rpartition(".")[0] for path in (folder / "draws").iterdir())


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_executor_is_killed(tmp_path, cluster, moment):
    file = name_part_file(LEVEL, PART) if moment in ("drawn", "kept") else f"claims/{LEVEL}.{PART:05d}.1"
    store = KillingStore(tmp_path / "store", moment, file)
    passes.kept_counts(store, TRIPS)
    with pytest.raises(OdError, match="OD-SPARK-JOB") as failed:
        released(tmp_path, cluster, store)
    assert (tmp_path / "killed").exists()
    assert "Exception" not in str(failed.value)
    before = settled(tmp_path)
    lost = lost_draws(store)
    # The failed job also ends the task that is on the other executor, which may be at a draw, too.
    assert ((LEVEL, PART) in lost) is (moment in ("claimed", "drawn"))
    assert set(states(tmp_path / "ledger.sqlite", str(passes.KEY)).values()) == {"MEASURED", "DRAWING"}

    again = released(tmp_path, cluster, store)
    after = kept(tmp_path)
    assert {name: after[name] for name in before} == before
    expected = [(level, PLAN.step(level).rho) for level in sorted({level for level, _ in lost})]
    charged_again = reservations(tmp_path / "ledger.sqlite", draw=2)
    assert [(row["level"], Fraction(row["rho"])) for row in charged_again] == expected
    assert charged(tmp_path / "ledger.sqlite") == PLAN.spent.rho + sum(rho for _, rho in expected)
    counts = draws(tmp_path)
    for part in range(len(again.bands[0].parts)):
        (frontier,) = again.work.load_nodes("frontier", {"band": 1, "part": part})
        first = PLAN.tree.find_rank_range(frontier)[0]
        for step in PLAN.step_bands[1]:
            assert counts[f"{step.level}.{first}"] <= read_claimed_rounds(store, step.level)[part]
    drawn = counts[
        f"{LEVEL}.{PLAN.tree.find_rank_range(again.work.load_nodes('frontier', {'band': 1, 'part': PART})[0])[0]}"
    ]
    assert drawn == (2 if moment == "drawn" else 1)
    assert_consistent(again)
    leaves = leaves_of(again)
    if moment != "drawn":
        return

    replayed = released(tmp_path, cluster, replace(store, moment=""))
    assert kept(tmp_path) == after
    assert draws(tmp_path) == counts
    np.testing.assert_array_equal(leaves.trips, leaves_of(replayed).trips)


def leaves_of(parted: PartedRelease) -> Nodes:
    return Nodes.concatenate(PLAN.tree.depth, parted.pieces(PLAN.tree.depth))


def assert_consistent(parted: PartedRelease) -> None:
    levels = [Nodes.concatenate(level, parted.pieces(level)) for level in range(PLAN.tree.depth + 1)]
    assert int(levels[-1].trips.sum()) == TRIPS.total
    for above, below in itertools.pairwise(levels):
        assert PLAN.tree.has_consistent_sums(above, below)
