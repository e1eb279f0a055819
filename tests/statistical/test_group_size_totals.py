import itertools

import numpy as np
import pytest
import scipy.optimize

from od_core import OdError
from od_core.group_sizes import area_totals
from od_core.group_sizes.area_totals import MAX_EXACT_CELLS, fit_histograms_to_totals
from od_core.group_sizes.groups import Frame
from tests.od_core.group_sizes.trees import assert_consistent, cost, least_cost, random_case, random_geography


def test_is_optimal_from_any_start(monkeypatch):
    """Where the apportioned answer is far off, as many rounds of changes are made as it takes."""

    def in_the_smallest_sizes(frame, noisy, prices):
        leaves = np.zeros_like(noisy[-1])
        leaves[:, 0] = frame.groups
        return [frame.sum_at_level(leaves, level) for level in frame.levels]

    monkeypatch.setattr(area_totals, "round_relaxed_solution", in_the_smallest_sizes)
    rng = np.random.default_rng(40)
    for _ in range(40):
        frame, noisy, _ = random_case(rng, most_groups=15, most_sizes=8)
        histograms = fit_histograms_to_totals(frame, noisy)
        assert cost(noisy, histograms) == least_cost(frame, noisy, area_totals=True)


def test_is_optimal_by_brute_force():
    """All pairs of leaf histograms of two areas of up to three groups, in up to three sizes."""
    rng = np.random.default_rng(9)
    for _ in range(60):
        geography = random_geography(rng, tops=1, depth=2, max_fan_out=2)
        frame = Frame(geography, rng.integers(0, 4, len(geography.zones)), 2)
        noisy = [rng.integers(-6, 7, (geography.size(level), 3)) for level in frame.levels]
        ways = [
            [one for one in itertools.product(range(count + 1), repeat=3) if sum(one) == count]
            for count in frame.groups.tolist()
        ]
        least = min(
            cost(noisy, [frame.sum_at_level(np.array(leaves), level) for level in frame.levels])
            for leaves in itertools.product(*ways)
        )
        assert cost(noisy, fit_histograms_to_totals(frame, noisy)) == least


def test_above_the_limit_no_solver_is_called(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError

    rng = np.random.default_rng(2)
    geography = random_geography(rng, tops=1, depth=2, max_fan_out=3)
    for cells, solves in ((MAX_EXACT_CELLS, True), (MAX_EXACT_CELLS + 4, False)):
        areas = sum(geography.size(level) for level in (1, 2))
        frame = Frame(geography, rng.integers(0, 9, len(geography.zones)), cells // areas - 1)
        noisy = [rng.integers(-3, 4, (geography.size(level), frame.top_code + 1)) for level in (1, 2)]
        with monkeypatch.context() as patch:
            patch.setattr(scipy.optimize, "milp", refuse)
            if solves:
                with pytest.raises(AssertionError):
                    fit_histograms_to_totals(frame, noisy)
            else:
                assert_consistent(frame, fit_histograms_to_totals(frame, noisy), all_totals=True)


@pytest.mark.parametrize("value", [2**38, -(2**38)])
def test_noise_of_any_size_up_to_the_limit(value):
    rng = np.random.default_rng(3)
    frame, noisy, _ = random_case(rng)
    for values in noisy:
        values[:, 0] += value
    assert_consistent(frame, fit_histograms_to_totals(frame, noisy), all_totals=True)
    noisy[-1][0, 0] = 4 * value
    with pytest.raises(OdError, match="OD-GROUPS-OVERFLOW"):
        fit_histograms_to_totals(frame, noisy)
