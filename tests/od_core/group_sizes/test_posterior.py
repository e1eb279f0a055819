"""Posterior means of curves against enumeration and against dense matrices; what is promised of tables."""

from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, product
from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import parallel as pipeline
from od_core.group_sizes import area_curves as posterior
from od_core.group_sizes.area_curves import NoisyAreas, classify_sizes, make_initial_chain
from od_core.group_sizes.groups import Frame
from od_core.group_sizes.mechanisms import BottomUpPosterior, GroupSizeMechanism, SizesPosterior
from tests.od_core.group_sizes.test_mechanisms import children_of, named, noisy_values, random_world
from tests.od_core.group_sizes.trees import assert_consistent, random_geography
from tests.od_core.oracles import group_sizes as oracle
from tests.od_core.strategies import geography_of, zone_lists

both = pytest.mark.parametrize("leaf", ["cumulative", "sizes"])
MECHANISMS: list[GroupSizeMechanism] = [BottomUpPosterior(), BottomUpPosterior("sizes"), SizesPosterior()]


@cache
def jump_laws(more: float, left: int, total: int) -> list[tuple[float, int, float]]:
    """Jumps by 1 to ``left`` groups: (probability, how many groups, the part of it that is a short jump)."""
    laws, more_long = [], total / (total + 4)
    for groups in range(1, left + 1):
        short_end, long_end = (1.0, 1.0) if groups == left else (1 - more, 1 - more_long)
        short = 15 / 16 * more ** (groups - 1) * short_end
        laws.append((short + 1 / 16 * more_long ** (groups - 1) * long_end, groups, short))
    return laws


def distance(noisy: list[int], curve: tuple[int, ...], total: int, leaf: str) -> int:
    """Sum of absolute distances of the noisy values from the true ones of a curve C_0, ..., C_(K - 1)."""
    if leaf == "cumulative":
        return sum(abs(a - b) for a, b in zip(noisy, curve, strict=True))
    heights = (0, *curve, total)
    sizes = [j for j in range(len(curve) + 1) for _ in range(heights[j + 1] - heights[j])]
    return sum(abs(min(max(a, 0), len(curve)) - b) for a, b in zip(noisy, sizes, strict=True))


def by_enumeration(noisy, total, scale, leaf, classes, chain):
    """Posterior means, chances and events over all curves and all sequences of quiet (0) and busy (1)."""
    sizes = len(classes) - 1
    whole, means = 0.0, np.zeros(sizes)
    chances, events = np.zeros_like(chain), np.zeros_like(chain)
    for curve in combinations_with_replacement(range(total + 1), sizes):
        heights = (*curve, total)
        likelihood = exp(-distance(noisy, curve, total, leaf) / scale)
        for states in product((0, 1), repeat=sizes + 1):
            probability, height, before = likelihood, 0, 0
            own_chances, own_events = np.zeros_like(chain), np.zeros_like(chain)
            for size, (now, state) in enumerate(zip(heights, states, strict=True)):
                if height == total:  # nothing can happen: count one sequence of states
                    probability *= float(state == 0)
                    continue
                kind = classes[size]
                wake, rest, jump, more = chain[kind]
                turn = (wake, rest)[before]
                own_chances[kind, before] += 1
                own_events[kind, before] += state != before
                probability *= turn if state != before else 1 - turn
                if state == 0:
                    probability *= float(now == height)
                else:
                    own_chances[kind, 2] += 1
                    own_events[kind, 2] += now > height
                    if now == height:
                        probability *= 1 - jump
                    else:
                        law, groups, short = jump_laws(more, total - height, total)[now - height - 1]
                        probability *= jump * law
                        went_on = groups - 1
                        own_chances[kind, 3] += short / law * (went_on + (now < total))
                        own_events[kind, 3] += short / law * went_on
                height, before = now, state
            whole += probability
            means += probability * np.array(curve)
            chances += probability * own_chances
            events += probability * own_events
    return means / whole, chances / whole, events / whole


def random_chain(rng: np.random.Generator, kinds: int) -> np.ndarray:
    return rng.uniform(0.05, 0.95, (kinds, 4))


