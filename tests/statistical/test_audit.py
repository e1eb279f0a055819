"""Gray-box audit: noisy measurements tell no more about a unit than was planned, and seeded defects are seen.

An auditor knows two neighbouring data sets and the noisy measurements of one of them, and guesses which one it was:
the second where a weighted sum of the values lies above the middle of what both would give without noise. Weights and
middle follow from the two data sets alone, before any draw. Where mu bounds the loss as for a Gaussian, the guess is
wrong no less often than Phi(-mu / 2), averaged over both data sets (Dong, Roth & Su, Gaussian Differential Privacy,
2022); so where p is an upper bound of that average, mu >= -2 Phi^-1(p). Of independent guesses with two chances to be
wrong, the number of errors has lighter tails than the binomial law of their average (Hoeffding 1956): one Clopper and
Pearson bound over both sides holds, and no error probability is split.

The interval is two-sided at 1e-6, one direction a test. Noise on integers keeps the bound of the normal law only
nearly, so each test works the auditor's true chance out from the discrete law, and asserts with it, before it looks at
the draws, that it fails by mistake with probability 1e-6 at most. The noise comes from the real backends, at the
variances that the real measuring asks them for, on the counts that it makes; at 16 levels (and the root), where a level
left out of the split is hardest to see.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats

from od_core import Budget, Geography, PrivacyUnit, plan_release
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counting import count_trips
from tests.statistical.laws import ALPHA, probabilities

CLAIM = math.sqrt(2)
"""Mu at rho = 1."""

RUNS = 200_000
"""Releases of each data set."""

UNITS = {
    "trip-bounded": PrivacyUnit("trip", "bounded"),
    "trip-unbounded": PrivacyUnit("trip", "unbounded"),
    "user-unbounded": PrivacyUnit("user", "unbounded", column="user_id", max_trips=4),
}


@dataclass(frozen=True)
class Level:
    """A vector of counts as it is measured: in both data sets, and with the variance that is asked for."""

    variance: Fraction
    before: NDArray[np.int64]
    after: NDArray[np.int64]

    @property
    def change(self) -> NDArray[np.int64]:
        return self.after - self.before


Weights = list[NDArray[np.int64]]
Direction = Callable[[list[Level]], Weights]


class Asked:
    """Noise of 0, so that the counts are measured as they are; keeps the variances that are asked for."""

    def __init__(self) -> None:
        self.variances: dict[int, Fraction] = {}

    def draw(self, variance, level, first, size):
        self.variances[level] = variance
        return np.zeros(size, dtype=np.int64)


def measured_levels(unit: PrivacyUnit, *, depth: int = 8, trips: int | None = None) -> list[Level]:
    """The measured levels of two neighbours, at rho = 1: all trips of one unit go from a to a or, after, from b to b.

    Unbounded, the unit is not there before. Its cells differ at level 1 in both ends, and so at every level below.
    """
    zones = pd.DataFrame({f"level_{k}": [f"a{k}", f"b{k}"] for k in range(1, depth + 1)})
    geography = Geography.from_frame(zones, list(zones.columns))
    plan = plan_release(
        geography, unit=unit, budget=Budget(rho=1, delta="1e-8"), mechanism="inftda", acceptance=NO_FAULTS
    )
    a, b = geography.zones
    trips = unit.contribution_bound if trips is None else trips
    units = [(a, a, trips if unit.neighbours == "bounded" else 0)], [(b, b, trips)]
    asked, sides = Asked(), []
    for one in units:
        rows = [*((o, d, 100) for o in (a, b) for d in (a, b)), *one]
        flows = pd.DataFrame(rows, columns=["origin", "destination", "trips"])
        release = run_plan(plan, count_trips(flows, plan.tree), asked, MemoryMeasurements())
        sides.append([measurement.noisy.read_values() for measurement in release.measured])
    variances = [asked.variances[step.level] for step in plan.steps]
    return [Level(*level) for level in zip(variances, *sides, strict=True)]


def likelihood_ratio(levels: list[Level]) -> Weights:
    """Change over variance, up to a factor: no guess from planned noise is better (Neyman and Pearson)."""
    assert len({(level.variance, abs(level.change).max()) for level in levels}) == 1
    return [np.sign(level.change) for level in levels]


def between_workers(levels: list[Level]) -> Weights:
    """The second half of each level's cells minus the first half: free of noise where two workers drew the same."""
    return [np.sign(2 * np.arange(size) + 1 - size) for size in (len(level.change) for level in levels)]


