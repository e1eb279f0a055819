"""What every projection refuses: the same faults, with the same codes."""

from functools import partial

import numpy as np
import pytest

from od_core import OdError
from od_core.flows.projection.linear_programs import project_children_by_solver
from od_core.flows.projection.onto_parents import ORDERS, project_children, project_children_euclidean
from tests.od_core.oracles import euclidean, intopt

IN_64_BITS = [(partial(project_children, order=order), partial(intopt.closed_form, order=order)) for order in ORDERS]
IN_64_BITS.append((project_children_euclidean, euclidean.rounded))
"""Projections that go up to the bound of 64-bit sums, each with its oracle."""

EVERY = [*(project for project, _ in IN_64_BITS), project_children_by_solver]


@pytest.mark.parametrize("project", EVERY)
def test_refuses_a_level_with_one_bad_parent(project):
    noisy, offsets = np.array([1, 2, 3]), np.array([0, 2, 3])
    with pytest.raises(OdError, match="OD-INTOPT-TOTAL"):
        project(noisy, np.array([3, -1]), offsets)
    with pytest.raises(OdError, match="OD-INTOPT-EMPTY"):
        project(noisy, np.array([3, 0, 3]), np.array([0, 2, 2, 3]))
    with pytest.raises(OdError, match="OD-INTOPT-EMPTY"):
        project(noisy, np.array([3, 3, 0]), np.array([0, 2, 3, 3]))
    with pytest.raises(OdError, match="OD-INTOPT-OVERFLOW"):
        project(np.array([1, 1 << 61, 1 << 61]), np.array([1, 1 << 61]), np.array([0, 1, 3]))


@pytest.mark.parametrize("project", EVERY)
def test_a_level_without_parents_has_no_children(project):
    none = np.zeros(0, dtype=np.int64)
    assert project(none, none, np.array([0])).tolist() == []


@pytest.mark.parametrize(("project", "oracle"), IN_64_BITS)
def test_a_parent_is_refused_from_the_bound_on(project, oracle):
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
            y = project(*level)[2:]
            assert int(y.sum()) == total
            assert y.min() >= 0
            if len(x) < 4:
                assert y.tolist() == oracle(x.tolist(), total)
        else:
            with pytest.raises(OdError, match="OD-INTOPT-OVERFLOW"):
                project(*level)
