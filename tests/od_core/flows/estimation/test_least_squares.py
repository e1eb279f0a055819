"""Least squares on the flow tree against dense linear algebra: the estimate and the variance of every node."""

from random import Random

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from od_core.flows.estimation.least_squares import fit_least_squares
from tests.od_core.oracles.intervals import DROPPING, KEEPING, LAPLACE, Case, case_of

RANDOMS = st.randoms(use_true_random=True)


def fitted(case: Case):
    return fit_least_squares(case.release.plan, case.trips, case.release.measured)


def nodes_of(case: Case, level) -> list:
    """The nodes of a fitted level by their areas."""
    origins, destinations = (case.areas(s, n) for s, n in enumerate(case.tree.level_pair(level.nodes.level)))
    return [(origins[o], destinations[d]) for o, d in zip(level.nodes.origin, level.nodes.destination, strict=True)]


@pytest.mark.parametrize(
    "mechanisms", [KEEPING, DROPPING, [LAPLACE]], ids=["all kept", "some dropped", "Laplace noise"]
)
@given(random=RANDOMS)
def test_every_node_has_the_estimate_and_the_variance_of_linear_algebra(mechanisms, random: Random):
    """All measured nodes, dropped ones too, and the root; where leaves alone were measured, all public nodes."""
    case = case_of(random, mechanisms)
    dense, plan = case.dense, case.release.plan
    event(f"dropped: {case.drops}, unmeasured: {bool(plan.unmeasured_levels)}, exact root: {plan.publishes_total}")
    levels = fitted(case)
    for level in levels:
        nodes = nodes_of(case, level)
        if plan.mechanism.measures == "every_level" and (level.nodes.level > 0 or plan.steps[0].level == 0):
            assert sorted(nodes) == sorted(dense.cells[level.nodes.level])
        if not dense.columns:  # n is 0: nothing was measured
            assert level.estimate.tolist() == level.variance.tolist() == [0.0] * len(nodes)
            continue
        expected = np.array([dense.of_node(node) for node in nodes]).reshape(-1, 2)
        scale = 1 + np.abs(dense.estimate).sum() + float(max(step.variance for step in plan.steps))
        np.testing.assert_allclose(level.estimate, expected[:, 0], rtol=1e-7, atol=1e-9 * scale)
        np.testing.assert_allclose(level.variance, expected[:, 1], rtol=1e-7, atol=1e-9 * scale)
    begins = not plan.publishes_total and len(levels) == len(plan.steps)
    assert levels[0].nodes.level == (plan.steps[0].level if begins else 0)
