"""IntOpt against brute force, the transcription of the paper and the closed form; its refusals; its exactness."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import OdError
from od_core.projection import intopt
from od_core.projection.chebyshev import ORDERS, project_children
from tests.od_core.oracles import intopt as oracle

Case = tuple[list[int], int]


def small_case(rng: random.Random) -> Case:
    """One to five children; ties, empty totals, one-sided and spread-out values all come often."""
    children = rng.randint(1, 5)
    reach = rng.choice((0, 1, 2, 6, 15, 60))
    low = rng.choice((-reach, -reach, 0, -reach // 3))
    noisy = [rng.randint(low, max(low, reach)) for _ in range(children)]
    total = rng.choice((0, rng.randint(0, 3), rng.randint(0, 9), max(0, sum(noisy)), 3 * reach))
    return noisy, total


def project_all(cases: list[Case], order: str) -> list[list[int]]:
    """All cases as the parents of one level, in one call."""
    offsets = np.cumsum([0] + [len(noisy) for noisy, _ in cases])
    noisy = np.concatenate([np.array(noisy, dtype=np.int64) for noisy, _ in cases])
    projected = project_children(noisy, np.array([total for _, total in cases]), offsets, order)
    return [part.tolist() for part in np.split(projected, offsets[1:-1])]


@pytest.mark.parametrize("order", ORDERS)
def test_equals_both_algorithms_of_the_paper_on_30000_small_inputs(order):
    rng = random.Random(f"small inputs {order}")  # noqa: S311
    cases = [small_case(rng) for _ in range(30_000)]
    for (noisy, total), projected in zip(cases, project_all(cases, order), strict=True):
        case = (noisy, total, projected)
        assert projected == oracle.transcription(noisy, total, order), case
        assert projected == oracle.transcription_simple(noisy, total, order), case
        assert projected == oracle.closed_form(noisy, total, order), case


@pytest.mark.parametrize("order", ORDERS)
def test_is_optimal_by_brute_force_on_10000_small_inputs(order):
    rng = random.Random(f"brute force {order}")  # noqa: S311
    cases = []
    while len(cases) < 10_000:
        noisy, total = small_case(rng)
        if total <= 12:  # every way to share a total is tried: at most 1,820 of them
            cases.append((noisy, total))
    for (noisy, total), y in zip(cases, project_all(cases, order), strict=True):
        assert min(y) >= 0, (noisy, total, y)
        assert sum(y) == total, (noisy, total, y)
        distance = max(abs(a - b) for a, b in zip(noisy, y, strict=True))
        assert distance == oracle.best_distance(noisy, total), (noisy, total, y)


@given(
    noisy=st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=40),
    total=st.integers(0, 10**7),
    order=st.sampled_from(ORDERS),
)
def test_one_parent_at_a_time_equals_the_transcription(noisy, total, order):
    assert intopt(noisy, total, order).tolist() == oracle.transcription(noisy, total, order)


@pytest.mark.parametrize("children", [50, 300, 2000])
@pytest.mark.parametrize("order", ORDERS)
def test_equals_the_transcription_at_large_fan_outs(children, order):
    """Both branches: totals that the first walk reaches, and totals far below the noise (sparse flows)."""
    rng = np.random.default_rng(children)
    branches = set()
    for sigma in (0.6, 5.0, 400.0):
        truth = np.where(rng.random(children) < 0.05, rng.poisson(200.0, children), 0)
        noisy = (truth + np.rint(rng.normal(0.0, sigma, children)).astype(np.int64)).tolist()
        for total in (0, 1, int(truth.sum()), 10 * int(truth.sum()) + 7):
            expected = oracle.closed_form(noisy, total, order)
            assert intopt(noisy, total, order).tolist() == expected
            if total or children <= 300:
                assert oracle.transcription(noisy, total, order) == expected
            ceiling = -((sum(noisy) - total) // children)
            start = max(abs(max(ceiling, -value)) for value in noisy)
            branches.add(max(abs(a - b) for a, b in zip(noisy, expected, strict=True)) > start)
    assert branches == {True, False}


def noisy_flows(rng: np.random.Generator, children: int) -> Case:
    """Few or many children with trips, heavy-tailed, under noise; a total near theirs, or far below the noise."""
    trips = np.where(rng.random(children) < rng.choice((0.02, 0.3, 1.0)), rng.pareto(1.1, children).clip(0, 1e5), 0.0)
    noise = rng.normal(0.0, rng.choice((0.7, 4.0, 20.0, 400.0)), children)
    total = int(trips.sum() + rng.integers(-4, 5) * rng.choice((0, 1, 30)))
    return np.rint(np.ceil(trips) + noise).astype(np.int64).tolist(), max(0, total)


@pytest.mark.parametrize("order", ORDERS)
def test_equals_the_transcription_on_60000_noisy_flows_at_fan_outs_of_1_to_2000(order):
    """Around the widths of vector instructions too, where whole vectors and what is left over meet."""
    rng = np.random.default_rng(7)
    sizes = [*rng.integers(1, 25, 58_500), *rng.integers(25, 140, 1_450), *rng.integers(140, 2001, 49), 2000]
    cases = [noisy_flows(rng, size) for size in sizes]
    assert len(cases) == 60_000
    lifted = 0
    for (noisy, total), projected in zip(cases, project_all(cases, order), strict=True):
        assert projected == oracle.transcription(noisy, total, order), (noisy, total)
        ceiling = -((sum(noisy) - total) // len(noisy))
        start = max(abs(max(ceiling, -value)) for value in noisy)
        lifted += max(abs(x - y) for x, y in zip(noisy, projected, strict=True)) > start
    assert 5_000 < lifted < 55_000  # both branches come often


@pytest.mark.parametrize("order", ORDERS)
def test_is_exact_up_to_the_bound_of_64_bit_sums_on_4000_inputs(order):
    """Small cases blown up until sum |x| + c + b comes near 3 * 2^60, the most that is taken."""
    rng = random.Random(f"near the bound {order}")  # noqa: S311
    cases = []
    while len(cases) < 4_000:
        noisy, total = small_case(rng)
        size = sum(map(abs, noisy)) + total
        if size == 0:
            continue
        unit = 3 * 2**60 // size - 2**12
        noisy = [value * unit + rng.randint(-3, 3) for value in noisy]
        cases.append((noisy, max(0, total * unit + rng.randint(-3, 3))))
    assert sum(total > 2**60 for _, total in cases) > 1_000
    for (noisy, total), projected in zip(cases, project_all(cases, order), strict=True):
        assert projected == oracle.closed_form(noisy, total, order), (noisy, total)


@pytest.mark.parametrize("order", ORDERS)
def test_a_parent_is_refused_from_the_bound_on(order):
    """Wherever the size lies: in the values, in the total, or in the number of children."""
    near, far = 1 << 40, 1 << 60
    many = np.full(3 * (1 << 20) + 1, near - 1, dtype=np.int64)
    for noisy, total, fits in [
        ([far, -far, far - 2**20], 0, True),
        ([far, -far, far + 2**20], 0, False),
        ([5, -7], 3 * far - 2**20, True),
        ([5, -7], 3 * far, False),
        ([-(2**63), 0], 0, False),
        ([2**63 - 1, 2**63 - 1], 0, False),
        (many[: 1 << 20], 5, True),
        (many, 5, False),
    ]:
        x = np.array(noisy, dtype=np.int64)
        level = np.concatenate([[1, 2], x]), np.array([3, total]), np.array([0, 2, 2 + len(x)])
        if fits:
            y = project_children(*level, order)[2:]
            assert int(y.sum()) == total
            assert y.min() >= 0
            if len(x) < 4:
                assert y.tolist() == oracle.closed_form(x.tolist(), total, order)
        else:
            with pytest.raises(OdError, match="OD-INTOPT-OVERFLOW"):
                project_children(*level, order)


@pytest.mark.parametrize("order", ORDERS)
def test_is_exact_where_floats_are_not_on_5000_inputs(order):
    """Small cases blown up to the size of 2^53 to 2^58, each value then moved by a few units."""
    rng = random.Random(f"beyond floats {order}")  # noqa: S311
    cases = []
    for _ in range(5_000):
        noisy, total = small_case(rng)
        unit = 1 << rng.randint(48, 52)
        noisy = [value * unit + rng.randint(-3, 3) for value in noisy]
        cases.append((noisy, max(0, total * unit + rng.randint(-3, 3))))
    for (noisy, total), projected in zip(cases, project_all(cases, order), strict=True):
        assert projected == oracle.closed_form(noisy, total, order), (noisy, total)


@given(
    near=st.sampled_from((1 << 53, 1 << 58)),
    offsets=st.lists(st.integers(-9, 9), min_size=2, max_size=5),
    lost=st.integers(-20, 20),
    order=st.sampled_from(ORDERS),
)
def test_is_exact_for_values_that_differ_beyond_the_digits_of_a_float(near, offsets, lost, order):
    noisy = [near + offset for offset in offsets]
    total = sum(noisy) + lost
    assert intopt(noisy, total, order).tolist() == oracle.transcription(noisy, total, order)
    assert intopt(noisy, near + lost, order).tolist() == oracle.closed_form(noisy, near + lost, order)


def test_integers_of_any_width_and_layout_give_the_same_exact_result():
    large = [(1 << 58) + 1, (1 << 58) + 3]
    total = (1 << 58) + 1
    expected = oracle.transcription(large, total)
    for kind in (int, np.int64, np.uint64):
        assert intopt(large, kind(total)).tolist() == expected, kind
    assert intopt(np.array(large, dtype=np.uint64), total).tolist() == expected
    assert intopt(np.array([3, 200, 10], dtype=np.uint8), np.int32(9)).tolist() == [0, 9, 0]
    assert intopt(np.arange(10)[::2], 7).tolist() == oracle.transcription([0, 2, 4, 6, 8], 7)


def test_published_examples():
    """The paper's section 4.2 (two optima, the smallest is lowered first) and a case beyond its lower bound of 4."""
    assert intopt([0, -1, 1], 2).tolist() == [0, 0, 2]
    assert intopt([0, 0, 10], 0).tolist() == [0, 0, 0]
    assert oracle.best_distance([0, 0, 10], 0) == 10


