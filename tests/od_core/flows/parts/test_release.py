"""However the tree is cut, and whoever works on the parts: the same noise gives the same numbers."""

import itertools
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from benchmarks.parted_release import PartedRelease
from od_core import Bands, Budget, Geography, InfTDARefined, OdError, PrivacyUnit, ReleasePlan
from od_core.evaluation.known_flows import SyntheticFlows
from od_core.flows.parts import Threads, Work, descend_part, run_on_all_parts
from od_core.noise.backends import resolve_noise_source
from od_core.records.counts import CountFiles, TripCounts
from tests.od_core.flows.parts import passes
from tests.od_core.flows.parts.passes import NOISE, SHAPES, Dying, assert_alike, counted, in_parts, plan_of, whole
from tests.od_core.ledger.ledger_rows import charged, reservations

FLOWS = passes.small_italy(0.006)  # 49 zones, so that the last levels learn
CUTS = [((4,), 60_000), ((4,), 12_000), ((4,), 10**9), ((2,), 1), ((2, 5), 40_000), ((1,), 20_000), ((3, 4, 5), 30_000)]
MECHANISMS = {
    "empirical Bayes leaves": InfTDARefined(keep_all_cap=0, leaves="empirical_bayes"),
    "projected leaves": InfTDARefined(keep_all_cap=0),
    "every node kept": InfTDARefined(),
    "inftda": "inftda",
    "shrunk": InfTDARefined(keep_all_cap=0, estimate="shrunk"),
    "mixture": InfTDARefined(keep_all_cap=0, estimate="shrunk", leaves="empirical_bayes"),
    "auto": InfTDARefined(keep_all_cap=0, estimate="auto"),
}
CASES = [("bounded", "destination", "empirical Bayes leaves", cut) for cut in CUTS] + [
    ("bounded", "destination", "projected leaves", CUTS[1]),
    ("bounded", "destination", "every node kept", CUTS[4]),
    ("bounded", "destination", "inftda", CUTS[1]),
    ("bounded", "origin", "projected leaves", CUTS[6]),
    ("bounded", "origin", "inftda", CUTS[4]),
    ("unbounded", "destination", "empirical Bayes leaves", CUTS[4]),
    ("unbounded", "destination", "inftda", CUTS[0]),
    ("unbounded", "origin", "empirical Bayes leaves", CUTS[1]),
    ("unbounded", "origin", "every node kept", CUTS[5]),
    ("bounded", "destination", "shrunk", CUTS[4]),
    ("unbounded", "origin", "mixture", CUTS[1]),
    ("bounded", "destination", "auto", CUTS[1]),
]


@pytest.mark.representatives("bounded-origin-inftda-*", "unbounded-origin-every node kept-*", "*-mixture-*", "*-auto-*")
@pytest.mark.parametrize(("neighbours", "tree", "mechanism", "cuts"), CASES)
def test_the_same_noise_gives_the_same_release(folder, neighbours, tree, mechanism, cuts):
    asked = {"unit": PrivacyUnit("trip", neighbours), "tree": tree, "mechanism": MECHANISMS[mechanism]}
    plan, one_pass = plan_of(FLOWS, Bands(*cuts), **asked), plan_of(FLOWS, **asked)
    assert_alike(folder, plan, one_pass, counted(plan, FLOWS))


POSSIBLE = [
    ("unbounded", "destination", InfTDARefined(), CUTS[1]),
    ("bounded", "origin", InfTDARefined(), CUTS[3]),
    ("unbounded", "destination", InfTDARefined(leaves="empirical_bayes"), CUTS[6]),
    ("bounded", "destination", InfTDARefined(estimate="auto"), CUTS[4]),
]


