"""Model-assisted flows: shrunk estimates of a release that learn from the releases before it."""

from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from od_core import AssistedFlows, Budget, OdError, PrivacyUnit, Release, assist_release
from od_core.flows.estimation import families, intervals
from od_core.flows.mechanisms import MECHANISMS, InfTDARefined
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from tests.od_core.doubles import SeededLaplace, SeededNoise
from tests.od_core.flows.estimation.test_empirical_bayes import counts_of, dense
from tests.od_core.flows.estimation.test_rule_choice import ROUGH
from tests.od_core.flows.estimation.test_shrinkage import GRAVITY, plan_of
from tests.od_core.flows.test_flow_sum import RANDOMS, cases_of
from tests.od_core.group_sizes import test_release as group_sizes
from tests.od_core.oracles.intervals import DROPPING, KEEPING, made
from tests.od_core.oracles.segments import segment_case

ZONES = [("a", "a1"), ("a", "a2"), ("b", "b1")]


def releases_of(
    world: Any, seeds: range, share: str | None = None, tree: str = "destination", **options: Any
) -> list[Release]:
    """Releases of the same trips, with the noise of each seed; ``share`` is that of area totals."""
    plan = plan_of(world, tree, **({"estimate": "least_squares", "epsilon": "0.5"} | options))
    plan = replace(plan, area_totals=None if share is None else Fraction(share))
    return [run_plan(plan, counts_of(plan, world), SeededNoise(seed), MemoryMeasurements()) for seed in seeds]


# -- estimates -------------------------------------------------------------------------------------------------------


