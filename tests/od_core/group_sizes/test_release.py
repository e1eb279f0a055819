"""The façade: tables, measurements, charges, and what is refused before anything is drawn."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from od_core import Budget, Geography, OdError, PrivacyUnit, evaluate_group_sizes, plan_group_sizes, release_group_sizes
from od_core.group_sizes.mechanisms import MECHANISMS, MixedQueries
from tests.od_core.doubles import ListedLaplace, ListedNoise, NoiseNotWanted
from tests.od_core.ledger.ledger_rows import declared, rows

ZONES = pd.DataFrame({"region": ["A", "A", "B", "C"], "zone": ["01", "02", "03", "04"]})
GEOGRAPHY = Geography.from_frame(ZONES, ["region", "zone"])
UNBOUNDED, BOUNDED = PrivacyUnit("trip", "unbounded"), PrivacyUnit("trip", "bounded")
TOP_CODE = 9
R1 = "departures/2001-06/r1"

EXPECT_NOISE = ("naive", "bottom_up_posterior", "sizes_posterior")
"""Weigh the values by the noise that is planned, and so smooth values that have none."""


def groups(number=60, seed=1):
    """Sizes up to 12, so that some are above the top code; area 04 has no group."""
    generator = np.random.default_rng(seed)
    areas = pd.Series(generator.choice(["01", "02", "03"], number), dtype="str")
    sizes = generator.choice([0, 1, 2, 3, 12], number, p=[0.3, 0.3, 0.2, 0.1, 0.1])
    return pd.DataFrame({"group": [f"g{k}" for k in range(number)], "area": areas, "size": sizes})


def released(given=None, geography=GEOGRAPHY, **changes):
    arguments = {"unit": UNBOUNDED, "budget": Budget(epsilon=1), "mechanism": "cumulative", "noise": "table"}
    arguments["top_code"] = TOP_CODE
    return release_group_sizes(groups() if given is None else given, geography, **arguments | changes)


def of_zones(release):
    """Released numbers of groups by zone and size."""
    zones = release.histogram[release.histogram["level"] == "zone"]
    return zones.set_index(["area", "size"])["groups"].to_dict()


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name not in EXPECT_NOISE])
def test_without_noise_the_table_is_the_truth(name):
    """But for sizes above the top code, which count as it."""
    release = released(mechanism=name, noise=ListedLaplace([0]))
    truth = groups()
    truth["size"] = truth["size"].clip(upper=TOP_CODE)
    expected = truth.groupby(["area", "size"]).size().to_dict()
    assert of_zones(release) == expected
    errors = evaluate_group_sizes(release, groups())
    assert (errors[["earth_movers_distance", "l1_error", "total_error", "child_error"]] == 0).all(axis=None)
    ranks = release.sizes[release.sizes["level"] == "zone"]
    for area, some in truth.groupby("area"):
        assert ranks.loc[ranks["area"] == area, "size"].tolist() == sorted(some["size"])
        assert ranks.loc[ranks["area"] == area, "rank"].tolist() == list(range(1, len(some) + 1))
    at_most = release.cumulative
    assert len(at_most) == (3 + 4) * (TOP_CODE + 1)
    last = at_most[at_most["size"] == TOP_CODE].set_index(["level", "area"])["groups"]
    assert last["zone"].to_dict() == {"01": 0, "02": 0, "03": 0, "04": 0} | truth.groupby("area").size().to_dict()


def test_errors_against_a_count_by_hand():
    """One group of 3 released as one of 1, and so on: distances, L1 and totals from their definitions."""
    given = pd.DataFrame({"group": [1, 2], "area": pd.Series(["01", "03"], dtype="str"), "size": [3, 2]})
    release = released(given, mechanism=MECHANISMS.make("bottom_up", leaf="sizes"), noise=ListedLaplace([-2, 4]))
    errors = evaluate_group_sizes(release, given).set_index(["level", "area"])
    assert errors.loc[("zone", "01"), "earth_movers_distance"] == 2
    assert errors.loc[("zone", "03"), "earth_movers_distance"] == 4
    assert errors.loc[("region", "B"), "l1_error"] == 2
    assert errors.loc[("zone", "02"), "l1_error"] == 0
    assert errors["total_error"].sum() == 0


def test_a_ledger_charges_pure_epsilon_once(tmp_path):
    ledger = declared(tmp_path, "departures", BOUNDED)
    arguments = {"unit": BOUNDED, "ledger": ledger, "release_id": R1}
    first = released(**arguments)
    reserved = [row for row in rows(ledger.path) if row["kind"] == "RESERVED"]
    assert [(row["rho"], row["epsilon"], row["delta"]) for row in reserved] == [("0", "1/2", "0")] * 2
    assert ledger.balance("departures", "2001-06").spent == Fraction(1, 4)  # two events of (1/2)^2 / 2
    history = rows(ledger.path)
    again = released(**arguments)
    assert rows(ledger.path) == history
    pd.testing.assert_frame_equal(again.histogram, first.histogram)
    assert again.spent == first.spent
    with pytest.raises(OdError, match="OD-REPLAY-INPUT-CHANGED"):
        released(groups().assign(size=1), **arguments)
    with pytest.raises(OdError, match=r"OD-REPLAY-PLAN-CHANGED.*top_code"):
        released(top_code=8, **arguments)
    assert rows(ledger.path) == history


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"noise": ListedNoise([0])}, "OD-NOISE-LAPLACE"), ({"budget": Budget(epsilon="1e-6")}, "OD-NOISE-TOO-WIDE")],
)
def test_noise_that_cannot_be_drawn_is_refused_before_anything_is_charged(changes, code, tmp_path):
    ledger = declared(tmp_path, "departures", UNBOUNDED)
    with pytest.raises(OdError, match=code):
        released(ledger=ledger, release_id=R1, **changes)
    assert [row for row in rows(ledger.path) if row["kind"] == "RESERVED"] == []


def changed(**columns):
    return groups().assign(**columns)


@pytest.mark.parametrize(
    ("given", "changes", "code"),
    [
        (changed(group="twice"), {}, "OD-GROUPS-TWICE"),
        (changed(group=None), {}, "OD-GROUPS-NAME"),
        (changed(area="99"), {}, "OD-GROUPS-AREA"),
        (changed(area=7), {}, "OD-GROUPS-AREA"),
        (changed(size=-987654), {}, "OD-GROUPS-SIZE"),
        (changed(size=1.5), {}, "OD-GROUPS-SIZE"),
        (changed(size=True), {}, "OD-GROUPS-SIZE"),
        (groups().drop(columns="size"), {}, "OD-GROUPS-COLUMN"),
        (None, {"top_code": None}, "OD-GROUPS-TOP-CODE"),
        (None, {"top_code": 0}, "OD-GROUPS-TOP-CODE"),
        (None, {"unit": PrivacyUnit("user", "unbounded", "id", 3)}, "OD-GROUPS-UNIT"),
        (None, {"budget": Budget(rho=1, delta="1e-8")}, "OD-BUDGET-KIND"),
        (None, {"budget": Budget(epsilon=1, delta="1e-8")}, "OD-BUDGET-KIND"),
        (None, {"mechanism": "cumulatve"}, "OD-MECHANISM-UNKNOWN.*'cumulative'"),
        (None, {"release_id": R1}, "OD-RELEASE-KEY"),
        (None, {"mechanism": MixedQueries(("cumulative",))}, "OD-GROUPS-QUERIES"),
    ],
)
def test_bad_input(given, changes, code):
    with pytest.raises(OdError, match=code) as refused:
        released(given, **{"noise": DrawsNothing(), **changes})
    assert "987654" not in str(refused.value)


@pytest.mark.parametrize(
    "numbers", [[1, 2], ["x"] * len(ZONES), [1.5] * len(ZONES), [-1] * len(ZONES), {"00": 1}, None]
)
def test_public_numbers_of_groups_that_are_none_are_refused(numbers):
    """A list is taken as an array, and nothing is rounded."""
    given = {"unit": UNBOUNDED, "budget": Budget(epsilon=1), "top_code": 3}
    assert plan_group_sizes(GEOGRAPHY, [1] * len(ZONES), **given).frame.groups.sum() == len(ZONES)
    with pytest.raises(OdError, match="OD-GROUPS-FRAME"):
        plan_group_sizes(GEOGRAPHY, numbers, **given)


class DrawsNothing(NoiseNotWanted):
    """Test double for calls that must be refused before anything is drawn."""

    def draw_laplace(self, scale, size):
        raise AssertionError("noise was drawn")
