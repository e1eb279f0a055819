"""Gray-box audit of trips with stops: trees tell no more of a trip than was planned; seeded defects are seen.

An auditor knows two neighbouring inputs, one of which has a trip more, and looks for one event. Any pure epsilon is at
least log(p1 / p0), with p0 and p1 its chances under both. They are bounded from so many trees of the real mechanisms
with real noise by Clopper and Pearson, p1 from below and p0 from above, at half of 1e-6 each: a bound above the true
log(p1 / p0) is seen with probability 1e-6 at most. The events are those of largest log(p1 / p0): whatever is measured
of the trip's nodes is at least what it is with the trip, and what is chosen is what the trip speaks for. Their chances
are known exactly, so that a test can say how seldom it misses what it must see.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from od_core.noise.backends import resolve_noise_source
from od_core.stops import mechanisms
from od_core.stops.geometry import Grid, Nodes, count_trips_by_cell
from od_core.stops.mechanisms import BudgetPath, DAFEntropy, DAFHomogeneity, PrivTree, choose_noisy_minimum
from tests.statistical.laws import ALPHA, least_epsilon, sure_epsilon

CLAIM = Fraction(3)
"""Epsilon of whole trees."""

NEARLY = 0.5
"""Share of the claim that right noise must show, so that noise far too wide is seen as well."""

Chances = tuple[float, float]
"""Of the event without the trip, and with it."""


def at_least(k: int, scale: Fraction) -> float:
    """P(Z >= k), Z discrete Laplace."""
    a = math.exp(-1 / scale)
    return a**k / (1 + a) if k >= 1 else 1 - a ** (1 - k) / (1 + a)


def chance_to_miss(chances: Chances, bound: float, runs: int) -> float:
    """Probability, at most, that so many runs show no more than the bound."""
    return ALPHA if sure_epsilon(chances, runs) > bound else 1.0


def assert_tells_nearly(claim: Fraction, bound: float, chances: Chances, runs: int) -> None:
    """What was shown is within the claim, and at least half of it, which so many runs hardly miss."""
    assert bound <= claim
    assert chance_to_miss(chances, NEARLY * claim, runs) <= ALPHA
    assert bound > NEARLY * claim


class Backend:
    """The noise of a real backend, which is asked for much of a scale at a time, since trees ask for little."""

    def __init__(self) -> None:
        self.source = resolve_noise_source("table")
        self.drawn: dict[Fraction, NDArray[np.int64]] = {}

    def draw_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        drawn = self.drawn.get(scale, np.empty(0, dtype=np.int64))
        if len(drawn) < size:
            drawn = self.source.draw_laplace(scale, 10_000 + size)
        self.drawn[scale] = drawn[size:]  # nothing is used twice
        return drawn[:size]


class Missed(Exception):  # noqa: N818  # it is no error
    """The event cannot happen any more, whatever the rest of the tree is."""


Seen = list[tuple[NDArray[np.int64], NDArray[np.int64]]]
"""Counts that were measured, true and noisy."""


@dataclass(frozen=True, eq=False)
class Watched(BudgetPath):
    """A path that shows the auditor every count, noisy and true, until he knows that his event will not happen."""

    may_happen: Callable[[Seen], bool] = lambda _: True
    seen: Seen = field(default_factory=list)

    def measure(self, counts, epsilon):
        noisy, path = super().measure(counts, epsilon)
        self.show(counts, noisy)
        return noisy, path

    def show(self, counts: NDArray[np.int64], noisy: NDArray[np.int64]) -> None:
        self.seen.append((counts, noisy))
        if not self.may_happen(self.seen):
            raise Missed


def shown(event: Callable[[bool, Watched], bool], runs: int, path: type[Watched] = Watched) -> float:
    """The lower bound of epsilon from so many fresh trees of each input."""
    source, happened = Backend(), [0, 0]
    for more in (False, True):
        for _ in range(runs):
            with suppress(Missed):
                happened[more] += event(more, path(source, 1, CLAIM))
    return least_epsilon((happened[0], happened[1]), runs)


# DAF-Entropy: a space of one cell, so that every count of the tree is of the changed one.

TRIPS = 40
ONE_CELL = Grid((1, 1, 1))


def entropy_event(more: bool, path: Watched) -> bool:
    """All counts are above what they are without the trip."""
    path = replace(path, may_happen=lambda seen: seen[-1][1][0] > TRIPS)
    drawn = DAFEntropy().draw_boxes(np.zeros((TRIPS + more, 3), dtype=np.int32), ONE_CELL, path)
    assert len(drawn.boxes) == 1
    return True


def entropy_chances(root: Fraction, depths: list[Fraction]) -> Chances:
    """Of counts that cost so much each; more than 40 trips never stop."""
    scales = [1 / cost for cost in [root, *depths]]
    return math.prod(at_least(1, scale) for scale in scales), math.prod(at_least(0, scale) for scale in scales)


EQUAL = [CLAIM * Fraction(99, 300)] * 3


def test_daf_entropy_tells_no_more_than_claimed_and_nearly_that():
    """Each direction fails with probability 1e-6."""
    chances = entropy_chances(CLAIM / 100, EQUAL)
    assert math.log(chances[1] / chances[0]) == pytest.approx(3)
    assert_tells_nearly(CLAIM, shown(entropy_event, runs := 10_000), chances, runs)


def test_a_root_count_that_takes_more_than_it_is_charged_is_caught():
    """The root measured with the whole budget, as if it were free. Fails with probability 1e-6."""
    assert chance_to_miss(entropy_chances(CLAIM, EQUAL), CLAIM, runs := 10_000) <= ALPHA

    class Cheating(Watched):
        def measure(self, counts, epsilon):
            if self.spent == 0:
                noisy = counts + self.source.draw_laplace(1 / self.left, len(counts))
                self.show(counts, noisy)
                return noisy, self.with_charge(epsilon)
            return super().measure(counts, epsilon)

    assert shown(entropy_event, runs, Cheating) > CLAIM


# DAF-Homogeneity: a trip that makes one way to cut more even by 2, and the other less even by 2.

HELD = np.array([0, 2, 6, 4, 3, 3, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0])
CELL = 8
FAVOURED, OTHER = 9, 8
"""Where the two candidates cut."""

LINE = Grid((24, 1, 1, 1))


def line_trips(more: bool) -> NDArray[np.int32]:
    held = HELD + more * (np.arange(len(HELD)) == CELL)
    points = np.zeros((held.sum(), 4), dtype=np.int32)
    points[:, 0] = np.repeat(np.arange(len(held)), held)
    return points


def line_scores(more: bool, candidates: NDArray[np.int32]) -> NDArray[np.int64]:
    rows = count_trips_by_cell(line_trips(more), LINE)
    return mechanisms.compute_heterogeneity(rows, Nodes.make_root(rows, LINE), 0, np.array([2]), candidates)


def chance_of_first(scores: NDArray[np.int64], scale: Fraction) -> float:
    """Exact chance that the first candidate has the least noisy score; ties are its own. To 1e-15."""
    reach = int(40 * scale) + 60
    k = np.arange(-reach, reach + 1)
    a = math.exp(-1 / scale)
    mass = (1 - a) / (1 + a) * a ** np.abs(k)
    beaten = np.ones(len(k))
    for other in scores[1:]:
        beaten *= [at_least(int(scores[0] + z - other), scale) for z in k]
    return float((mass * beaten).sum())


CHOICE_CLAIM = Fraction(3, 10)
CHOICES = 400_000
CANDIDATES = np.array([[0, FAVOURED]] + [[0, OTHER]] * 9, dtype=np.int32)


def choice_chances(scale: Fraction) -> Chances:
    before, after = (line_scores(more, CANDIDATES)[0] for more in (False, True))
    assert (after - before).tolist() == [-mechanisms.SCORE_SENSITIVITY] + [mechanisms.SCORE_SENSITIVITY] * 9
    return chance_of_first(before, scale), chance_of_first(after, scale)


def chosen_bound() -> float:
    """From so many nodes that choose at once, of each input, by the real choice."""
    happened = []
    for more in (False, True):
        path = BudgetPath(resolve_noise_source("table"), 1, Fraction(1))
        scores = np.repeat(line_scores(more, CANDIDATES), CHOICES, axis=0)
        happened.append(int(np.count_nonzero(choose_noisy_minimum(scores, CHOICE_CLAIM, path) == 0)))
    return least_epsilon((happened[0], happened[1]), CHOICES)


def test_a_choice_tells_no_more_than_it_is_charged_and_nearly_that():
    """Each direction fails with probability 1e-6."""
    chances = choice_chances(4 / CHOICE_CLAIM)
    assert math.log(chances[1] / chances[0]) <= CHOICE_CLAIM
    assert_tells_nearly(CHOICE_CLAIM, chosen_bound(), chances, CHOICES)


def test_the_printed_noise_of_the_choice_is_caught(monkeypatch):
    """Lap(2 / (p epsilon)): p = 10 at a claimed 0.3 tells up to 6. Fails with probability 1e-6."""
    printed = 2 / (10 * CHOICE_CLAIM)
    chances = choice_chances(printed)
    assert chance_to_miss(chances, CHOICE_CLAIM, CHOICES) <= ALPHA
    monkeypatch.setattr(
        mechanisms, "compute_choice_scale", lambda epsilon, sensitivity: 2 * sensitivity / (10 * epsilon)
    )
    assert chosen_bound() > CHOICE_CLAIM


@pytest.fixture
def two_ways_to_cut(monkeypatch):
    """Candidates are public, so the auditor may know them."""
    both = np.array([[0, FAVOURED], [0, OTHER]], dtype=np.int32)

    def known(parts, length, candidates):
        return both if parts.tolist() == [2] else np.tile(mechanisms.make_equal_parts(parts, length), (2, 1))

    monkeypatch.setattr(mechanisms, "draw_random_cuts", known)


TOTAL, BELOW = int(HELD.sum()), int(HELD[:FAVOURED].sum())
"""Trips in all, and in the first part of the favoured cut, without the trip."""

MOST_FOR_TWO_PARTS = 116
"""Noisy totals from 6 to this one give two parts by the formula, to nearest, at 2.94 left and four dimensions."""


def homogeneity_event(more: bool, path: Watched) -> bool:
    """The cut is the favoured one, and the total and all counts of the trip's nodes are above those without it."""

    def may_happen(seen):
        (_, root), *below = seen
        return TOTAL < root[0] <= MOST_FOR_TWO_PARTS and all(
            noisy[0] > BELOW for counts, noisy in below[-1:] if counts[0] == BELOW + more
        )

    path = replace(path, may_happen=may_happen)
    drawn = DAFHomogeneity("nearest", candidates=2).draw_boxes(line_trips(more), LINE, path)
    return FAVOURED in drawn.boxes.lower[:, 0]