def test_ties_are_broken_by_position_in_both_orders():
    assert intopt([2, 2, 2, 2], 6, "ascending").tolist() == [1, 1, 2, 2]
    assert intopt([2, 2, 2, 2], 6, "descending").tolist() == [1, 1, 2, 2]
    assert intopt([5, 1, 1, 5], 9, "ascending").tolist() == [4, 0, 0, 5]
    assert intopt([5, 1, 1, 5], 9, "descending").tolist() == [4, 0, 1, 4]


@pytest.mark.parametrize(
    ("noisy", "total", "code"),
    [
        ([1, 2], -1, "OD-INTOPT-TOTAL"),
        ([], 0, "OD-INTOPT-EMPTY"),
        ([[1, 2]], 3, "OD-INTOPT-EMPTY"),
        ([1.0, 2.0], 3, "OD-INTOPT-INTEGER"),
        ([1, 2], 3.0, "OD-INTOPT-INTEGER"),
        ([1, 2], True, "OD-INTOPT-INTEGER"),
        ([1, 2], np.bool_(True), "OD-INTOPT-INTEGER"),
        ([True, False], 1, "OD-INTOPT-INTEGER"),
        (["1", "2"], 3, "OD-INTOPT-INTEGER"),
        ([1 << 62, 0], 3, "OD-INTOPT-OVERFLOW"),
        ([-(1 << 62), 0], 3, "OD-INTOPT-OVERFLOW"),
        ([1, 2], 1 << 62, "OD-INTOPT-OVERFLOW"),
        ([1, 2], 1 << 200, "OD-INTOPT-OVERFLOW"),
        ([1 << 60, 1 << 60, 1 << 60], 0, "OD-INTOPT-OVERFLOW"),
        (np.array([1 << 63, 1], dtype=np.uint64), 0, "OD-INTOPT-OVERFLOW"),
    ],
)
def test_refuses_what_has_no_exact_answer(noisy, total, code):
    with pytest.raises(OdError) as error:
        intopt(noisy, total)
    assert error.value.code == code


def test_refuses_an_unknown_order_with_the_nearest_known():
    with pytest.raises(OdError, match=r"OD-INTOPT-ORDER.*'ascending'"):
        intopt([1, 2], 3, "ascendign")


def test_refuses_a_level_with_one_bad_parent():
    noisy, offsets = np.array([1, 2, 3]), np.array([0, 2, 3])
    with pytest.raises(OdError, match="OD-INTOPT-TOTAL"):
        project_children(noisy, np.array([3, -1]), offsets)
    with pytest.raises(OdError, match="OD-INTOPT-EMPTY"):
        project_children(noisy, np.array([3, 0, 3]), np.array([0, 2, 2, 3]))
    with pytest.raises(OdError, match="OD-INTOPT-OVERFLOW"):
        project_children(np.array([1, 1 << 61, 1 << 61]), np.array([1, 1 << 61]), np.array([0, 1, 3]))
