"""Data sets with a known truth: what may be one, and the published ones."""

from dataclasses import replace

import pytest

from od_core import OdError
from od_core.evaluation.known_flows import KnownFlows, list_synthetic_data_sets
from tests.od_core.strategies import frame_of, geography_of

PUBLISHED = {
    "binary complete": (256, 1_051_271, 65_536),
    "binary dense": (256, 734_688, 32_768),
    "binary sparse": (256, 23_302, 655),
    "random complete": (435, 2_019_580, 189_225),
    "random dense": (435, 1_003_943, 95_612),
    "random sparse": (435, 67_840, 1_892),
}
"""Zones, users and pairs: Boninsegna & Silvestri, section 5 and Table 1."""

GEOGRAPHY = geography_of([("a", "a1"), ("a", "a2"), ("b", "b1"), ("c", "c1")])
FLOWS = frame_of({(("a1",), ("b1",)): 4, (("a2",), ("a2",)): 1})


@pytest.mark.parametrize("marking", ["confidential", "", None])
def test_flows_of_any_other_marking_are_refused(marking):
    with pytest.raises(OdError, match="OD-EVALUATION-CONFIDENTIAL:") as caught:
        KnownFlows.from_frame("commuters", marking, FLOWS, GEOGRAPHY)
    assert "'commuters' is not marked as public or synthetic" in str(caught.value)
    known = KnownFlows.from_frame("commuters", "public", FLOWS, GEOGRAPHY)
    with pytest.raises(OdError, match="OD-EVALUATION-CONFIDENTIAL"):
        replace(known, marking=marking)


def test_equal_digests_mean_equal_data():
    """Name, geography, pairs and trips all count; how the flows were handed over does not."""
    digest = KnownFlows.from_frame("commuters", "public", FLOWS, GEOGRAPHY).digest
    assert KnownFlows.from_frame("commuters", "public", FLOWS[::-1], GEOGRAPHY).digest == digest
    others = [
        KnownFlows.from_frame("others", "public", FLOWS, GEOGRAPHY),
        KnownFlows.from_frame(
            "commuters", "public", FLOWS, geography_of([("a", "a1"), ("a", "a2"), ("b", "b1"), ("c", "c2")])
        ),
        KnownFlows.from_frame("commuters", "public", FLOWS.assign(trips=[5, 1]), GEOGRAPHY),
        KnownFlows.from_frame("commuters", "public", FLOWS.assign(trips=[1, 4]), GEOGRAPHY),
        KnownFlows.from_frame("commuters", "public", FLOWS.assign(destination=["b1", "a1"]), GEOGRAPHY),
    ]
    assert len({digest, *(other.digest for other in others)}) == 1 + len(others)


@pytest.mark.parametrize("name", PUBLISHED)
def test_synthetic_sets_have_the_published_sizes(name):
    known = list_synthetic_data_sets()[name]()
    zones, users, pairs = PUBLISHED[name]
    assert (known.name, known.marking) == (name, "synthetic")
    assert (len(known.geography.zones), known.trips.total, len(known.trips.rank)) == (zones, users, pairs)
    assert known.geography.depth == (8 if name.startswith("binary") else 4)
