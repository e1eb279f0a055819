"""The threshold of the stability histogram against the definition of (epsilon, delta), and against OpenDP's."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from od_core import Budget, OdError, plan_release
from od_core.noise import opendp
from od_core.noise import opendp as opendp_noise
from od_core.noise.opendp import SCALE_SLACK, OpenDPNoise
from od_core.noise.opendp_worker import OpenDP, find_smallest_scale
from od_core.privacy.plan import check_charges
from od_core.privacy.stability import compute_laplace_reach, compute_laplace_scale, compute_stability_threshold
from od_core.privacy.unit import TRIP, PrivacyUnit
from tests.od_core.ledger.ledger_rows import ONE_LEVEL
from tests.od_core.oracles.privacy_loss import precision
from tests.od_core.oracles.stability import BITS, ball, hockey_stick, neighbours, partitions, seen

dp.enable_features("contrib")  # OpenDP asks that users of unvetted parts say so

OPENDP = OpenDP(opendp.locate_library())
SLACK = 1 + Fraction(1, 2**30)

PROMISES = [("0.01", "1e-8"), ("0.01", "0.3"), ("0.3", "1e-2"), ("1", "1e-8"), ("3", "1e-4")]
PROMISES += [("10", "1e-2"), ("10", "1e-8"), ("10", "1e-12"), ("2", "0.6"), ("0.7", "0.9"), ("10", "0.995")]

WORLDS = [(1, 3, (0, 1, 2, 4)), (2, 3, (0, 1, 2, 4)), (3, 3, (0, 1, 2)), (4, 2, (0, 1, 2, 3, 4)), (4, 4, (0, 1))]
"""m, cells, and how many trips others may have in each."""


def users(m: int, relation: str) -> PrivacyUnit:
    return PrivacyUnit("user", relation, column="user", max_trips=m)


units = st.builds(users, st.integers(1, 12), st.sampled_from(["bounded", "unbounded"]))
epsilons = st.fractions(Fraction(1, 1000), 20, max_denominator=1000)
usual = st.integers(1, 100).map(lambda digits: Fraction(1, 10**digits))
deltas = usual | st.fractions(Fraction(1, 1000), Fraction(999, 1000), max_denominator=1000)


@pytest.mark.representatives
@pytest.mark.parametrize("relation", ["bounded", "unbounded"])
@pytest.mark.parametrize(("m", "cells", "others"), WORLDS)
@pytest.mark.parametrize(("epsilon", "delta"), PROMISES)
def test_all_neighbours_keep_the_promise_and_one_less_breaks_it(epsilon, delta, m, cells, others, relation):
    """The divergence of all outputs is at most delta at t; not at t - 1, where there is a cell for each trip."""
    unit, epsilon, delta = users(m, relation), Fraction(epsilon), Fraction(delta)
    scale, t = compute_laplace_scale(unit, epsilon), compute_stability_threshold(unit, epsilon, delta)
    promised = ball(delta)
    pairs = neighbours(m, relation == "bounded", cells, others)
    assert all(hockey_stick(changes, t, scale, epsilon) <= promised for changes in pairs)
    if cells >= m:
        assert any(hockey_stick(changes, t - 1, scale, epsilon) > promised for changes in pairs)


@pytest.mark.parametrize("relation", ["bounded", "unbounded"])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_99_percent_of_the_scale_loses_more_than_epsilon_on_frequent_pairs(m, relation):
    """Counts above the threshold on both sides: there is no loss beyond epsilon at the scale, and one at less of it."""
    unit, epsilon = users(m, relation), Fraction(1)
    scale, t = compute_laplace_scale(unit, epsilon), compute_stability_threshold(unit, epsilon, Fraction("1e-9"))
    low, high = t + 5, t + 5 + m
    changes = ((high, low), (low, high)) if relation == "bounded" else ((high, low),)
    assert hockey_stick(changes, t, scale * Fraction(99, 100), epsilon) > 1e-9
    assert hockey_stick(changes, t, scale, epsilon) < 1e-60


@given(units, epsilons, deltas)
def test_it_is_the_least_for_all_partitions(unit, epsilon, delta):
    """All ways to spread m trips, at the planned scale, at the widest that a backend may use, and between."""
    scale, t = compute_laplace_scale(unit, epsilon), compute_stability_threshold(unit, epsilon, delta)
    spread, promised = list(partitions(unit.contribution_bound)), ball(delta)
    for factor in (1, 1 + (SLACK - 1) / 2, SLACK):
        assert all(seen(partition, t, scale * factor) <= promised for partition in spread)
    assert any(seen(partition, t - 1, scale * factor) > promised for partition in spread for factor in (1, SLACK))


@pytest.mark.parametrize("m", [1, 7])
@pytest.mark.parametrize("delta", ["1e-8", "0.4", "0.8"])
@pytest.mark.parametrize("epsilon", ["1e-30", "1e-15", "1e-9"])
def test_where_rounding_of_the_scale_moves_the_threshold_it_is_followed(epsilon, delta, m):
    """Noise so wide that one part in 2^30 of it is more than a trip: up, and for one trip of a delta above 1/2 down."""
    unit = users(m, "bounded")
    scale = compute_laplace_scale(unit, Fraction(epsilon))
    t = compute_stability_threshold(unit, Fraction(epsilon), Fraction(delta))
    promised = ball(Fraction(delta))
    for factor in (1, 1 + (SLACK - 1) / 3, SLACK):
        assert all(seen(partition, t, scale * factor) <= promised for partition in partitions(m))
    assert any(seen(partition, t - 1, scale * f) > promised for partition in partitions(m) for f in (1, SLACK))


@given(units, epsilons)
def test_opendp_s_rounding_of_the_scale_stays_within_what_the_threshold_allows(unit, epsilon):
    """What it is asked to draw from, seen where it is handed over."""
    planned, handed = compute_laplace_scale(unit, epsilon), []

    def hand_over(law, scale, largest_loss, size):
        handed.append(find_smallest_scale(OPENDP, law, scale, largest_loss)[0])
        return handed[0], np.zeros(size, dtype=np.int64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opendp_noise, "draw_noise", hand_over)
        OpenDPNoise().draw_laplace(planned, 1)
    assert planned <= Fraction(handed[0]) <= planned * (1 + SCALE_SLACK)


@given(st.sampled_from(["bounded", "unbounded"]), epsilons, deltas.filter(lambda delta: delta < Fraction(1, 2)))
@example("bounded", Fraction(1, 980), Fraction(1, 10**16))
def test_a_trip_has_the_closed_form_and_the_paper_s_threshold_is_never_smaller(relation, epsilon, delta):
    """t = 1 + ceil(s ln(1 / ((1 + a) delta))) (spec 2), at scale s = 2 / epsilon; the paper: 1 + s ln(2 / delta).

    The larger one counts, of s and of the largest scale that a backend may draw with: in the example they differ.
    """
    unit = PrivacyUnit("trip", relation)
    scale, t = compute_laplace_scale(unit, epsilon), compute_stability_threshold(unit, epsilon, delta)
    ends = ball(scale), ball(scale * SLACK)
    with precision(BITS):
        assert t == max(1 + (-s * ((1 + (-1 / s).exp()) * ball(delta)).log()).ceil() for s in ends)
        assert t <= (1 + ends[1] * (2 / ball(delta)).log()).ceil()


PUBLISHED = "bun_nissim_stemmer"


def by_the_paper(scale: Fraction, delta: Fraction) -> int:
    """t = 1 + s ln(2 / delta), up to a whole number: a count is kept from there on."""
    with precision(BITS):
        return int((1 + ball(scale) * (2 / ball(delta)).log()).ceil().unique_fmpz())


@given(units, epsilons, deltas)
@example(users(1, "unbounded"), Fraction(20), Fraction(999, 1000))
@example(users(4, "bounded"), Fraction(1), Fraction(1, 10**8))
def test_the_paper_s_threshold_is_taken_where_it_keeps_delta_and_refused_elsewhere(unit, epsilon, delta):
    """By all ways to spread m trips; for one trip it is never refused."""
    scale, promised = compute_laplace_scale(unit, epsilon), ball(delta)
    t, spread = by_the_paper(scale, delta), list(partitions(unit.contribution_bound))
    if all(seen(partition, t, scale * factor) <= promised for partition in spread for factor in (1, SLACK)):
        assert compute_stability_threshold(unit, epsilon, delta, PUBLISHED) == t
    else:
        assert unit.contribution_bound > 1
        with pytest.raises(OdError, match=f"OD-MECHANISM-OPTION: the threshold {t} of {PUBLISHED}"):
            compute_stability_threshold(unit, epsilon, delta, PUBLISHED)


@pytest.mark.parametrize("relation", ["bounded", "unbounded"])
@pytest.mark.parametrize(("m", "cells", "others"), WORLDS[:4])
@pytest.mark.parametrize(("epsilon", "delta"), [("0.01", "1e-8"), ("1", "1e-8"), ("10", "1e-8"), ("0.7", "0.9")])
def test_all_neighbours_keep_the_promise_at_the_paper_s_threshold(epsilon, delta, m, cells, others, relation):
    """The divergence of all outputs, where the threshold is not refused; where it is, some neighbours break it."""
    unit, epsilon, delta = users(m, relation), Fraction(epsilon), Fraction(delta)
    scale, promised = compute_laplace_scale(unit, epsilon), ball(delta)
    t, pairs = by_the_paper(scale, delta), neighbours(m, relation == "bounded", cells, others)
    keeps = all(hockey_stick(changes, t, scale, epsilon) <= promised for changes in pairs)
    if t >= compute_stability_threshold(unit, epsilon, delta):
        assert keeps
    elif cells >= m:
        assert not keeps


@pytest.mark.parametrize("scale", ["1/50", "1/3", "1", "7/2", "20", "66.7", "1234.5"])
def test_nine_in_ten_values_are_within_the_reach_and_fewer_within_one_less(scale):
    """By the sum of the probabilities themselves, which fall below the last digit of a float at 50 scales."""
    values = np.arange(0, int(50 * float(Fraction(scale))) + 50)
    weights = np.where(values == 0, 1, 2) * np.exp(-values / float(Fraction(scale)))
    within = np.cumsum(weights) / weights.sum()
    assert compute_laplace_reach(Fraction(scale)) == int(np.argmax(within >= 0.9))


@pytest.mark.parametrize(("epsilon", "published"), [(1, "3.7e-8"), (10, "2.4e-7")])
def test_the_formula_of_one_trip_does_not_hold_for_four(epsilon, published):
    """Delta 1e-8 asked for; the numbers stand in spec 2."""
    unit, delta = users(4, "bounded"), Fraction("1e-8")
    scale = compute_laplace_scale(unit, Fraction(epsilon))
    a = math.exp(-1 / scale)
    t = 1 + math.ceil(float(scale) * math.log(1 / ((1 + a) * delta)))
    broken = max(float(seen(partition, t, scale)) for partition in partitions(4))
    assert f"{broken:.1e}".replace("e-0", "e-") == published
    assert compute_stability_threshold(unit, Fraction(epsilon), delta) > t


def test_thousands_of_trips_need_no_enumeration():
    """Both extremes of the spread, at an m that no enumeration reaches."""
    for epsilon in ("0.1", "20", "100"):
        unit, delta = users(5000, "bounded"), Fraction("1e-8")
        scale = compute_laplace_scale(unit, Fraction(epsilon))
        t = compute_stability_threshold(unit, Fraction(epsilon), delta)
        extremes = [(5000,), (1,) * 5000, (2500, 2500), (4000, *(1,) * 1000)]
        assert all(seen(spread, t, scale) <= ball(delta) for spread in extremes)
        assert any(seen(spread, t - 1, scale) > ball(delta) for spread in extremes)


@pytest.mark.parametrize("delta", ["0", "1", "-1e-8", "2"])
def test_a_delta_that_no_threshold_keeps_is_refused(delta):
    with pytest.raises(OdError, match="OD-BUDGET-DELTA"):
        compute_stability_threshold(TRIP, Fraction(1), Fraction(delta))


@pytest.mark.parametrize("epsilon", ["0", "-1", "1e-31", "1e10"])
def test_an_epsilon_out_of_range_is_refused(epsilon):
    with pytest.raises(OdError, match="OD-BUDGET-EPSILON"):
        compute_laplace_scale(TRIP, Fraction(epsilon))
    with pytest.raises(OdError, match="OD-BUDGET-EPSILON"):
        compute_stability_threshold(TRIP, Fraction(epsilon), Fraction("1e-8"))


@pytest.mark.parametrize(
    "forged", [{"threshold": 56}, {"delta": Fraction(1, 10**30)}, {"sensitivity": 1, "scale": Fraction(2)}]
)
def test_the_check_of_charges_finds_what_does_not_keep_the_promise(forged):
    """With the charge in epsilon that it should have."""
    budget = Budget(epsilon="1/2", delta="1e-6")
    plan = plan_release(ONE_LEVEL, unit=users(2, "unbounded"), budget=budget, mechanism="stability_histogram")
    check_charges(plan)
    wrong = replace(plan.steps[0], **forged)
    assert wrong.charge.epsilon == Fraction(1, 2)
    plan.__dict__.update({"_table_steps": (wrong,), "steps": (wrong,)})
    with pytest.raises(
        OdError, match=r"OD-CHARGE: the (sensitivity of level 2 does not match|threshold does not keep)"
    ):
        check_charges(plan)


def opendp_threshold(scale: Fraction, threshold: int) -> dp.Measurement:
    """OpenDP's own stability histogram of whole counts."""
    domain = dp.map_domain(dp.atom_domain(T="i64"), dp.atom_domain(T="i64"))
    space = (domain, dp.l01inf_distance(dp.absolute_distance(T="i64")))
    return dp.m.make_laplace_threshold(*space, scale=float(scale), threshold=threshold)


