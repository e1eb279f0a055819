"""Noise on the pairs with trips and a threshold: what comes out, what it is charged, and what is refused.

The threshold itself and the promise that it gives are tested in ``tests/od_core/privacy/test_stability.py``.
"""

import json
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Budget, Cap, Charge, Ledger, OdError, PrivacyUnit, StabilityHistogram, plan_release, release_flows
from od_core.noise.opendp import OpenDPNoise
from od_core.privacy.neighbours import NO_FAULTS
from od_core.privacy.unit import NEIGHBOUR_RELATIONS
from tests.od_core.doubles import ListedLaplace, NoiseNotWanted, SeededNoise
from tests.od_core.doubles import released as released_world
from tests.od_core.ledger.ledger_rows import FLOWS, GEOGRAPHY, TRIP, baselines_charged, declared, rows, states
from tests.od_core.strategies import TREES, noises, worlds

BUDGET = Budget(epsilon=1, delta="1e-8")
R1 = "commuters/2001-06/r1"


@given(
    world=worlds(max_trips=60),
    order=st.sampled_from(TREES),
    neighbours=st.sampled_from(NEIGHBOUR_RELATIONS),
    values=noises(20),
)
def test_a_pair_comes_out_where_its_noisy_count_reaches_the_threshold(world, order, neighbours, values):
    """Never a pair without trips; in tree order; counts as they were measured."""
    budget, noise = Budget(epsilon=2, delta="1e-4"), ListedLaplace(values)
    release = released_world(world, order, neighbours, noise, "stability_histogram", budget=budget)
    tree, reference = world.trees(order)
    with_trips = [node for node in reference.levels()[tree.depth] if world.flows.get(node)]
    noisy = {node: world.flows[node] + values[k % len(values)] for k, node in enumerate(with_trips)}
    [step] = release.plan.steps
    expected = {(o[-1], d[-1]): count for (o, d), count in noisy.items() if count >= step.threshold}
    rank = tree.compute_first_ranks(release.leaves)
    assert (np.diff(rank) > 0).all()
    table = {(o, d): trips for o, d, trips in release.flows.itertuples(index=False)}
    assert table == expected
    cells = release.measurements
    assert list(zip(cells["origin"], cells["destination"], strict=True)) == list(expected)
    assert cells["noisy"].tolist() == list(expected.values())
    assert (cells["level"] == tree.depth).all()


def released(ledger, release_id=R1, **changes):
    """A release with a ledger, as earlier versions charged it: such ledgers are still read."""
    given = {"unit": TRIP, "budget": BUDGET, "mechanism": "stability_histogram"} | changes
    many = FLOWS.assign(trips=FLOWS["trips"] + 100)
    with baselines_charged():
        return release_flows(many, GEOGRAPHY, ledger=ledger, release_id=release_id, **given, fault_threshold=0)


def ledger_with(tmp_path, cap):
    return declared(tmp_path, "commuters", TRIP, cap)


def test_it_is_an_event_of_its_own_in_the_ledger(tmp_path):
    """Charged once as (epsilon, delta), read back ever after; the delta leaves less of the cap for others."""
    cap = Cap(epsilon=Fraction(10), delta=Fraction(3, 10**8))
    ledger = ledger_with(tmp_path, cap)
    first = released(ledger)
    assert len(first.flows) > 0
    [row] = [row for row in rows(ledger.path) if row["kind"] == "RESERVED"]
    assert (row["rho"], row["epsilon"], row["delta"]) == ("0", "1", "1/100000000")
    [step], content = first.plan.steps, json.loads(row["content"])
    assert content["scale"] == str(step.scale) == "2"
    assert content["threshold"] == step.threshold
    assert first.spent.epsilon == 1
    assert first.spent.epsilon_tight == first.spent.epsilon_bun_steinke == 1.0
    assert first.spent.epsilon_exact is None
    assert first.spent.delta == Fraction(1, 10**8)
    history = rows(ledger.path)
    again = released(Ledger(ledger.path))
    pd.testing.assert_frame_equal(again.flows, first.flows)
    pd.testing.assert_frame_equal(again.measurements, first.measurements)
    assert again.spent == first.spent
    assert rows(ledger.path) == history
    balance = ledger.balance("commuters", "2001-06")
    assert balance.spent == Fraction(1, 2)
    assert balance.cap == cap.allowed_rho(Fraction(1, 10**8)) < cap.allowed_rho()
    assert set(states(ledger.path, R1).values()) == {"MEASURED"}