@pytest.mark.parametrize(("neighbours", "tree", "mechanism", "cuts"), POSSIBLE)
def test_the_same_noise_gives_the_same_release_where_some_pairs_cannot_have_trips(
    folder, neighbours, tree, mechanism, cuts
):
    """These are nine in ten of the pairs without trips, so a family has no more than a few children."""
    asked = {"unit": PrivacyUnit("trip", neighbours), "tree": tree, "mechanism": mechanism}
    asked["possible"] = passes.possible_of(FLOWS)
    plan, one_pass = plan_of(FLOWS, Bands(*cuts), **asked), plan_of(FLOWS, **asked)
    assert plan.tree.cells(plan.tree.depth) < len(FLOWS.geography.zones) ** 2 / 2
    assert_alike(folder, plan, one_pass, counted(plan, FLOWS))


def test_the_same_noise_gives_the_same_release_of_users_with_a_pair_cap(folder):
    """The levels of one plan have different sensitivities then."""
    asked = {"unit": PrivacyUnit("user", "unbounded", "user", 10, max_trips_pair=2)}
    plan, one_pass = plan_of(FLOWS, Bands(*CUTS[4]), **asked), plan_of(FLOWS, **asked)
    assert len({step.sensitivity_squared for step in plan.steps}) > 1
    assert_alike(folder, plan, one_pass, counted(plan, FLOWS))


@pytest.mark.representatives
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("trips", [0, 1, 700])
def test_trees_of_odd_shapes(folder, shape, trips):
    """Of both kinds of neighbours for each shape, and for each number of trips."""
    zones, cuts = SHAPES[shape]
    neighbours = ("bounded", "unbounded")[(list(SHAPES).index(shape) + trips) % 2]
    names = ["one", "two", "three"]
    frame = pd.DataFrame(sorted(zones), columns=names, dtype="str")
    flows = made_up(Geography.from_frame(frame, names), trips)
    asked = {"unit": PrivacyUnit("trip", neighbours), "budget": Budget(epsilon="4", delta="1e-6")}
    plan, one_pass = plan_of(flows, Bands(cuts, 60), **asked), plan_of(flows, **asked)
    assert_alike(folder, plan, one_pass, counted(plan, flows))


def made_up(geography: Geography, trips: int) -> SyntheticFlows:
    random = np.random.default_rng(trips)
    origin, destination = random.integers(len(geography.zones), size=(2, 40)).astype(np.int32)
    counts = random.multinomial(trips, np.full(40, 1 / 40)).astype(np.int64)
    return replace(FLOWS, geography=geography, origin=origin, destination=destination, trips=counts)


def test_more_trips_than_32_bits_hold(folder):
    """In all, in a node of the first band, and in one leaf."""
    flows = made_up(FLOWS.geography, 10**6)
    flows = replace(flows, trips=flows.trips * (1 << 22))
    plan, one_pass = plan_of(flows, Bands((2, 4), 1 << 33)), plan_of(flows)
    trips = counted(plan, flows)
    assert int(flows.trips.max()) > 1 << 32
    parted = assert_alike(folder, plan, one_pass, trips)
    assert sum(int(piece.trips.sum()) for piece in parted.pieces(plan.tree.depth)) == trips.total


@pytest.fixture
def plan() -> ReleasePlan:
    return plan_of(FLOWS, Bands((4,), 12_000), mechanism=InfTDARefined(keep_all_cap=0))


@pytest.fixture
def trips(plan) -> TripCounts:
    return counted(plan, FLOWS)


def files_of(folder) -> dict[str, bytes]:
    """Claims and measurements, as they stand."""
    store = folder / "store"
    found = [*(store / "claims").glob("*"), *(store / "parts").glob("*")]
    return {path.name: path.read_bytes() for path in found}


def test_a_second_run_draws_nothing_and_charges_nothing(folder, plan, trips):
    real = resolve_noise_source("table")
    first = in_parts(folder, plan, trips, noise=real)
    leaves = list(first.pieces(plan.tree.depth))
    before = files_of(folder)
    second = in_parts(folder, plan, trips, noise=real)
    assert files_of(folder) == before
    for one, other in zip(leaves, second.pieces(plan.tree.depth), strict=True):
        np.testing.assert_array_equal(one.trips, other.trips)
    assert charged(folder / "ledger.sqlite") == plan.spent.rho


