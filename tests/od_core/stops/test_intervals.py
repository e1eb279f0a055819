"""Intervals of boxes: the noise that they allow for, and their ends by adding probabilities."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from od_core import Budget, Grid, PrivacyUnit, release_stops
from od_core.stops.mechanisms import MECHANISMS, BudgetPath
from tests.od_core.stops.doubles import Recorded

UNITS = [PrivacyUnit("trip", "unbounded"), PrivacyUnit("trip", "bounded")]


def clustered(dimensions: int, side: int, trips: int = 2_000) -> np.ndarray:
    generator = np.random.default_rng(5)
    centre = side // 3
    return np.clip(np.rint(generator.normal(centre, side / 10, (trips, dimensions))), 0, side - 1).astype(np.int64)


@pytest.fixture
def last_scales(monkeypatch) -> list[Fraction]:
    """The scales of draws that spend all that a path has left: those of the published counts."""
    scales: list[Fraction] = []
    measured = BudgetPath.measure

    def recorded(self, counts, epsilon):
        if epsilon == self.left and len(counts):
            scales.append(self.sensitivity / epsilon)
        return measured(self, counts, epsilon)

    monkeypatch.setattr(BudgetPath, "measure", recorded)
    return scales


def released(unit, sizes, mechanism, epsilon):
    """A release of clustered trips, and the widest noise that the intervals of its counts allow for."""
    points = np.minimum(clustered(len(sizes), 8), np.array(sizes) - 1)
    given = {"unit": unit, "budget": Budget(epsilon=epsilon), "mechanism": mechanism, "noise": Recorded(1)}
    release = release_stops(points, sizes, **given)
    plan = release.plan
    step = plan.step
    return release, plan.mechanism.compute_count_scale(release.measured, plan.grid, step.epsilon, step.sensitivity)


@pytest.mark.representatives
@pytest.mark.parametrize("sizes", [(16, 16), (12, 1, 12), (8, 8, 8, 8), (9,)])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", MECHANISMS)
def test_no_published_count_has_wider_noise_than_its_interval_allows_for(name, unit, sizes, last_scales):
    for epsilon in ("0.05", "1", "8"):
        last_scales.clear()
        release, widest = released(unit, sizes, name, epsilon)
        assert last_scales
        assert max(last_scales) <= widest
        cut_everywhere = (release.measured.upper == release.measured.lower).all(axis=1).any()
        if not name.startswith("daf") or (cut_everywhere and min(size for size in sizes) > 1):
            assert max(last_scales) == widest


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", ["daf_entropy", "daf_homogeneity"])
@pytest.mark.parametrize(("stop", "threshold"), [("depth", 1), ("entropy", "1/10"), ("extent", "1/8"), ("count", 9)])
def test_counts_of_every_stop_condition_have_wide_enough_intervals(name, unit, stop, threshold, last_scales):
    """A tree of depth 1 has one scale, as wide as said."""
    mechanism = MECHANISMS.make(name, stop=stop, threshold=threshold)
    for sizes in ((16, 16), (12, 1, 12)):
        last_scales.clear()
        _, widest = released(unit, sizes, mechanism, 1)
        assert max(last_scales) <= widest
        assert stop != "depth" or {*last_scales} == {widest}


@pytest.mark.parametrize("unit", UNITS)
def test_an_interval_is_the_noisy_count_and_the_least_reach_of_nine_tenths(unit):
    given = {"unit": unit, "budget": Budget(epsilon="0.5"), "mechanism": "identity", "noise": "table"}
    release = release_stops(clustered(2, 16), Grid((16, 16)), **given)
    a = math.exp(-0.5 / (2 if unit.neighbours == "bounded" else 1))
    reach, inside = 0, (1 - a) / (1 + a)
    while inside < 0.9:
        reach += 1
        inside += 2 * (1 - a) / (1 + a) * a**reach
    boxes = release.boxes
    above, beyond, further = boxes["count"] > 0, a / (1 + a), 0
    while beyond > 0.05 * above.mean():  # the probability that noise is above the distance of the lower end
        further += 1
        beyond *= a
    assert further > reach
    lower = (boxes["noisy"] - np.where(above, further, reach)).clip(lower=0)
    assert (boxes["count_lower"] == np.minimum(lower, boxes["count"])).all()
    before = replace(release, selected=False).boxes
    assert (before["count_lower"] == np.minimum((boxes["noisy"] - reach).clip(lower=0), boxes["count"])).all()
    assert before.drop(columns="count_lower").equals(boxes.drop(columns="count_lower"))
    assert (boxes["count_upper"] == np.maximum((boxes["noisy"] + reach).clip(lower=0), boxes["count"])).all()
    assert (boxes["count_lower"] == 0).any()
    assert (boxes["count"] != boxes["noisy"]).any()
