"""A level by segment that does not fit into memory is refused before it is drawn."""

import numpy as np
import pandas as pd
import pytest

from od_core import Bands, Budget, Geography, InfTDARefined, OdError, PrivacyUnit, plan_release
from od_core.errors import STAYS_CHARGED
from od_core.flows.estimation import levels as noisy_levels
from od_core.flows.parts import measure_band
from od_core.flows.release import run_plan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.measurements import MemoryMeasurements
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counting import count_trips
from tests.od_core.doubles import SeededNoise
from tests.od_core.flows.parts.passes import counted, in_parts, plan_of, small_italy, whole


def test_a_level_beyond_the_memory_is_refused_before_it_is_drawn(monkeypatch):
    """With the number of its values. Only what was drawn before it is measured; in parts, it is not refused."""
    zones = [(f"{zone // 3}", f"{zone}") for zone in range(9)]
    asked = {"unit": PrivacyUnit("trip"), "budget": Budget(rho=1, delta=1e-8), "acceptance": NO_FAULTS}
    geography = Geography.from_frame(pd.DataFrame(zones, columns=["area", "zone"]), ["area", "zone"])
    segments = {"mode": ["car", "bus", "walk"], "hour": ["am", "pm"]}
    plan = plan_release(geography, **asked, segments=segments)
    flows = pd.DataFrame({"origin": ["0"], "destination": ["1"], "mode": ["car"], "hour": ["am"], "trips": [1000]})
    trips = count_trips(flows, plan.tree, breakdowns=plan.breakdowns)
    monkeypatch.setattr(noisy_levels, "read_memory_limit", lambda: 24 * 6 * 27)
    kept = MemoryMeasurements()
    with pytest.raises(OdError, match=r"OD-PARTS-NEEDED: level 4 has 486 values in 6 tables.* 0 GB") as refused:
        run_plan(plan, trips, SeededNoise(1), kept)
    assert refused.value.spent == STAYS_CHARGED
    drawn = {step.level for step in plan.steps if step.number in kept._noisy}
    assert drawn == {0, 1, 2, 3}
    few = Nodes(3, *np.zeros((2, 1), dtype=np.int32), np.ones(1, np.int64))
    monkeypatch.setattr(noisy_levels, "read_memory_limit", lambda: 24 * 6 * 3 - 1)
    with pytest.raises(OdError, match="OD-PARTS-NEEDED"):
        noisy_levels.refuse_beyond_memory(plan, 4, few)
    in_parts = plan_release(geography, **asked, segments=segments, bands=Bands((2,)))
    noisy_levels.refuse_beyond_memory(in_parts, 4, few)


def test_parts_whose_estimates_learn_from_whole_levels_are_checked_together(tmp_path, monkeypatch):
    """Each part fits. All leaves together do not: the error is raised when all are drawn, and nothing is lost."""
    flows = small_italy()
    asked = {"mechanism": InfTDARefined(keep_all_cap=0, estimate="shrunk")}
    plan = plan_of(flows, Bands((2,), 9_000), **asked)
    trips = counted(plan, flows)
    needed = max(len(measurement.noisy) for measurement in whole(plan_of(flows, **asked), trips).measured) * 150
    monkeypatch.setattr(noisy_levels, "read_memory_limit", lambda: needed - 1)
    with pytest.raises(OdError, match="OD-PARTS-NEEDED: level 6 has") as refused:
        in_parts(tmp_path, plan, trips)
    assert refused.value.spent == STAYS_CHARGED
    drawn = {path.name for path in (tmp_path / "store" / "parts").iterdir()}
    monkeypatch.setattr(noisy_levels, "read_memory_limit", lambda: needed)
    assert in_parts(tmp_path, plan, trips, noise=SeededNoise(1)).top[-1].trips.sum() == trips.total  # draws nothing
    assert {path.name for path in (tmp_path / "store" / "parts").iterdir()} == drawn
    monkeypatch.setattr(noisy_levels, "read_memory_limit", lambda: 1)
    frontier = Nodes(2, *np.zeros((2, 1), dtype=np.int32), np.ones(1, np.int64))
    with pytest.raises(OdError, match="OD-PARTS-NEEDED: level 3"):
        measure_band(plan, 1, frontier, None, None, None)


@pytest.mark.parametrize(
    ("options", "by_value", "advice"),
    [
        ({"estimate": "shrunk"}, 150, "without estimate: shrunk"),
        ({"segment_profile": 1}, 3 * 2 * 24, "without segment_profile"),
        ({"estimate": "shrunk", "segments": True}, 3 * 24 + 150, "without estimate: shrunk"),
        ({"estimate": "auto", "segments": True}, 3 * 24 + 230, "without estimate: auto"),
        ({"area_totals": "1/10"}, 120, "release a revision without area_totals"),
    ],
    ids=str,
)
def test_whole_levels_need_memory_for_each_of_their_values(options, by_value, advice, monkeypatch):
    """Of 16 pairs of zones: 24 bytes a value of the totals and both categories, twice as many where they are moved."""
    zones = Geography.from_frame(pd.DataFrame({"area": list("aabb"), "zone": list("1234")}), ["area", "zone"])
    options, asked = dict(options), {"unit": PrivacyUnit("trip"), "budget": Budget(rho=1, delta=1e-8)}
    if options.pop("segments", False) or "segment_profile" in options:
        asked["segments"] = {"mode": ["car", "bus"]}
    totals = options.pop("area_totals", None)
    plan = plan_release(zones, **asked, area_totals=totals, mechanism=InfTDARefined(**options))
    parents = plan.tree.list_public_nodes(3)
    monkeypatch.setattr(noisy_levels, "read_memory_limit", lambda: 16 * by_value)
    noisy_levels.refuse_beyond_memory(plan, 4, parents)
    monkeypatch.setattr(noisy_levels, "read_memory_limit", lambda: 16 * by_value - 1)
    with pytest.raises(OdError, match="OD-PARTS-NEEDED") as refused:
        noisy_levels.refuse_beyond_memory(plan, 4, parents)
    assert advice in refused.value.next_step
