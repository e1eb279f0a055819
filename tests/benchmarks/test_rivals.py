"""The published methods on small trees: against dense solvers, and the conditions of an optimum."""

from itertools import pairwise
from random import Random

import cvxpy
import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from benchmarks.rivals import blue_down, non_negative_fit
from od_core.flows.estimation.least_squares import MeasuredLevel, fit_measured_levels
from od_core.geography.flow_tree import Pairs

RANDOMS = st.randoms(use_true_random=True)


def random_levels(random: Random, *, dropping: bool) -> list[MeasuredLevel]:
    """A tree of two to four levels with unequal fan-outs and noise. The root is exact, or measured."""
    exact, largest = random.random() < 0.6, random.choice([3, 30, 1000])
    levels: list[MeasuredLevel] = []
    offsets, divided = np.zeros(1, dtype=np.int64), [0]
    size, depth = 1, random.randint(2, 4)
    for k in range(depth):
        if k:
            fan_out = [random.randint(1, 4) for _ in divided]
            offsets, size = np.cumsum([0, *fan_out]), sum(fan_out)
        noise = random.choice([0.5, 4.0, 90.0]) if k or not exact else 0.0
        noisy = np.array([float(random.randint(-largest // 2, largest)) for _ in range(size)])
        noisy = np.abs(noisy) if k == 0 and exact else noisy
        divided = list(range(size)) if k < depth - 1 else []
        if dropping and k:  # as in a release, not all children of a node
            first = set(offsets[:-1].tolist())
            divided = [i for i in divided if i in first or random.random() < 0.6]
        numbers = np.arange(size, dtype=np.int32)
        levels.append(MeasuredLevel(Pairs(k, numbers, numbers), offsets, np.array(divided, np.int64), noisy, noise))
    return levels


def designs(levels: list[MeasuredLevel]) -> list[np.ndarray]:
    """For each level, a row a node: 1 in the columns of the nodes below it (or itself) that have no children."""
    terminal = [(k, i) for k, level in enumerate(levels) for i in range(len(level.nodes)) if i not in level.divided]
    rows = [np.zeros((len(level.nodes), len(terminal))) for level in levels]
    for column, (k, i) in enumerate(terminal):
        while True:
            rows[k][i, column] = 1
            if k == 0:
                break
            parent = np.searchsorted(levels[k].offsets, i, side="right") - 1
            k, i = k - 1, int(levels[k - 1].divided[parent])
    return rows


def weighted(levels: list[MeasuredLevel]) -> tuple[np.ndarray, np.ndarray]:
    """The dense system of all nodes that are not exact, divided by the standard deviations."""
    pairs = [(a / level.noise**0.5, level.noisy / level.noise**0.5) for a, level in known(levels) if level.noise]
    return np.vstack([a for a, _ in pairs]), np.concatenate([y for _, y in pairs])


def known(levels: list[MeasuredLevel]) -> list[tuple[np.ndarray, MeasuredLevel]]:
    return list(zip(designs(levels), levels, strict=True))


@settings(max_examples=60)
@given(random=RANDOMS, dropping=st.booleans())
def test_the_non_negative_fit_is_that_of_another_solver(random, dropping):
    levels = random_levels(random, dropping=dropping)
    a, y = weighted(levels)
    rows = designs(levels)
    fitted = non_negative_fit(levels)
    terminal = [
        fitted[k][i] for k, level in enumerate(levels) for i in range(len(level.nodes)) if i not in level.divided
    ]
    x, scale = np.array(terminal), 1 + np.abs(levels[0].noisy).sum() + np.abs(y).sum()
    for design, level in zip(rows, fitted, strict=True):
        np.testing.assert_allclose(design @ x, level, atol=1e-9 * scale)
    assert (x >= 0).all()
    exact = levels[0].noise == 0
    event(f"exact root: {exact}, zeros: {bool((x == 0).any())}, dropped: {dropping}")
    if exact:  # the conditions of Karush, Kuhn and Tucker, with the multiplier of the total
        assert x.sum() == pytest.approx(levels[0].noisy[0])
        gradient = a.T @ (a @ x - y)
        multiplier = -gradient[np.argmax(x)]
        slack = gradient + multiplier
        if levels[0].noisy[0] > 0:
            assert slack.min() >= -1e-7 * scale
            assert np.abs(slack[x > 1e-7 * scale]).max() <= 1e-7 * scale
    else:
        np.testing.assert_allclose(x, nnls(a, y)[0], atol=1e-7 * scale)


@settings(max_examples=30)
@given(random=RANDOMS)
def test_blue_down_is_the_nearest_by_the_whole_covariance_rounded(random):
    """Real children of each parent by a solver, from the estimates of all levels and their dense covariance."""
    levels = random_levels(random, dropping=False)
    trips, fitted, rows = blue_down(levels), fit_measured_levels(levels), designs(levels)
    a, _ = weighted(levels)
    for k, (above, below) in enumerate(pairwise(levels)):
        for number, parent in enumerate(above.divided):
            own = slice(below.offsets[number], below.offsets[number + 1])
            c, children = trips[k][parent], trips[k + 1][own]
            assert children.sum() == c
            if len(children) == 1 or c == 0:
                assert (children >= 0).all()
                continue
            free = np.linalg.inv(a.T @ a)  # without the exact total, which only the sum of the children depends on
            precision = np.linalg.inv(rows[k + 1][own] @ free @ rows[k + 1][own].T)
            y = cvxpy.Variable(len(children), nonneg=True)
            distance = cvxpy.quad_form(y - fitted[k + 1].estimate[own], cvxpy.psd_wrap((precision + precision.T) / 2))
            cvxpy.Problem(cvxpy.Minimize(distance), [cvxpy.sum(y) == int(c)]).solve(cvxpy.CLARABEL)
            assert_rounded(children, y.value, tolerance=1e-4 * (1 + np.abs(fitted[k + 1].estimate[own]).max()))


def assert_rounded(whole: np.ndarray, real: np.ndarray, tolerance: float) -> None:
    """Each is its real number rounded down or up, and no larger fraction was rounded down."""
    assert np.abs(whole - real).max() < 1 + tolerance
    up, down = whole - real > tolerance, real - whole > tolerance
    if up.any() and down.any():
        fraction = real - np.floor(real)
        assert fraction[up].min() >= fraction[down].max() - 2 * tolerance