@pytest.mark.exhaustive
@pytest.mark.representatives("cumulative")
@both
def test_equals_the_sum_over_all_curves(leaf):
    rng = np.random.default_rng(11)
    for _ in range(60):
        sizes, total = int(rng.integers(1, 5)), int(rng.integers(1, 5))
        classes = np.sort(rng.integers(0, 2, sizes + 1))
        classes -= classes[0]
        chain = random_chain(rng, 2)
        scale = Fraction(int(rng.integers(1, 9)), 2)
        noisy = rng.integers(-3, max(total, sizes) + 4, sizes if leaf == "cumulative" else total)
        areas = NoisyAreas(noisy, np.array([0, len(noisy)]), np.array([total]), sizes, leaf == "sizes", scale)
        found = areas.compute_posterior(np.array([0]), classes, chain)
        means, chances, events = by_enumeration(noisy.tolist(), total, float(scale), leaf, classes, chain)
        np.testing.assert_allclose(found.means[0], means, rtol=0, atol=1e-7)
        np.testing.assert_allclose(found.chances, chances, rtol=0, atol=1e-7)
        np.testing.assert_allclose(found.events, events, rtol=0, atol=1e-7)


def by_matrices(noisy, total, scale, leaf, classes, chain):
    """Posterior means with dense matrices over (state, count), no count left out; and the log likelihood.

    The likelihood is that of the noisy values, up to a factor that does not depend on the chain.
    """
    sizes, counts = len(classes) - 1, np.arange(total + 1)
    matrices = []
    for size in range(sizes + 1):
        wake, rest, jump, more = chain[classes[size]]
        jumps = np.zeros((total + 1, total + 1))  # at a busy size
        jumps[total, total] = 1
        for count in range(total):
            jumps[count, count] = 1 - jump
            for law, groups, _short in jump_laws(more, total - count, total):
                jumps[count, count + groups] = jump * law
        stay = np.eye(total + 1)
        matrices.append(np.block([[(1 - wake) * stay, wake * jumps], [rest * stay, (1 - rest) * jumps]]))
    weights = []
    for size in range(sizes):
        if leaf == "cumulative":
            cost = np.abs(noisy[size] - counts)
        else:
            low = (noisy <= size).astype(int)
            cost = np.array([(1 - low[:count]).sum() + low[count:].sum() for count in counts])
        weights.append(np.tile(np.exp(-(cost - cost.min()) / scale), 2))
    forward, logarithm = [np.eye(2 * (total + 1))[0]], 0.0
    for matrix, weight in zip(matrices, weights, strict=False):
        values = (forward[-1] @ matrix) * weight
        forward.append(values / values.sum())
        logarithm += np.log(values.sum())
    backward = matrices[sizes] @ np.tile(counts == total, 2)
    logarithm += np.log(forward[-1] @ backward)
    means = np.zeros(sizes)
    for size in range(sizes - 1, -1, -1):
        probability = forward[size + 1] * backward
        means[size] = (probability @ np.tile(counts, 2)) / probability.sum()
        backward = matrices[size] @ (weights[size] * backward)
        backward /= backward.max()
    return means, logarithm


@pytest.mark.representatives("cumulative")
@both
def test_equals_dense_matrices_where_many_counts_are_left_out(leaf):
    rng = np.random.default_rng(12)
    for number in range(30):
        sizes, total = int(rng.integers(20, 90)), int(rng.integers(10, 45))
        top = rng.choice((6, sizes))
        true = np.sort(np.minimum(rng.geometric(1 / top, total) - 1, sizes))
        scale = Fraction((1, 3, 15)[number % 3])
        values = np.searchsorted(true, np.arange(sizes), side="right") if leaf == "cumulative" else true
        p = 1 - exp(-1 / scale)
        noisy = values + rng.geometric(p, len(values)) - rng.geometric(p, len(values))
        classes = classify_sizes(sizes)
        chain = random_chain(rng, classes[-1] + 1) if number % 2 else make_initial_chain(classes)
        areas = NoisyAreas(noisy, np.array([0, len(noisy)]), np.array([total]), sizes, leaf == "sizes", scale)
        found = areas.compute_posterior(np.array([0]), classes, chain)
        means, _ = by_matrices(noisy, total, float(scale), leaf, classes, chain)
        np.testing.assert_allclose(found.means[0], means, rtol=0, atol=1e-5)


