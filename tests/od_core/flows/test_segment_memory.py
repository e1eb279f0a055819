"""A level by segment that does not fit into memory is refused before it is drawn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from od_core import Budget, Geography, InfTDARefined, OdError, PrivacyUnit, plan_release
from od_core.errors import STAYS_CHARGED
from od_core.flows.bands import Bands
from od_core.flows.estimation import segment_levels
from od_core.flows.release import run_plan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.measurements import MemoryMeasurements
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.trip_counts import count_trips
from tests.od_core.doubles import SeededNoise


def test_a_level_beyond_the_memory_is_refused_before_it_is_drawn(monkeypatch):
    """With the number of its values. Only what was drawn before it is measured; in parts, it is not refused."""
    zones = [(f"{zone // 3}", f"{zone}") for zone in range(9)]
    asked = {"unit": PrivacyUnit("trip"), "budget": Budget(rho=1, delta=1e-8), "acceptance": NO_FAULTS}
    geography = Geography.from_frame(pd.DataFrame(zones, columns=["area", "zone"]), ["area", "zone"])
    segments = {"mode": ["car", "bus", "walk"], "hour": ["am", "pm"]}
    plan = plan_release(geography, **asked, segments=segments)
    flows = pd.DataFrame({"origin": ["0"], "destination": ["1"], "mode": ["car"], "hour": ["am"], "trips": [1000]})
    trips = count_trips(flows, plan.tree, breakdowns=plan.breakdowns)
    monkeypatch.setattr(segment_levels, "memory", lambda: 24 * 6 * 27)
    kept = MemoryMeasurements()
    with pytest.raises(OdError, match=r"OD-PARTS-NEEDED: level 4 has 486 values in 6 tables.* 0 GB") as refused:
        run_plan(plan, trips, SeededNoise(1), kept)
    assert refused.value.spent == STAYS_CHARGED
    drawn = {step.level for step in plan.steps if step.number in kept._noisy}
    assert drawn == {0, 1, 2, 3}
    few = Nodes(3, *np.zeros((2, 1), dtype=np.int32), np.ones(1, np.int64))
    monkeypatch.setattr(segment_levels, "memory", lambda: 24 * 6 * 3 - 1)
    with pytest.raises(OdError, match="OD-PARTS-NEEDED"):
        segment_levels.refuse_beyond_memory(plan, 4, few)
    in_parts = plan_release(geography, **asked, segments=segments, bands=Bands((2,)))
    segment_levels.refuse_beyond_memory(in_parts, 4, few)


def test_segments_that_are_moved_to_profiles_need_twice_the_memory(monkeypatch):
    geography = Geography.from_frame(pd.DataFrame({"zone": list("abc")}), ["zone"])
    root = Nodes(0, *np.zeros((2, 1), dtype=np.int32), np.ones(1, np.int64))
    monkeypatch.setattr(segment_levels, "memory", lambda: 24 * 3 * 3)
    for profile in (None, 1):
        plan = plan_release(
            geography,
            unit=PrivacyUnit("trip"),
            budget=Budget(rho=1, delta=1e-8),
            mechanism=InfTDARefined(segment_profile=profile),
            segments={"mode": ["car", "bus"]},
        )
        if profile is None:
            segment_levels.refuse_beyond_memory(plan, 1, root)
        else:
            with pytest.raises(OdError, match="OD-PARTS-NEEDED") as refused:
                segment_levels.refuse_beyond_memory(plan, 1, root)
            assert "bands" not in refused.value.next_step
            assert "without segment_profile" in refused.value.next_step