def between_levels(levels: list[Level]) -> Weights:
    """A cell that the unit is in minus the cell at the same place of the level below, which it is not in."""
    first = next(number for number, level in enumerate(levels) if len(level.change) == 2)
    assert levels[first].change[1] > 0 == levels[first + 1].change[1]
    weights = [np.zeros(len(level.change), dtype=np.int64) for level in levels]
    weights[first][1], weights[first + 1][1] = 1, -1
    return weights


DIRECTIONS = [likelihood_ratio, between_workers, between_levels]


def own(noise: NDArray[np.int64], _above: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Every cell has noise of its own."""
    return noise


def of_one_worker(noise: NDArray[np.int64], _above: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Two forked workers drew the same for their halves of a level."""
    half = noise.shape[1] // 2
    return np.hstack([noise[:, :half], noise[:, :half]])


def of_level_above(noise: NDArray[np.int64], above: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """A worker forked anew for each level drew the same for all."""
    return noise if above is None else above


def middle_of(levels: list[Level], weights: Weights) -> float:
    return sum(float(w @ (level.before + level.after)) for w, level in zip(weights, levels, strict=True)) / 2


def wrong_guesses(
    levels: list[Level], direction: Direction, *, backend: str = "table", runs: int = RUNS, noise_of: Callable = own
) -> int:
    """Errors in guessing the data set from so many releases of each. Cells without weight are not drawn."""
    weights, source, wrong = direction(levels), resolve_noise_source(backend), 0
    middle = middle_of(levels, weights)
    for is_after in (False, True):
        score, above = np.zeros(runs, dtype=np.int64), None
        for number, (level, weight) in enumerate(zip(levels, weights, strict=True)):
            seen = np.flatnonzero(weight)
            if len(seen) == 0:
                continue
            drawn = source.draw(level.variance, number, 0, runs * len(seen)).reshape(runs, len(seen))
            above = noise_of(drawn, above)
            counts = level.after if is_after else level.before
            score += (counts[seen] + above) @ weight[seen]
        wrong += int(np.count_nonzero((score > middle) != is_after))
    return wrong


def true_error(levels: list[Level], direction: Direction) -> float:
    """Chance to guess wrong, the average of both sides, by the law of the sum of the cells' discrete Gaussians."""
    weights = direction(levels)
    law = np.ones(1)
    for level, weight in zip(levels, weights, strict=True):
        assert set(np.abs(weight)) <= {0, 1}
        for _ in np.flatnonzero(weight):
            law = np.convolve(law, probabilities(float(level.variance))[1])
    noise = np.arange(len(law)) - len(law) // 2
    before, after = (
        sum(int(w @ counts) for w, counts in zip(weights, side, strict=True))
        for side in ([level.before for level in levels], [level.after for level in levels])
    )
    middle = middle_of(levels, weights)
    return float(law[before + noise > middle].sum() + law[after + noise <= middle].sum()) / 2


def least_mu(wrong: int, runs: int = RUNS) -> float:
    """Lower bound of mu from that many errors in ``runs`` guesses of each side."""
    upper = stats.beta.ppf(1 - ALPHA / 2, wrong + 1, 2 * runs - wrong)
    return float(-2 * stats.norm.ppf(upper))


def most_wrong(runs: int = RUNS, mu: float = CLAIM) -> int:
    """The largest number of errors that shows more than this mu."""
    return int(stats.binom.ppf(ALPHA / 2, 2 * runs, stats.norm.cdf(-mu / 2))) - 1


def chance_to_show(error: float, runs: int = RUNS) -> float:
    """Probability that guesses with this chance to be wrong show a mu above the claim."""
    return float(stats.binom.cdf(most_wrong(runs), 2 * runs, error))


def chance_to_miss(error: float, runs: int = RUNS, mu: float = CLAIM) -> float:
    """Probability that guesses with this chance to be wrong show no mu above this one."""
    return float(stats.binom.sf(most_wrong(runs, mu), 2 * runs, error))


@pytest.mark.parametrize("runs", [1000, RUNS])
def test_a_mu_above_the_claim_is_shown_by_so_few_errors_and_no_more(runs):
    assert least_mu(most_wrong(runs), runs) > CLAIM >= least_mu(most_wrong(runs) + 1, runs)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("unit", UNITS)
def test_measurements_tell_no_more_than_claimed(unit, direction):
    """Fails with probability 1e-6 for each unit and direction."""
    levels = measured_levels(UNITS[unit])
    assert chance_to_show(true_error(levels, direction)) < ALPHA
    assert least_mu(wrong_guesses(levels, direction)) <= CLAIM


@pytest.mark.parametrize("unit", UNITS)
def test_the_best_guess_shows_nearly_all_that_is_claimed(unit):
    """Noise beyond the plan would fail here. Fails with probability 1e-6."""
    levels = measured_levels(UNITS[unit])
    assert chance_to_miss(true_error(levels, likelihood_ratio), mu=0.96 * CLAIM) < ALPHA
    assert least_mu(wrong_guesses(levels, likelihood_ratio)) > 0.96 * CLAIM


OPENDP_RUNS = 30_000
"""OpenDP draws some 50,000 to 100,000 values a second: fewer runs, of the four changed cells of two levels."""


def test_the_noise_of_opendp_keeps_the_claim_and_half_of_it_does_not():
    """Fails with probability 1e-6 each: at half the variance mu is 2, seen in a fifth of the runs."""
    levels = measured_levels(UNITS["trip-bounded"], depth=1)
    assert chance_to_show(true_error(levels, likelihood_ratio), OPENDP_RUNS) < ALPHA
    wrong = wrong_guesses(levels, likelihood_ratio, backend="opendp", runs=OPENDP_RUNS)
    assert least_mu(wrong, OPENDP_RUNS) <= CLAIM
    halved = scaled(levels, Fraction(1, 2))
    assert chance_to_miss(true_error(halved, likelihood_ratio), OPENDP_RUNS // 5) < ALPHA
    wrong = wrong_guesses(halved, likelihood_ratio, backend="opendp", runs=OPENDP_RUNS // 5)
    assert least_mu(wrong, OPENDP_RUNS // 5) > CLAIM


def scaled(levels: list[Level], factor: Fraction) -> list[Level]:
    return [replace(level, variance=level.variance * factor) for level in levels]


def sensitivity_of_an_addition(unit: PrivacyUnit) -> list[Level]:
    """Sensitivity 1 where a substitution has sqrt(2)."""
    return scaled(measured_levels(unit), Fraction(1, 2))


def a_level_left_out_of_the_split(unit: PrivacyUnit) -> list[Level]:
    """Noise for one level fewer than are measured."""
    levels = measured_levels(unit)
    return scaled(levels, Fraction(len(levels) - 1, len(levels)))


def one_level_drawn_again(unit: PrivacyUnit) -> list[Level]:
    """A resumed run draws a level twice under one charge, and both draws are seen: a level more."""
    levels = measured_levels(unit)
    return [*levels, levels[-1]]


def all_levels_drawn_again(unit: PrivacyUnit) -> list[Level]:
    """The same of a whole release: the average of both draws has half the variance."""
    return 2 * measured_levels(unit)


def trips_not_cut(unit: PrivacyUnit) -> list[Level]:
    """A user's 2m trips are counted, the noise is for m."""
    return measured_levels(unit, trips=2 * unit.contribution_bound)


def one_trip_not_cut(unit: PrivacyUnit) -> list[Level]:
    """Off by one: m + 1 trips are counted."""
    return measured_levels(unit, trips=unit.contribution_bound + 1)


DEFECTS = [
    *((unit, a_level_left_out_of_the_split) for unit in UNITS),
    *((unit, all_levels_drawn_again) for unit in UNITS),
    ("trip-bounded", one_level_drawn_again),
    ("trip-bounded", sensitivity_of_an_addition),
    ("user-unbounded", trips_not_cut),
    ("user-unbounded", one_trip_not_cut),
]


@pytest.mark.parametrize(("unit", "defect"), DEFECTS)
def test_a_defect_is_caught(unit, defect):
    """Fails with probability 1e-6 each: so seldom the defect is missed."""
    levels = defect(UNITS[unit])
    assert chance_to_miss(true_error(levels, likelihood_ratio)) < ALPHA
    assert least_mu(wrong_guesses(levels, likelihood_ratio)) > CLAIM


@pytest.mark.parametrize(
    ("noise_of", "direction"), [(of_one_worker, between_workers), (of_level_above, between_levels)]
)
@pytest.mark.parametrize("unit", UNITS)
def test_forked_noise_is_caught(unit, noise_of, direction):
    """Equal noise goes away in the difference: nothing is left to chance, and no guess is wrong."""
    wrong = wrong_guesses(measured_levels(UNITS[unit]), direction, noise_of=noise_of)
    assert wrong == 0
    assert least_mu(wrong) > CLAIM


# Segments: every level has a query of its totals and one for each breakdown.

SEGMENTS = {"mode": ["car", "bus", "?"], "time": ["am", "pm"]}
"""Two breakdowns: with the totals, three queries at every level but the root, whose total may be exact."""


def segment_levels(unit: PrivacyUnit, **other: str) -> list[Level]:
    """The measured queries of two neighbours at rho = 1: the trips of one unit are replaced by those of ``other``.

    By default they change both ends and both categories, which changes every query by what it is charged for.
    """
    zones = pd.DataFrame({"region": ["A", "B"], "zone": ["a", "b"]})
    geography = Geography.from_frame(zones, ["region", "zone"])
    budget = Budget(rho=1, delta="1e-8", shares="uniform")  # so that all queries have one variance
    plan = plan_release(geography, unit=unit, budget=budget, acceptance=NO_FAULTS, segments=SEGMENTS)
    m, first = unit.contribution_bound, {"origin": "a", "destination": "a", "mode": "car", "time": "am"}
    second = first | (other or {"origin": "b", "destination": "b", "mode": "bus", "time": "pm"})
    others = [
        {"origin": o, "destination": d, "mode": mode, "time": time, "trips": 100}
        for o, d, mode, time in itertools.product("ab", "ab", *SEGMENTS.values())
    ]
    asked, sides = Asked(), []
    for is_after in (False, True):
        trips = 0 if unit.neighbours == "unbounded" and not is_after else m
        one = {**(second if is_after else first), "trips": trips}
        counts = count_trips(pd.DataFrame([*others, one]), plan.tree, breakdowns=plan.breakdowns)
        release = run_plan(plan, counts, asked, MemoryMeasurements())
        sides.append([measurement.noisy.read_values() for measurement in release.measured])
    return [Level(*level) for level in zip((asked.variances[s.number] for s in plan.steps), *sides, strict=True)]


def signs(levels: list[Level]) -> Weights:
    """The cells that change. No guess is better where all queries have one variance."""
    return [np.sign(level.change) for level in levels]


@pytest.mark.parametrize("unit", UNITS)
def test_all_queries_of_a_release_by_segment_tell_what_is_claimed_and_no_more(unit):
    """The other trips are between other zones and in other categories. Fails with probability 1e-6 each way."""
    levels = segment_levels(UNITS[unit])
    error = true_error(levels, likelihood_ratio)
    assert chance_to_show(error) < ALPHA
    assert chance_to_miss(error, mu=0.96 * CLAIM) < ALPHA
    assert 0.96 * CLAIM < least_mu(wrong_guesses(levels, likelihood_ratio)) <= CLAIM


@pytest.mark.parametrize("other", [{"mode": "bus", "time": "pm"}, {"mode": "?"}], ids=["both", "one"])
def test_the_charge_covers_a_trip_whose_categories_alone_change(other):
    """The totals are the same, and n is exact; the breakdowns that change tell what they are charged, no more.

    Fails with probability 1e-6.
    """
    origin = {"origin": "a", "destination": "a", "mode": "car", "time": "am"}
    levels = segment_levels(UNITS["trip-bounded"], **{**origin, **other})
    changed = [level for level in levels if level.change.any()]
    assert len(levels) == 14
    assert len(changed) == 5 * len(other)
    charged = math.sqrt(2 * len(changed) / len(levels))
    error = true_error(levels, signs)
    assert chance_to_miss(error, mu=0.94 * charged) < ALPHA < 1 - ALPHA < chance_to_miss(error, mu=charged)
    assert 0.94 * charged < least_mu(wrong_guesses(levels, signs)) <= charged


def the_root_by_segment_not_charged(levels: list[Level]) -> list[Level]:
    """The budget is split among the other queries, as if n fixed the trips in each category."""
    return scaled(levels, Fraction(len(levels) - len(SEGMENTS), len(levels)))


def one_breakdown_not_charged(levels: list[Level]) -> list[Level]:
    """A query of each of five levels is not in the split."""
    return scaled(levels, Fraction(len(levels) - 5, len(levels)))


def segments_charged_as_an_addition(levels: list[Level]) -> list[Level]:
    """Sensitivity 1 of the queries by segment, as if a trip could not change its category."""
    totals = levels[2::3]  # each level begins with its totals, but the root has an exact one
    assert [len(level.change) for level in totals] == [2, 4, 4, 4]
    return [one if any(one is total for total in totals) else replace(one, variance=one.variance / 2) for one in levels]


def one_segment_query_drawn_again(levels: list[Level]) -> list[Level]:
    """A lost draw by segment is drawn again under one charge, and both draws are seen."""
    return [*levels, levels[-1]]


@pytest.mark.parametrize(
    "defect",
    [
        the_root_by_segment_not_charged,
        one_breakdown_not_charged,
        segments_charged_as_an_addition,
        one_segment_query_drawn_again,
    ],
)
def test_a_wrong_charge_of_segments_is_caught(defect):
    """Fails with probability 1e-6 each: so seldom the defect is missed."""
    levels = defect(segment_levels(UNITS["trip-bounded"]))
    assert chance_to_miss(true_error(levels, signs)) < ALPHA
    assert least_mu(wrong_guesses(levels, signs)) > CLAIM