@given(random=RANDOMS, learns=st.booleans())
@example(Random(88263), True)  # noqa: S311  # least squares is without error, but for rounding
def test_the_estimates_are_a_table_of_whole_trips_with_the_intervals_of_the_release(
    random: Random, learns: bool
) -> None:
    """Of any mechanism that measures every level, whatever was dropped, and for levels that learn or do not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(families, "_MIN_CELLS_TO_LEARN", 1 if learns else 10**9)
        releases = [case.release for case in cases_of(random, [*KEEPING[:2], *DROPPING])]
        found = assist_release(releases)
    last, tree = releases[-1], found.tree
    assert found.releases == tuple(releases)
    assert np.all(found.leaves.trips >= 1)
    assert np.all(np.diff(tree.compute_first_ranks(found.leaves)) > 0)
    if last.plan.publishes_total:
        assert found.leaves.trips.sum() == last.leaves.trips.sum() == found.exact_trips
    else:
        assert found.exact_trips is None
    levels = tree.origin.levels[-1], tree.destination.levels[-1]
    for listed in (found.flows_at(*levels, interval=True), last.flows_at(*levels, interval=True)):
        assert (listed["lower"] <= listed["trips"]).all()
        assert (listed["trips"] <= listed["upper"]).all()
    assert found.flows["trips"].sum() == found.leaves.trips.sum()
    everything = [np.ones(len(side.zones), dtype=bool) for side in (tree.origin, tree.destination)]
    assert found.intervals.compute_sum_bounds(*everything) == last.intervals.compute_sum_bounds(*everything)
    there = found.leaves.origin, found.leaves.destination
    depth = tree.origin.depth, tree.destination.depth
    both = (one.intervals.compute_cell_bounds(*depth, *there) for one in (found, last))
    for mine, direct in zip(*both, strict=True):
        assert mine.tolist() == direct.tolist()


@pytest.mark.parametrize(("share", "tree"), [(None, "destination"), ("1/10", "origin"), ("1/10", "both")])
def test_the_estimates_of_one_release_are_those_of_the_chosen_rule(share: str | None, tree: str) -> None:
    """With nothing before it, a release is estimated as ``estimate: auto`` does, from area totals, too."""
    (direct,), (chosen,) = (
        releases_of(GRAVITY, range(1), share, tree, estimate=one) for one in ("least_squares", "auto")
    )
    found = assist_release([direct])
    assert found.rule.learns
    assert np.array_equal(dense(direct.plan, found), dense(chosen.plan, chosen))
    assert not np.array_equal(dense(direct.plan, found), dense(direct.plan, direct))


def test_where_no_rule_gains_the_released_flows_stay() -> None:
    """Of trips that say nothing about each other, only an earlier release of the same trips says something."""
    releases = releases_of(ROUGH, range(2))
    alone, both = assist_release(releases[1:]), assist_release(releases)
    assert not alone.rule.learns
    assert np.array_equal(dense(releases[1].plan, alone), dense(releases[1].plan, releases[1]))
    assert both.rule.learns


@pytest.mark.slow
def test_earlier_releases_lower_the_error() -> None:
    """Total errors of the leaves, over 4 series of 4 releases of the same trips, with fixed noise."""
    (truth,) = releases_of(GRAVITY, range(1), epsilon="10000")
    errors = dict.fromkeys((0, 1, 3), 0.0)
    for series in range(4):
        releases = releases_of(GRAVITY, range(4 * series, 4 * series + 4))
        for number in errors:
            found = assist_release(releases[number::-1])  # the last one estimated is the same in all of them
            errors[number] += np.abs(dense(truth.plan, found) - dense(truth.plan, truth)).sum()
    made = releases_of(GRAVITY, range(0, 16, 4))
    direct = sum(np.abs(dense(truth.plan, one) - dense(truth.plan, truth)).sum() for one in made)
    assert errors[0] < 0.97 * direct
    assert errors[1] < 0.95 * errors[0]
    assert errors[3] < errors[1]


def test_a_release_with_breakdowns_is_estimated_without_them() -> None:
    """All its measurements are used: those of the totals, and the sums of the categories."""
    case = segment_case(Random(5), order="origin")  # noqa: S311  # no secret
    found = assist_release([case.release])
    assert found.breakdowns == ()
    if case.release.plan.publishes_total:
        assert found.leaves.trips.sum() == case.release.leaves.trips.sum()
    name = case.release.plan.breakdowns[0].name
    levels = found.tree.origin.levels[-1], found.tree.destination.levels[-1]
    with pytest.raises(OdError, match="OD-SEGMENT-UNKNOWN"):
        found.flows_at(*levels, segment=name)
    with pytest.raises(OdError, match="OD-SEGMENT-UNKNOWN: there is no breakdown"):
        found.segment_intervals(name)


def test_a_table_of_one_cell_is_as_it_was_released() -> None:
    case = small(unit=PrivacyUnit("trip", "unbounded"), zones=[("a", "a1")])
    assert assist_release([case]).leaves.trips.tolist() == case.leaves.trips.tolist()
    assert repr(assist_release([case])) == f"AssistedFlows(1 releases, {case.leaves.trips.sum():,} trips)"


# -- refusals --------------------------------------------------------------------------------------------------------


def small(zones: Any = ZONES, **changes: Any) -> Release:
    given = {"unit": PrivacyUnit("trip", "bounded"), "budget": Budget(rho=1, delta="1e-8")}
    given |= {"mechanism": InfTDARefined(), "noise": SeededNoise(1)}
    return made(zones, zones, np.full((len(zones), len(zones)), 5), **(given | changes)).release


def test_releases_that_do_not_fit_each_other_are_refused() -> None:
    with pytest.raises(OdError, match="OD-ASSIST-FEW"):
        assist_release([])
    with pytest.raises(OdError, match="OD-DERIVED-OTHER: the areas of the origins of release 2 differs from release 1"):
        assist_release([small(), small(zones=ZONES[:2])])
    with pytest.raises(OdError, match="OD-DERIVED-OTHER: the privacy unit of release 2"):
        assist_release([small(), small(unit=PrivacyUnit("trip", "unbounded"))])
    assert isinstance(assist_release([small(), small(budget=Budget(rho=2, delta="1e-8"))]), AssistedFlows)


def test_what_has_no_measured_levels_is_refused() -> None:
    with pytest.raises(OdError, match="OD-DERIVED-KIND: release 1 is not a release of flows"):
        assist_release([group_sizes.released()])  # type: ignore[list-item]
    with pytest.raises(OdError, match="OD-DERIVED-KIND"):
        assist_release([assist_release([small()])])  # type: ignore[list-item]
    for name, noise in (("vanilla_gauss", SeededNoise(1)), ("stability_histogram", SeededLaplace(1))):
        unit = PrivacyUnit("trip", "unbounded")
        other = small(mechanism=MECHANISMS[name](), unit=unit, noise=noise, budget=Budget(epsilon=1, delta="1e-8"))
        with pytest.raises(OdError, match=f"OD-ASSIST-MECHANISM: release 1: mechanism '{name}' does not measure"):
            assist_release([other])


def test_what_does_not_fit_into_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    case = small()
    monkeypatch.setattr("od_core.flows.release.read_memory_limit", lambda: 250 * 9 - 1)
    with pytest.raises(OdError, match="OD-LEVEL-MEMORY"):
        assist_release([case])
    monkeypatch.setattr("od_core.flows.release.read_memory_limit", lambda: 250 * 9)
    assist_release([case])
    monkeypatch.setattr(intervals, "MAX_MEASURED_CELLS", 8)
    with pytest.raises(OdError, match="OD-INTERVAL"):
        assist_release([replace(case)])