def ranks_of(parted: PartedRelease, part: int) -> tuple[int, int]:
    (frontier,) = parted.work.load_nodes("frontier", {"band": 1, "part": part})
    return parted.work.plan.tree.find_rank_range(frontier)


def test_a_lost_part_costs_its_level_once_more_and_the_others_stay(folder, tmp_path, plan, trips):
    expected = in_parts(tmp_path, plan, trips)
    with pytest.raises(OdError, match=r"OD-PARTS-FAILED: 1 of .* parts failed: OD-PART-FAILED part 3") as failed:
        in_parts(folder, plan, trips, noise=Dying(5, ranks_of(expected, 3)))
    assert "4711" not in str(failed.value)
    assert failed.value.next_step.startswith(f"read the newest files in {folder / 'store' / 'errors'}, then run")
    assert any(b"4711" in path.read_bytes() for path in (folder / "store" / "errors").iterdir())
    before = files_of(folder)
    assert "noisy_measurement_5.part_00003.parquet" not in before
    parted = in_parts(folder, plan, trips)
    after = files_of(folder)
    assert {name: after[name] for name in before} == before
    files = ["noisy_measurement_5.part_00003.parquet", "noisy_measurement_6.part_00003.parquet"]
    assert sorted(set(after) - set(before)) == ["5.00003.2", "6.00003.1", *files]
    charged_again = reservations(folder / "ledger.sqlite", draw=2)
    assert [(row["level"], Fraction(row["rho"])) for row in charged_again] == [(5, plan.step(5).rho)]
    passes.assert_released_alike(parted, whole(plan_of(FLOWS, mechanism=plan.mechanism), trips), trips)


def test_without_budget_for_another_round_nothing_is_drawn(folder, tmp_path, plan, trips):
    expected = in_parts(tmp_path, plan, trips)
    with pytest.raises(OdError, match="OD-PARTS-FAILED"):
        in_parts(folder, plan, trips, noise=Dying(6, ranks_of(expected, 0)), cap=plan.spent.rho)
    before = files_of(folder)
    with pytest.raises(OdError, match="OD-LEDGER-CAP"):
        in_parts(folder, plan, trips, cap=plan.spent.rho)
    assert files_of(folder) == before


def test_a_task_that_fails_is_told_by_a_code_alone(folder, plan, trips):
    class Told(Threads):
        outcomes: list[str] = []  # noqa: RUF012  # of one test

        def map(self, task, descriptors):
            found = super().map(task, descriptors)
            self.outcomes.extend([*descriptors, *found])
            return found

    workers = Told()
    in_parts(folder, plan, trips, workers)
    known = {"band", "part", "rounds"}
    for text in workers.outcomes:
        assert text == "done" or set(json.loads(text)) <= known


def test_a_plan_that_was_put_in_its_place_is_refused(folder, plan, trips):
    parted = in_parts(folder, plan, trips)
    work = parted.work
    other = Work.begin_attempt(plan_of(FLOWS, Bands((4,), 5_000)), work.store, work.counts, NOISE)
    assert other.plan.bands == Bands((4,), 5_000)  # the process forgets the first
    path = folder / "store" / "plans" / f"{work.plan_digest}.pickle"
    path.write_bytes((folder / "store" / "plans" / f"{other.plan_digest}.pickle").read_bytes())
    with pytest.raises(OdError, match=r"OD-PARTS-FAILED.*OD-PART-PLAN"):
        run_on_all_parts(Threads(), descend_part, work, [{"band": 1, "part": 0}])


def test_counts_of_a_part_are_read_and_no_others(folder, plan, trips, monkeypatch):
    asked = []
    between = CountFiles.read_ranks
    monkeypatch.setattr(CountFiles, "read_ranks", lambda self, *ranks: asked.append(ranks) or between(self, *ranks))
    parted = in_parts(folder, plan, trips)
    expected = [ranks_of(parted, part) for part in range(len(parted.bands[0].parts))]
    assert sorted(asked) == sorted(expected)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(expected))