def interrupted(self, scale, size):
    raise KeyboardInterrupt


def test_a_lost_draw_is_charged_again(tmp_path, monkeypatch):
    """Epsilon and delta add up."""
    ledger = ledger_with(tmp_path, Cap(epsilon=Fraction(10), delta=Fraction(1, 10**6)))
    with monkeypatch.context() as patched:
        patched.setattr(OpenDPNoise, "draw_laplace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            released(ledger)
    release = released(ledger)
    assert release.spent.epsilon == 2
    assert release.spent.delta == Fraction(2, 10**8)
    assert release.spent.rho == 1


def test_caps_that_cannot_hold_it(tmp_path):
    """A cap in rho makes no promise with a delta; one in epsilon and delta is exhausted by the second release."""
    with pytest.raises(OdError, match="OD-LEDGER-CAP-KIND"):
        released(ledger_with(tmp_path / "rho", Cap(rho=Fraction(10))))
    ledger = ledger_with(tmp_path / "epsilon", Cap(epsilon=Fraction(10), delta=Fraction(3, 2 * 10**8)))
    released(ledger)
    before = rows(ledger.path)
    with pytest.raises(OdError, match=r"OD-LEDGER-CAP: .*nothing was spent"):
        released(ledger, "commuters/2001-06/r2")
    assert rows(ledger.path) == before


@pytest.mark.parametrize(
    ("budget", "noise", "code"),
    [
        (Budget(rho=1, delta="1e-8"), NoiseNotWanted(), "OD-BUDGET-KIND"),
        (Budget(epsilon=1), NoiseNotWanted(), "OD-BUDGET-DELTA"),
        (BUDGET, SeededNoise(1), "OD-NOISE-LAPLACE"),
        (Budget(epsilon="1e-6", delta="1e-8"), "table", "OD-NOISE-TOO-WIDE"),
    ],
)
def test_what_is_refused_before_the_trips_are_read(budget, noise, code):
    asked = {"budget": budget, "mechanism": "stability_histogram", "noise": noise, "fault_threshold": 0}
    with pytest.raises(OdError, match=f"{code}:"):
        release_flows(None, GEOGRAPHY, unit=TRIP, **asked)


def test_the_plan_states_its_law():
    user = PrivacyUnit("user", column="user", max_trips=4, neighbours="unbounded")
    given = {"unit": user, "budget": Budget(epsilon="0.5", delta="1e-6"), "acceptance": NO_FAULTS}
    plan = plan_release(GEOGRAPHY, **given, mechanism="stability_histogram")
    [step] = plan.steps
    assert plan.charge == step.charge == Charge(epsilon=Fraction(1, 2), delta=Fraction(1, 10**6))
    assert step.scale == 8
    a = math.exp(-1 / 8)
    assert float(step.variance) == pytest.approx(2 * a / (1 - a) ** 2)
    [stated] = plan.facts()["steps"]
    law = {"scale": "8", "threshold": step.threshold, "epsilon": "1/2", "delta": "1/1000000"}
    assert stated == {"level": 4, "sensitivity": 4, **law}
    assert not plan.publishes_total
    assert math.isnan(plan.to_frame()["expected_error"].item())


def test_the_rule_of_the_threshold_is_stated_and_decides_what_comes_out():
    """At epsilon 1, 37 trips by the least and 40 by the paper's; flows of 37 to 40 trips, without noise."""
    flows = FLOWS.head(4).assign(trips=[37, 38, 39, 40])
    given = {"unit": TRIP, "budget": BUDGET, "fault_threshold": 0}
    rules = (StabilityHistogram(), StabilityHistogram("bun_nissim_stemmer"))
    releases = [release_flows(flows, GEOGRAPHY, mechanism=rule, noise=ListedLaplace([0]), **given) for rule in rules]
    assert [sorted(release.flows["trips"]) for release in releases] == [[37, 38, 39, 40], [40]]
    stated = [release.plan.facts() for release in releases]
    assert [facts["mechanism_options"] for facts in stated] == [{}, {"threshold": "bun_nissim_stemmer"}]
    assert [facts["steps"][0]["threshold"] for facts in stated] == [37, 40]
    assert releases[0].plan.digest != releases[1].plan.digest
    assert releases[0].spent == releases[1].spent