def homogeneity_chances(choice_scale: Fraction, left: Fraction) -> Chances:
    """The total, the choice, and one count of the trip's node at each of four depths."""
    both = np.array([[0, FAVOURED], [0, OTHER]], dtype=np.int32)
    result = []
    for more in (False, True):
        k, wide = 1 - more, 1 / (mechanisms.ROOT_SHARE * CLAIM)
        chance = at_least(k, wide) - at_least(MOST_FOR_TWO_PARTS + 1 - TOTAL - more, wide)
        chance *= chance_of_first(line_scores(more, both)[0], choice_scale)
        shares = mechanisms.split_budget_by_depth(left, 2, 4)
        result.append(chance * math.prod(at_least(k, 1 / share) for share in shares))
    return result[0], result[1]


def test_daf_homogeneity_tells_no_more_than_claimed_and_nearly_that(two_ways_to_cut):
    """Each direction fails with probability 1e-6."""
    chances = homogeneity_chances(4 / (CLAIM / 100), CLAIM * Fraction(98, 100))
    assert 2.9 < math.log(chances[1] / chances[0]) <= 3
    assert_tells_nearly(CLAIM, shown(homogeneity_event, runs := 18_500), chances, runs)


def test_a_root_choice_that_is_not_charged_is_caught(two_ways_to_cut, monkeypatch):
    """The root chooses with noise for twice the whole budget, and is charged nothing, as in the paper's algorithm 3.

    Fails with probability 1e-6.
    """
    free = 2 * CLAIM
    chances = homogeneity_chances(4 / free, CLAIM * Fraction(99, 100))
    assert chance_to_miss(chances, CLAIM, runs := 12_500) <= ALPHA
    monkeypatch.setattr(
        mechanisms, "choose_noisy_minimum", lambda scores, _, path: choose_noisy_minimum(scores, free, path)
    )
    monkeypatch.setattr(DAFHomogeneity, "compute_depth_costs", mechanisms.DAFEntropy.compute_depth_costs)
    assert shown(homogeneity_event, runs) > CLAIM