def distances(unit: PrivacyUnit) -> tuple[int, int, int]:
    """How many counts a unit changes, by how many trips in all, and a single one by how many."""
    cells = unit.contribution_bound * (2 if unit.neighbours == "bounded" else 1)
    return cells, cells, unit.contribution_bound


@pytest.mark.parametrize("delta", ["1e-2", "1e-8", "1e-12"])
@pytest.mark.parametrize("epsilon", ["1/16", "1", "8"])
@pytest.mark.parametrize("relation", ["bounded", "unbounded"])
@pytest.mark.parametrize("m", [1, 4, 32])
def test_opendp_s_map_agrees_up_to_what_it_cannot_know(m, relation, epsilon, delta):
    """Its delta is that of all the counts that change (2m or m), each by m: never less, and at most so many times more.

    Asked at t - 1, where it counts what reaches t: its delta is P(Z > t - c), though it keeps a count that equals t
    (opendp/opendp, issue 2922). For one trip added or removed it knows all, and is as tight.
    Scales are dyadic here, so that the float is exact; what it rounds up is some 1e-15 a count.
    """
    unit, epsilon, delta = users(m, relation), Fraction(epsilon), Fraction(delta)
    scale, t = compute_laplace_scale(unit, epsilon), compute_stability_threshold(unit, epsilon, delta)
    cells = distances(unit)[0]
    found_epsilon, found_delta = opendp_threshold(scale, t - 1).map(distances(unit))
    assert Fraction(found_epsilon) <= epsilon
    theirs = seen((m,) * cells, t, scale)
    assert found_delta == pytest.approx(float(theirs), rel=1e-9, abs=1e-15 * cells)
    ours = max(seen((m,), t, scale), seen((1,) * m, t, scale), key=float)
    assert float(ours) <= found_delta * (1 + 1e-9)
    assert found_delta <= cells * float(delta) * (1 + 1e-9) + 1e-15 * cells
    if cells == 1 and t > 2:  # it answers up from a threshold of 1
        assert Fraction(found_delta) <= delta < Fraction(opendp_threshold(scale, t - 2).map(distances(unit))[1])
