"""Sums of independent terms and their division: against NumPy's convolutions and by enumeration."""

from __future__ import annotations

from functools import reduce
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.stats import chi2

from od_core.flows.estimation.partial_sums import PartialSums, convolve, divide, partial_sums
from od_core.flows.estimation.random_counter import Counter, random_number
from tests.od_core.flows.test_flow_sum import RANDOMS

MOST = 1e-6
"""Probability with which each statistical test fails by chance."""


def terms_of(random: np.random.Generator, count: int, shortest: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Independent terms of up to 4 values each, from several smallest trips on; some values are impossible."""
    length = random.integers(shortest, 5, count)
    values = random.random((count, 4)) * (random.random((count, 4)) < 0.8)
    values[:, 0] = 1.0
    values[np.arange(count), length - 1] = 0.5
    return random.integers(0, 3, count), length, values


def alone(terms: tuple[np.ndarray, np.ndarray, np.ndarray]) -> list[np.ndarray]:
    """The probabilities of 0, 1, 2, ... trips of each term, up to a factor."""
    return [np.append(np.zeros(low), own[:size]) for low, size, own in zip(*terms, strict=True)]


def tiers_of(sums: PartialSums) -> list[list[tuple[int, np.ndarray]]]:
    """The smallest trips and the values, before they were scaled, of each distribution, by tier."""
    edges = list(zip(sums.tier[:-1], sums.tier[1:], strict=True))
    runs = [slice(at, at + size) for at, size in zip(sums.at, sums.length, strict=True)]
    scaled = [sums.values[run] * factor for run, factor in zip(runs, sums.factor, strict=True)]
    return [[(int(sums.low[node]), scaled[node]) for node in range(*edge)] for edge in edges]


@settings(max_examples=60)
@given(random=RANDOMS)
def test_the_sum_of_all_terms_is_their_convolution_where_it_is_considered(random: Random) -> None:
    generator = np.random.default_rng(random.randrange(2**32))
    terms = terms_of(generator, random.randint(1, 9))
    exact = reduce(np.convolve, alone(terms))
    least = random.randint(0, len(exact) - 1)
    most = random.randint(least, len(exact) + 3)
    sums = partial_sums(*terms, least, most)
    low, size = int(sums.low[-1]), int(sums.length[-1])
    considered = np.where((np.arange(len(exact)) >= least) & (np.arange(len(exact)) <= most), exact, 0)
    if not considered.any():
        return
    found = np.zeros(len(exact))
    found[low : low + size] = sums.values[sums.at[-1] : sums.at[-1] + size]
    assert np.allclose(found / found.sum(), considered / considered.sum(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 11])
def test_each_tier_has_the_sums_of_twice_as_many_terms(count: int) -> None:
    terms = terms_of(np.random.default_rng(count), count)
    each = alone(terms)
    for j, tier in enumerate(tiers_of(partial_sums(*terms, 0, 10**6))):
        assert len(tier) == -(-count // 2**j)
        for number, (low, values) in enumerate(tier):
            exact = reduce(np.convolve, each[number << j : number + 1 << j])
            found = np.append(np.zeros(low), values)
            exact, found = np.trim_zeros(exact, "b"), np.trim_zeros(found, "b")
            assert np.allclose(found / found.sum(), exact / exact.sum(), rtol=1e-12, atol=0)


@settings(max_examples=60)
@given(random=RANDOMS)
def test_a_part_of_a_convolution(random: Random) -> None:
    generator = np.random.default_rng(random.randrange(2**32))
    one, other = (generator.random(random.randint(1, 13)) for _ in range(2))
    exact = np.convolve(one, other)
    skipped = random.randrange(len(exact))
    sums = np.empty(random.randint(1, len(exact) - skipped))
    convolve(one, other, skipped, sums)
    assert np.allclose(sums, exact[skipped : skipped + len(sums)], rtol=1e-12, atol=0)


def surprise(terms: tuple[np.ndarray, np.ndarray, np.ndarray], whole: int, key: int, draws: int) -> tuple[float, float]:
    """The p-values of the divisions of a sum, and of those of a wrong law: the last term has half its weight at 0."""
    each, count = alone(terms), len(terms[0])
    sums = partial_sums(*terms, 0, whole + 5)
    given = np.empty(len(sums.low), dtype=np.int64)
    found: dict[tuple[int, ...], int] = {}
    for draw in range(draws):
        assert divide(sums, whole, Counter(np.uint64(key), 0, count, 0), draw, 0, given)
        own = tuple(given[:count].tolist())
        found[own] = found.get(own, 0) + 1
    law = {
        own: float(np.prod([values[n] for values, n in zip(each, own, strict=True)]))
        for own in product(*(range(len(values)) for values in each))
        if sum(own) == whole
    }
    assert all(law.get(own, 0) > 0 for own in found)
    wrong = {own: weight * (0.5 if own[-1] == terms[0][-1] else 1) for own, weight in law.items()}
    p = []
    for one in (law, wrong):
        expected = np.array([one[own] for own in law]) / sum(one.values()) * draws
        seen = np.array([found.get(own, 0) for own in law], dtype=float)
        rare = expected < 10
        expected, seen = (np.append(values[~rare], values[rare].sum()) for values in (expected, seen))
        used = expected > 0
        p.append(float(chi2.sf(((seen - expected)[used] ** 2 / expected[used]).sum(), used.sum() - 1)))
    return p[0], p[1]


@pytest.mark.parametrize("count", [2, 3, 5, 6])
def test_divisions_have_the_law_of_the_terms_given_their_sum(count: int) -> None:
    """20,000 divisions against all that are possible, and a wrong law that the test refuses."""
    wrong = []
    for seed in range(3):
        terms = terms_of(np.random.default_rng(100 * count + seed), count, shortest=3)
        whole = int(sum((np.arange(len(own)) * own).sum() / own.sum() for own in alone(terms)) + 0.5)
        right, other = surprise(terms, whole, seed, 20_000)
        assert right > MOST / 12
        wrong.append(other)
    assert np.median(wrong) < MOST


def test_a_sum_that_no_terms_have_is_not_divided() -> None:
    terms = np.array([1, 0, 2]), np.array([3, 1, 2]), np.array([[1.0, 0, 1.0], [1.0, 0, 0], [1.0, 1.0, 0]])
    sums = partial_sums(*terms, 0, 100)
    given = np.empty(len(sums.low), dtype=np.int64)
    possible = [divide(sums, whole, Counter(np.uint64(1), 0, 3, 0), 0, 0, given) for whole in range(9)]
    assert possible == [False] * 3 + [True] * 4 + [False] * 2


def test_random_numbers_of_neighbouring_places_are_independent_and_uniform() -> None:
    """Means, and correlations with the next node and with the next draw, of 40,000 numbers."""
    counter = Counter(np.uint64(7), 0, 200, 0)
    numbers = np.array([[random_number(counter, draw, node) for node in range(200)] for draw in range(200)])
    assert 0 <= numbers.min() < numbers.max() < 1
    far = 5 / 200  # standard deviations of a correlation
    assert abs(numbers.mean() - 0.5) < far / 12**0.5
    for one, other in ((numbers[:, 1:], numbers[:, :-1]), (numbers[1:], numbers[:-1])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < far