@given(st.data())
def test_every_mechanism_keeps_its_promise_for_any_noisy_values_and_scale(data):
    geography = geography_of(data.draw(zone_lists()))
    groups = np.array([data.draw(st.integers(0, 200) | st.integers(0, 3)) for _ in geography.zones], dtype=np.int64)
    frame = Frame(geography, groups, data.draw(st.integers(1, 40)))
    most = data.draw(st.sampled_from((9, 400, 2**48)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    scale = Fraction(data.draw(st.integers(1, 10**6)), data.draw(st.integers(1, 10**4)))
    for mechanism in MECHANISMS:
        noisy = []
        for level in frame.levels[-1:] if mechanism.leaves_alone else frame.levels:
            totals = frame.count_groups(level)
            shape = int(totals.sum()) if mechanism.query == "sizes" else (len(totals), frame.top_code)
            noisy.append(rng.integers(-most, most, shape))
        released = mechanism.estimate(frame, noisy, scale)
        assert_consistent(frame, released, all_totals=True)
        again = mechanism.estimate(frame, noisy, scale)
        assert all((a == b).all() for a, b in zip(released, again, strict=True)), named(mechanism)


@both
def test_the_number_of_threads_changes_nothing(leaf, monkeypatch):
    rng, mechanism = np.random.default_rng(8), BottomUpPosterior(leaf)
    geography = random_geography(rng, tops=7, depth=3, max_fan_out=3)
    groups = rng.integers(5, 60, len(geography.zones))
    frame = Frame(geography, groups, 50)
    noisy = [rng.integers(0, 50, groups.sum() if leaf == "sizes" else (len(groups), 50))]
    monkeypatch.setattr(posterior, "_PIECE_COUNTS", 150)  # three areas
    released = []
    for threads in (1, 4):
        monkeypatch.setattr(pipeline, "choose_thread_count", lambda threads=threads: threads)
        released.append(mechanism.estimate(frame, noisy, Fraction(5)))
    assert all((a == b).all() for a, b in zip(*released, strict=True))


@both
def test_a_level_is_its_rounded_means_and_sums(leaf):
    """Bottom-up: the rounded means of the leaf areas; sizes_posterior: by level, merged by the oracle."""
    rng = np.random.default_rng(13)
    mechanism = BottomUpPosterior() if leaf == "cumulative" else SizesPosterior()
    for _ in range(40):
        world = random_world(rng)
        frame, depth = world.frame, world.frame.geography.depth
        noisy = noisy_values(world, mechanism, rng, p=0.3)
        groups, levels = {}, [depth] if mechanism.leaves_alone else frame.levels
        for level, values in zip(levels, noisy, strict=True):
            totals = frame.count_groups(level)
            widths = totals if leaf == "sizes" else np.full(len(totals), frame.top_code)
            ends = np.concatenate([[0], np.cumsum(widths)])
            areas = NoisyAreas(values.reshape(-1), ends, totals, frame.top_code, leaf == "sizes", Fraction(3, 2))
            chain, every = areas.fit_chain(), np.arange(len(totals))
            means = np.concatenate([part.means for part in areas.iterate_posteriors(every, chain)])
            for code, curve, total in zip(frame.geography.codes[level], means, totals.tolist(), strict=True):
                row = np.diff([0, *(int(np.floor(value + 0.5)) for value in curve), total]).tolist()
                groups[f"{level} {code}"] = [
                    (Fraction(size), Fraction(1, number)) for size, number in enumerate(row) for _ in range(number)
                ]
        if not mechanism.leaves_alone:
            tops = [f"1 {code}" for code in frame.geography.codes[1]]
            groups = oracle.merged(children_of(frame.geography), tops, groups)
        released = mechanism.estimate(frame, noisy, Fraction(3, 2))
        leaves = [oracle.leaf_histogram(groups[f"{depth} {code}"], frame.top_code) for code in frame.geography.zones]
        assert released[-1].tolist() == leaves


@both
def test_the_fit_raises_the_likelihood(leaf):
    """Expectation maximisation cannot lower it but by the one chance added; here, of 40 areas, that is nothing."""
    rng = np.random.default_rng(9)
    sizes, total, scale = 4, 3, Fraction(1)
    noisy = []
    for _ in range(40):
        true = np.sort(rng.choice((1, 1, 1, 4), total))
        values = np.searchsorted(true, np.arange(sizes), side="right") if leaf == "cumulative" else true
        noisy.append(values + rng.geometric(0.6, len(values)) - rng.geometric(0.6, len(values)))
    offsets = np.arange(41) * len(noisy[0])
    areas = NoisyAreas(np.concatenate(noisy), offsets, np.full(40, total), sizes, leaf == "sizes", scale)
    classes = classify_sizes(sizes)

    def log_likelihood(chain):
        return sum(by_matrices(values, total, 1.0, leaf, classes, chain)[1] for values in noisy)

    assert log_likelihood(areas.fit_chain()) > log_likelihood(make_initial_chain(classes)) + 5


def test_classes_are_single_sizes_then_two_an_octave():
    begins = np.flatnonzero(np.diff(classify_sizes(100), prepend=-1))
    assert begins.tolist() == [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96]
    for top_code in range(1, 40):
        classes = classify_sizes(top_code)
        assert len(classes) == top_code + 1
        assert set(np.diff(classes)) <= {0, 1}
