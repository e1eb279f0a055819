"""The projection onto both margins: exact margins, optimality by solvers and enumeration, bounds of work, refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from od_core import OdError
from od_core.flows.projection.categories_onto_margins import SWEEPS, fit_to_margins, project_to_margins
from tests.od_core.flows.projection.margin_families import (
    BITS,
    Family,
    adversarial_family,
    ascended,
    conditional,
    margin_matrix,
    margins_of,
    noisy_family,
    project,
)

# Margins


@pytest.mark.parametrize("make", [noisy_family, adversarial_family])
@pytest.mark.parametrize("bits", [0, 5, BITS])
def test_margins_are_exact_in_2400_families(make, bits):
    rng = np.random.default_rng([3, bits])
    for categories in (1, 2, 3, 10, 24, 64):
        sizes = rng.integers(1, 40, 66).tolist()
        families = [make(rng, size, categories) for size in [1, 2, *sizes]]
        for family, projected in zip(families, project(families, bits), strict=True):
            assert projected.min() >= 0
            assert (margins_of(projected) == margins_of(family.truth)).all()


def test_a_family_is_the_same_alone_as_among_others():
    rng = np.random.default_rng(32)
    families = [make(rng, 12, 5) for make in (noisy_family, adversarial_family) for _ in range(40)]
    for family, projected in zip(families, project(families), strict=True):
        assert (project([family])[0] == projected).all()


def test_rows_and_columns_without_trips_do_not_matter():
    """However large their estimates are."""
    rng = np.random.default_rng(33)
    family = noisy_family(rng, 30, 8)
    family.truth[[0, 5, 29]] = 0
    family.truth[:, [0, 4]] = 0
    rows, columns = family.left
    far = np.full((30, 8), -(2**62))
    far[np.ix_(rows, columns)] = family.fixed[np.ix_(rows, columns)]
    sums = family.truth.sum(axis=1), family.truth.sum(axis=0)[None]
    projected = project_to_margins(far, family.weights, *sums, np.array([0, 30]), BITS)
    assert (projected == project([family])[0]).all()
    part = Family(family.estimates[np.ix_(rows, columns)], family.weights[rows], family.truth[np.ix_(rows, columns)])
    assert (projected[np.ix_(rows, columns)] == project([part])[0]).all()


def test_ties_are_broken_by_position():
    family = Family(np.full((2, 2), 0.5), np.array([1, 1]), np.array([[1, 0], [0, 1]]))
    assert project([family])[0].tolist() == [[1, 0], [0, 1]]
    even = Family(np.full((3, 3), 1 / 3), np.array([1, 1, 1]), np.eye(3, dtype=np.int64))
    assert project([even])[0].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


@given(
    table=st.lists(st.lists(st.integers(0, 10**6) | st.just(0), min_size=4, max_size=4), min_size=1, max_size=12),
    bits=st.integers(0, BITS),
    heavy=st.integers(1, 2**20),
)
def test_exact_estimates_give_the_truth(table, bits, heavy):
    truth = np.array(table)
    family = Family(truth.astype(float), np.linspace(1, heavy, len(truth)).astype(np.int64), truth)
    assert (project([family], bits)[0] == truth).all()


# Optimality


def test_estimates_are_least_squares_under_both_margins():
    rng = np.random.default_rng(41)
    for _ in range(100):
        family = noisy_family(rng, int(rng.integers(3, 15)), int(rng.integers(3, 8)))
        rows, columns = family.left
        sums = family.truth.sum(axis=1)[rows], family.truth.sum(axis=0)[columns]
        values = fit_to_margins(family.fixed, family.weights[rows], rows, columns, *sums, BITS)
        assert np.abs(values.T / 2**BITS - conditional(family)).max(initial=0) < 4 / 2**BITS + 1e-9


def test_the_ascent_finds_the_euclidean_projection():
    """If Y is the projection of E, no table Z with the margins has (E - Y)(Z - Y) > 0. HiGHS finds the best Z.

    This product is at least the square of the distance between Y and the projection. The families are so large that
    half a trip, at which the ascent ends, is little.
    """
    rng = np.random.default_rng(42)
    on_the_edge = 0
    for _ in range(60):
        family = noisy_family(rng, int(rng.integers(3, 13)), int(rng.integers(3, 7)))
        scale = 10**6
        family = Family(family.estimates * scale, family.weights, family.truth * scale)
        values, row_sums, column_sums, sweeps = ascended(family)
        y, estimate = values.T / 2**BITS, conditional(family)
        if min(y.shape) < 2:
            continue
        assert sweeps < SWEEPS
        sums = np.concatenate([row_sums, column_sums])
        assert np.abs(margins_of(y) - sums).sum() < 0.6
        best = linprog(-(estimate - y).ravel(), A_eq=margin_matrix(*y.shape), b_eq=sums)
        distance = np.sqrt(max(0.0, -best.fun - ((estimate - y) * y).sum()))
        assert distance <= 5e-3 * scale
        on_the_edge += y.min() == 0 and np.abs(y - estimate).max() > scale / 10
    assert on_the_edge > 30


def excesses(families: list[Family]) -> list[float]:
    """Largest change from E, minus the smallest that tables of real numbers with the margins have (HiGHS)."""
    found = []
    for family in families:
        estimate = conditional(family)
        if min(estimate.shape) < 2:
            continue
        projected = project([family])[0][np.ix_(*family.left)]
        margins = margin_matrix(*estimate.shape)
        each, one = sparse.eye_array(estimate.size), np.ones((estimate.size, 1))
        best = linprog(
            np.append(np.zeros(estimate.size), 1.0),
            A_ub=sparse.block_array([[-each, -one], [each, -one]], format="csr"),
            b_ub=np.concatenate([-estimate.ravel(), estimate.ravel()]),
            A_eq=sparse.hstack([margins, sparse.csr_array((margins.shape[0], 1))]),
            b_eq=margins_of(family.truth[np.ix_(*family.left)]),
        )
        found.append(np.abs(projected - estimate).max() - best.fun)
    return found


def test_the_largest_change_is_near_that_of_highs():
    rng = np.random.default_rng(43)
    found = excesses([noisy_family(rng, int(rng.integers(2, 61)), int(rng.integers(2, 11))) for _ in range(40)])
    assert len(found) > 30
    assert min(found) > -1e-6
    assert max(found) <= 2
    assert np.mean(found) < 0.3


# Refusals


def one_family(estimates: object, totals: object, by_category: object, bits: int = BITS) -> NDArray[np.int64]:
    table = np.array(estimates, dtype=np.int64)
    sums = np.array(totals, dtype=np.int64), np.array([by_category], dtype=np.int64)
    return project_to_margins(table, np.ones(len(table), dtype=np.int64), *sums, np.array([0, len(table)]), bits)


@pytest.mark.parametrize(
    ("totals", "by_category"),
    [([1, 2], [2, 2]), ([1, 2], [0, 0]), ([-1, 2], [1, 0]), ([1, 2], [4, -1]), ([2**62, 2**62, 2**62, 2**62], [0, 0])],
)
def test_margins_that_differ_or_are_negative_are_refused(totals, by_category):
    with pytest.raises(OdError, match=r"OD-REFINEMENT-(MARGINS.*report this defect|OVERFLOW)"):
        one_family(np.zeros((len(totals), 2)), totals, by_category)


def test_a_parent_without_children_has_no_trips():
    none = np.empty((0, 2), dtype=np.int64)
    empty = np.empty(0, dtype=np.int64)
    assert project_to_margins(none, empty, empty, none, np.array([0]), BITS).shape == (0, 2)
    assert project_to_margins(none, empty, empty, np.array([[0, 0]]), np.array([0, 0]), BITS).shape == (0, 2)
    with pytest.raises(OdError, match="OD-REFINEMENT-MARGINS"):
        project_to_margins(none, empty, empty, np.array([[0, 1]]), np.array([0, 0]), BITS)


LIMIT = 2**55


@pytest.mark.parametrize("bits", [0, BITS])
def test_values_from_the_limit_on_are_refused(bits):
    most = (LIMIT >> bits) - 64  # the check adds floating-point numbers, which are 4 apart here
    table, sums = [[0, 0], [0, 0]], ([most - 1, 1], [most - 1, 1])
    assert one_family(table, *sums, bits).sum() == most
    for estimates, totals, by_category in [
        (table, [most, 64], [most, 64]),
        (table, [64, most], [most + 64, 0]),
        (table, [2**62, 2**62], [2**62, 2**62]),
        ([[64 << bits, 0], [0, 0]], *sums),
        ([[-(2**63), 0], [0, 0]], [1, 1], [1, 1]),
        ([[LIMIT // 2, -LIMIT // 2], [0, 0]], [1, 1], [1, 1]),
    ]:
        with pytest.raises(OdError, match=r"OD-REFINEMENT-OVERFLOW.*draws already made stay charged"):
            one_family(estimates, totals, by_category, bits)


def test_trips_times_children_are_limited():
    children = 1000
    table, ones = np.zeros((children, 2), dtype=np.int64), np.ones(children - 1, dtype=np.int64)
    for trips, fits in [(2**62 // children, True), (2**62 // children + 1, False)]:
        totals = np.append(ones, trips - children + 1)
        if fits:
            assert one_family(table, totals, [trips - 5, 5], bits=0).sum() == trips
        else:
            with pytest.raises(OdError, match="OD-REFINEMENT-OVERFLOW"):
                one_family(table, totals, [trips - 5, 5], bits=0)


def test_weights_are_limited():
    table, ones = np.zeros((2, 2), dtype=np.int64), np.ones(2, dtype=np.int64)
    with pytest.raises(OdError, match="OD-REFINEMENT-OVERFLOW"):
        project_to_margins(table, ones << 41, ones, ones[None], np.array([0, 2]), BITS)


@given(data=st.data())
def test_margins_are_exact_up_to_the_limit(data):
    """Nothing wraps around 64 bits for values whose sum is near the limit."""
    shape = data.draw(st.sampled_from([(2, 2), (2, 5), (5, 2), (4, 4), (30, 2), (2, 30)]))
    cells = shape[0] * shape[1]
    parts = st.lists(st.sampled_from((0, 1, 5, 100)), min_size=cells, max_size=cells)
    truth, estimates = (np.array(data.draw(parts)).reshape(shape) for _ in range(2))
    signs = np.array(data.draw(st.lists(st.sampled_from((-1, 1)), min_size=cells, max_size=cells))).reshape(shape)
    share, least = data.draw(st.sampled_from((1, 25, 49))), 64  # below the limits, as they are themselves refused
    truth = truth * ((min(share * LIMIT // 50, 2**62 // max(shape)) - least) // max(1, int(truth.sum())))
    estimates = estimates * signs * (((50 - share) * LIMIT // 50 - least) // max(1, int(estimates.sum())))
    heavy = np.array(data.draw(st.lists(st.sampled_from((1, 2**20)), min_size=shape[0], max_size=shape[0])))
    rows, columns, offsets = truth.sum(axis=1), truth.sum(axis=0)[None], np.array([0, shape[0]])
    projected = project_to_margins(estimates, heavy, rows, columns, offsets, 0)
    assert projected.min() >= 0
    assert (margins_of(projected) == margins_of(truth)).all()
