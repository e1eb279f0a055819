"""IntOpt against brute force, the transcription of the paper and the closed form; its refusals; its exactness."""

import random
from functools import cache, partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import OdError
from od_core.flows.projection.onto_parents import ORDERS, intopt, project_children
from tests.od_core.flows.projection import families
from tests.od_core.flows.projection.families import Case, cases_near, noisy_flows, project_all, small_case
from tests.od_core.oracles import intopt as oracle

BY_ORDER = {order: partial(project_children, order=order) for order in ORDERS}


@pytest.mark.parametrize("order", ORDERS)
def test_equals_both_algorithms_of_the_paper_on_4000_small_inputs(order):
    rng = random.Random(f"small inputs {order}")  # noqa: S311
    cases = [small_case(rng) for _ in range(4_000)]
    for (noisy, total), projected in zip(cases, project_all(BY_ORDER[order], cases), strict=True):
        case = (noisy, total, projected)
        assert projected == oracle.transcription(noisy, total, order), case
        assert projected == oracle.transcription_simple(noisy, total, order), case
        assert projected == oracle.closed_form(noisy, total, order), case


@pytest.mark.parametrize("order", ORDERS)
def test_is_optimal_by_brute_force_on_2000_small_inputs(order):
    rng = random.Random(f"brute force {order}")  # noqa: S311
    cases = families.enumerable_cases(rng, 2_000)
    for (noisy, total), y in zip(cases, project_all(BY_ORDER[order], cases), strict=True):
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


@cache
def cases_of_every_fan_out() -> list[Case]:
    """5,000 noisy flows at fan-outs of 1 to 2,000, made once for both orders. Not to be changed."""
    rng = np.random.default_rng(7)
    sizes = [*rng.integers(1, 25, 4_700), *rng.integers(25, 140, 290), *rng.integers(140, 2001, 9), 2000]
    return [noisy_flows(rng, size) for size in sizes]


@pytest.mark.representatives("ascending")
@pytest.mark.parametrize("order", ORDERS)
def test_equals_the_transcription_on_5000_noisy_flows_at_fan_outs_of_1_to_2000(order):
    """Around the widths of vector instructions too, where whole vectors and what is left over meet."""
    cases = cases_of_every_fan_out()
    assert len(cases) == 5_000
    lifted = 0
    for (noisy, total), projected in zip(cases, project_all(BY_ORDER[order], cases), strict=True):
        assert projected == oracle.transcription(noisy, total, order), (noisy, total)
        ceiling = -((sum(noisy) - total) // len(noisy))
        start = max(abs(max(ceiling, -value)) for value in noisy)
        lifted += max(abs(x - y) for x, y in zip(noisy, projected, strict=True)) > start
    assert 500 < lifted < 4_500  # both branches come often


@pytest.mark.parametrize("order", ORDERS)
def test_is_exact_up_to_the_bound_of_64_bit_sums_on_4000_inputs(order):
    """Small cases blown up until sum |x| + c + b comes near 3 * 2^60, the most that is taken."""
    rng = random.Random(f"near the bound {order}")  # noqa: S311
    cases = cases_near(3 * 2**60, rng, 4_000)
    assert sum(total > 2**60 for _, total in cases) > 1_000
    for (noisy, total), projected in zip(cases, project_all(BY_ORDER[order], cases), strict=True):
        assert projected == oracle.closed_form(noisy, total, order), (noisy, total)


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


@pytest.mark.parametrize(
    ("noisy", "total", "code"),
    [
        ([1, 2], -1, "OD-INTOPT-TOTAL"),
        ([], 0, "OD-INTOPT-EMPTY"),
        ([1.0, 2.0], 3, "OD-INTOPT-INTEGER"),
        ([1, 2], 3.0, "OD-INTOPT-INTEGER"),
        ([1, 2], True, "OD-INTOPT-INTEGER"),
        ([True, False], 1, "OD-INTOPT-INTEGER"),
        (["1", "2"], 3, "OD-INTOPT-INTEGER"),
        ([1 << 62, 0], 3, "OD-INTOPT-OVERFLOW"),
        ([1, 2], 1 << 62, "OD-INTOPT-OVERFLOW"),
        ([1 << 60, 1 << 60, 1 << 60], 0, "OD-INTOPT-OVERFLOW"),
        (np.array([1 << 63, 1], dtype=np.uint64), 0, "OD-INTOPT-OVERFLOW"),
    ],
)
def test_refuses_what_has_no_exact_answer(noisy, total, code):
    with pytest.raises(OdError, match=f"{code}:"):
        intopt(noisy, total)


def test_refuses_an_unknown_order_with_the_nearest_known():
    with pytest.raises(OdError, match=r"OD-INTOPT-ORDER.*'ascending'"):
        intopt([1, 2], 3, "ascendign")
