"""The façade: boxes, charges, replay, the guard, and what is refused before anything is drawn."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from od_core import Budget, Grid, OdError, PrivacyUnit, Trajectories, release_stops
from od_core.ledger.measurements import NoisyVector
from od_core.stops.mechanisms import MECHANISMS, DAFEntropy
from od_core.stops.release import estimate_release
from tests.od_core.doubles import ListedLaplace, NoiseNotWanted
from tests.od_core.ledger.ledger_rows import declared, rows
from tests.od_core.stops.worlds import check_partition

UNBOUNDED, BOUNDED = PrivacyUnit("trip", "unbounded"), PrivacyUnit("trip", "bounded")
GRID = (8, 4, 8)
R1 = "journeys/2001-06/r1"
NARROW_ROOT = {"grid": (32,) * 8, "points": [], "budget": Budget(epsilon="0.05"), "mechanism": "daf_homogeneity"}
"""A tree whose noise may be wider below the root than at the root, where a table has it."""


def trips(number=3000, seed=1):
    return np.random.default_rng(seed).binomial(np.array(GRID) - 1, [0.2, 0.5, 0.7], (number, 3))


def released(points=None, **changes):
    arguments = {"unit": UNBOUNDED, "budget": Budget(epsilon=1), "noise": "table"}
    return release_stops(trips() if points is None else points, **{"grid": GRID} | arguments | changes)


@pytest.mark.parametrize("points", [np.empty((0, 3)), [], pd.DataFrame(columns=["a", "b", "c"])])
@pytest.mark.parametrize("name", MECHANISMS)
def test_no_trips_are_valid(name, points):
    check_partition(released(points, mechanism=name).measured, Grid(GRID))


def test_trips_in_any_form_are_the_same_and_stay_as_they_are():
    points = trips().astype(np.int32)
    before = points.copy()
    forms = [points, points.tolist(), pd.DataFrame(points), Trajectories.from_cells(points, Grid(GRID))]
    tables = [released(form, noise=ListedLaplace([3, -2, 0, 1])).boxes for form in forms]
    for table in tables[1:]:
        pd.testing.assert_frame_equal(table, tables[0])
    for name in MECHANISMS:
        released(Trajectories(points, Grid(GRID)), mechanism=name)
        assert np.array_equal(points, before), name
    assert not released(points, noise=ListedLaplace([0])).has_guarantee


def test_a_ledger_charges_pure_epsilon_once(tmp_path):
    ledger = declared(tmp_path, "journeys", BOUNDED)
    arguments = {"unit": BOUNDED, "ledger": ledger, "release_id": R1}
    first = released(**arguments)
    reserved = [row for row in rows(ledger.path) if row["kind"] == "RESERVED"]
    assert [(row["rho"], row["epsilon"], row["delta"]) for row in reserved] == [("0", "1", "0")]
    assert ledger.balance("journeys", "2001-06").spent == Fraction(1, 2)
    history = rows(ledger.path)
    again = released(np.random.default_rng(5).permutation(trips()), **arguments)  # the same trips in another order
    assert rows(ledger.path) == history
    pd.testing.assert_frame_equal(again.boxes, first.boxes)
    assert again.spent == first.spent
    assert first.noise == again.noise == "table"
    with pytest.raises(OdError, match="OD-REPLAY-INPUT-CHANGED"):
        released(trips(seed=2), **arguments)
    with pytest.raises(OdError, match=r"OD-REPLAY-PLAN-CHANGED.*mechanism"):
        released(mechanism="daf_entropy", **arguments)
    with pytest.raises(OdError, match=r"OD-REPLAY-PLAN-CHANGED.*grid"):
        released(grid=(8, 4, 9), **arguments)
    assert rows(ledger.path) == history


def test_a_release_is_a_function_of_its_measurement_alone():
    release = released(noise=ListedLaplace([5, -3, 0, 2, -8]))
    measured = release.measured
    flat = np.hstack([measured.lower, measured.upper, measured.noisy[:, np.newaxis]]).astype(np.int64).ravel()
    measured = [(release.plan.step, NoisyVector.from_arrays([flat]))]
    again = estimate_release(release.plan, measured, spent=release.spent, noise=None)
    pd.testing.assert_frame_equal(again.boxes, release.boxes)
    for damaged in (flat[:-1], flat[:0], np.append(flat, [0] * 3 + [8] + [0] * 3), np.append(flat, [1] + [0] * 6)):
        measured = [(release.plan.step, NoisyVector.from_arrays([damaged]))]
        with pytest.raises(OdError, match="OD-STOPS-BOXES"):
            estimate_release(release.plan, measured, spent=release.spent, noise=None)


@dataclass(frozen=True)
class Spendthrift(DAFEntropy):
    """Test double: leaves half of the budget on the first path or on the last one."""

    place: int = 0

    def draw_boxes(self, points, grid, path):
        drawn = super().draw_boxes(points, grid, path)
        paths = [*drawn.paths]
        assert len(paths) > 1
        paths[self.place] = path.with_charge(path.left / 2)
        return type(drawn)(drawn.boxes, tuple(paths))


@pytest.mark.parametrize("place", [0, -1])
def test_a_path_that_has_not_spent_the_budget_exactly_is_refused(place):
    with pytest.raises(OdError, match="OD-STOPS-CHARGE"):
        released(mechanism=Spendthrift(place=place))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"unit": PrivacyUnit("user", "bounded", "user_id", 3)}, "OD-STOPS-UNIT"),
        ({"budget": Budget(rho=1, delta="1e-8")}, "OD-BUDGET-KIND"),
        ({"grid": (8, 4)}, "OD-STOPS-DIMENSIONS"),
        ({"grid": (8, 4, 4)}, "OD-STOPS-OFF-GRID"),
        ({"grid": 8}, "OD-STOPS-GRID"),
        ({"points": Trajectories.from_cells(trips(), Grid((9, 9, 9)))}, "OD-STOPS-GRID"),
        ({"points": trips() - 1}, "OD-STOPS-OFF-GRID"),
        ({"mechanism": "privtre"}, "OD-MECHANISM-UNKNOWN"),
        ({"mechanism": "identity", "grid": (1 << 20, 4, 8)}, "OD-STOPS-TOO-MANY-BOXES"),
        ({"release_id": R1}, "OD-RELEASE-KEY"),
        ({"noise": NoiseNotWanted()}, "OD-NOISE-LAPLACE"),
        ({"noise": "table", "budget": Budget(epsilon="0.0001")}, "OD-NOISE-TOO-WIDE"),
        (NARROW_ROOT | {"noise": "table"}, "OD-NOISE-TOO-WIDE"),
    ],
)
def test_what_is_refused(changes, code):
    arguments = {"noise": _Wanted()} | changes
    with pytest.raises(OdError, match=code) as caught:
        released(**arguments)
    assert "nothing was spent" in str(caught.value)


class _Wanted(NoiseNotWanted):
    def draw_laplace(self, scale, size):
        raise AssertionError("noise was drawn")