# PrivTree: all trips in one corner, so that every node of the path to it has as many; of the worst number.


def corner_event(side: int, trips: int) -> Callable[[bool, Watched], bool]:
    """The corner's cell is a box of its own, with at least as many trips as with the one more."""

    def event(more, path):
        boxes = PrivTree().draw_boxes(np.zeros((trips + more, 1), dtype=np.int32), Grid((side,)), path).boxes
        corner = np.flatnonzero(boxes.lower[:, 0] == 0)[0]
        return bool(boxes.upper[corner, 0] == 0 and boxes.noisy[corner] > trips)

    return event


def corner_chances(side: int, trips: int, scale: Fraction, decay: int) -> Chances:
    result = []
    for more in (False, True):
        chance = at_least(1 - more, 1 / (Fraction(3, 10) * CLAIM))
        for depth in range(side.bit_length() - 1):
            chance *= at_least(1 - max(trips + more - depth * decay, -decay), scale)
        result.append(chance)
    return result[0], result[1]


SCALE, DECAY = mechanisms.find_scale_and_decay(Fraction(7, 10) * CLAIM, 1)


def test_privtree_tells_no_more_than_claimed_and_nearly_that():
    """Four tests at 2, 1, 0, -1 above their thresholds. Each direction fails with probability 1e-6."""
    chances = corner_chances(16, 2, SCALE, DECAY)
    assert 2.6 < math.log(chances[1] / chances[0]) < 3
    assert_tells_nearly(CLAIM, shown(corner_event(16, 2), runs := 9_000), chances, runs)


COSTLY = [(64, 0, SCALE, 0, 16_500), (4, 1, SCALE / 4, DECAY, 5_000)]


@pytest.mark.parametrize(("side", "trips", "scale", "decay", "runs"), COSTLY)
def test_splits_that_cost_more_are_caught(side, trips, scale, decay, runs, monkeypatch):
    """Counts that depth does not lower; noise of a quarter of the width. Fails with probability 1e-6."""
    assert chance_to_miss(corner_chances(side, trips, scale, decay), CLAIM, runs) <= ALPHA
    monkeypatch.setattr(mechanisms, "find_scale_and_decay", lambda epsilon, sensitivity: (scale, decay))
    assert shown(corner_event(side, trips), runs) > CLAIM
