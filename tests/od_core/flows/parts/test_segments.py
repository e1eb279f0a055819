"""A release by segment gives the same numbers in parts as in one pass."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.parted_release import PartedRelease
from od_core import Bands, Geography, InfTDARefined, OdError, PrivacyUnit, ReleasePlan
from od_core.evaluation.known_flows import SyntheticFlows
from od_core.geography.flow_tree import Pairs
from od_core.ledger.object_store import LocalStore
from od_core.records.counts import CountFiles, finish_count_files, write_count_files
from tests.od_core.flows.parts.passes import assert_alike, plan_of, possible_of, small_italy, whole

FLOWS = small_italy(0.006)  # 49 zones, so that the last levels learn
MODES = {"mode": ["car", "bus", "walk"]}
BOTH = {**MODES, "hour": ["am", "pm"]}
DROPPING = InfTDARefined(keep_all_cap=0)
CASES = {
    "two bands": (((4,), 12_000), MODES, {}),
    "parts of one node": (((2,), 1), MODES, {}),
    "three bands": (((2, 5), 40_000), BOTH, {}),
    "every level a band": (((1, 2, 3, 4, 5), 40_000), MODES, {}),
    "all nodes kept": (((3, 4, 5), 30_000), BOTH, {"mechanism": InfTDARefined()}),
    "a noisy total": (((2, 5), 40_000), BOTH, {"unit": PrivacyUnit("trip", "unbounded")}),
    "origins first": (((4,), 12_000), MODES, {"tree": "origin"}),
    "another share": (((1, 4), 12_000), BOTH, {"segment_share": "0.9"}),
    "some pairs": (((2, 5), 40_000), BOTH, {"mechanism": InfTDARefined(), "possible": possible_of(FLOWS)}),
}


def counts_by_segment(folder: Path, plan: ReleasePlan, flows: SyntheticFlows) -> CountFiles:
    """Divide the trips of each pair among the categories, and store the counts in files."""
    random = np.random.default_rng(7)
    codes = int(np.prod([len(one.categories) for one in plan.breakdowns]))
    rank = plan.tree.compute_first_ranks(Pairs(plan.tree.depth, flows.origin, flows.destination))
    trips = random.multinomial(flows.trips, random.dirichlet(np.full(codes, 0.5), len(rank)))
    order = np.argsort(rank)
    rows = np.repeat(rank[order], codes), trips[order].ravel(), np.tile(np.arange(codes, dtype=np.int32), len(rank))
    present = rows[1] > 0
    store, kept = LocalStore(folder / "store"), [column[present] for column in rows]
    written, first = [], 0
    for number, end in enumerate(np.searchsorted(kept[0], [*np.unique(kept[0])[40::300], 1 << 62]).tolist()):
        piece = tuple(column[first:end] for column in kept)
        written += write_count_files(store, f"trip_counts/one/{number}-", [piece] if end > first else [])
        first = end
    return finish_count_files(store, "trip_counts/one", written, plan.breakdowns)


def in_parts_and_in_one_pass(folder: Path, cuts: tuple, **asked) -> PartedRelease:
    plan = plan_of(FLOWS, Bands(*cuts), **asked)
    return assert_alike(folder, plan, plan_of(FLOWS, **asked), counts_by_segment(folder, plan, FLOWS).read_all())


@pytest.mark.representatives("a noisy total")
@pytest.mark.parametrize("case", CASES)
def test_the_same_noise_gives_the_same_release(folder, case):
    cuts, segments, changes = CASES[case]
    parted = in_parts_and_in_one_pass(folder, cuts, **{"mechanism": DROPPING, "segments": segments} | changes)
    assert len(parted.bands[-1].parts) > 1


@pytest.mark.representatives("*shrunk*")
@pytest.mark.parametrize("option", [{"estimate": "shrunk"}, {"segment_profile": 1}], ids=str)
def test_what_learns_from_whole_levels_is_measured_in_parts(folder, option):
    """The estimates of one pass, not those of least squares."""
    mechanism = InfTDARefined(keep_all_cap=0, **option)
    parted = in_parts_and_in_one_pass(folder, ((2, 4), 12_000), segments=BOTH, mechanism=mechanism)
    assert len(list((folder / "store" / "parts").iterdir())) > len(parted.work.plan.steps)
    of_least_squares = plan_of(FLOWS, segments=BOTH, mechanism=DROPPING)
    trips = CountFiles(parted.work.store, parted.work.counts).read_all()
    ((leaves, segments),) = parted.segment_pieces()
    other = whole(of_least_squares, trips)
    same = np.array_equal(leaves.trips, other.leaves.trips)
    assert not same or not np.array_equal(segments["mode"], other.segments["mode"])


@pytest.mark.parametrize("segments", [None, MODES])
def test_a_band_without_a_measured_level_is_refused(segments):
    """A level whose nodes have one child each is not measured. Dagster would take the next band for this one."""
    zones = [("a", "a", "x"), ("a", "a", "y"), ("b", "b", "z"), ("c", "c", "w")]
    names = ["one", "two", "three"]
    geography = Geography.from_frame(pd.DataFrame(zones, columns=names, dtype="str"), names)
    flows = SyntheticFlows("odd", geography, *np.zeros((2, 1), dtype=np.int32), np.ones(1, dtype=np.int64))
    assert plan_of(flows, Bands((3,)), segments=segments).unmeasured_levels == [2, 3]
    with pytest.raises(OdError, match=r"OD-BANDS: a band has no level that is measured"):
        plan_of(flows, Bands((2, 3)), segments=segments)
