"""What a plan says can be read: against the intervals of releases, and in simulated releases."""

from itertools import product

import numpy as np
import pytest

from od_core import Budget, InfTDARefined, PrivacyUnit, plan_release
from od_core.flows.accuracy import describe_half_width
from od_core.flows.interval_ends import compute_half_width
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counting import count_trips
from tests.od_core.strategies import frame_of, geography_of

ZONES = [(f"r{region}", f"r{region}z{zone}") for region, zones in enumerate((1, 2, 7)) for zone in range(zones)]
"""Regions of different numbers of zones: the variances of the nodes of a level differ."""


def planned(**options):
    budget = Budget(epsilon=options.pop("epsilon", 1), delta="1e-8")
    return plan_release(geography_of(ZONES), unit=PrivacyUnit("trip"), budget=budget, acceptance=NO_FAULTS, **options)


def counted(plan, flows):
    return count_trips(frame_of(flows), plan.tree, unit=plan.unit, key=b"k" * 32)


def released(plan, trips):
    return run_plan(plan, trips, resolve_noise_source("table"), MemoryMeasurements())


def ends(release, level):
    """Lower and upper ends of the intervals of all nodes of a level of the flow tree; shape (origins, destinations)."""
    tree = release.plan.tree
    o_level, d_level = tree.level_pair(level)
    shape = tree.origin.size(o_level), tree.destination.size(d_level)
    origin, destination = (each.astype(np.int32) for each in np.divmod(np.arange(np.prod(shape)), shape[1]))
    ends = release.intervals.compute_cell_bounds(o_level, d_level, origin, destination)
    return tuple(each.reshape(shape) for each in ends)


@pytest.mark.parametrize("options", [{}, {"tree": "origin"}, {"epsilon": 10}, {"mechanism": "vanilla_gauss"}], ids=str)
def test_the_widest_interval_of_every_level_is_the_planned_one(options):
    """With flows too large to be cut at 0. The ends are rounded inwards to whole numbers, each by less than 1."""
    plan = planned(**options)
    release = released(plan, counted(plan, dict.fromkeys(product(ZONES, ZONES), 5_000)))
    for step in plan.steps:
        lower, upper = ends(release, step.level)
        widest = 2 * plan.half_widths[step.level]
        assert widest - 2 < (upper - lower).max() <= widest


def test_where_nodes_may_be_dropped_no_interval_of_a_large_flow_is_wider_than_planned():
    plan = planned(mechanism=InfTDARefined(keep_all_cap=0))
    alone = compute_half_width(np.zeros(len(plan.steps)), np.array([float(step.variance) for step in plan.steps]))
    assert [plan.half_widths[step.level] for step in plan.steps] == alone.tolist()
    large = list(product(ZONES, ZONES))[::3]
    release = released(plan, counted(plan, dict.fromkeys(large, 5_000)))
    lower, upper = ends(release, plan.tree.depth)
    number = {zone: place for place, zone in enumerate(ZONES)}
    cells = tuple(np.array([[number[o], number[d]] for o, d in large]).T)
    assert (upper - lower)[cells].max() <= 2 * plan.half_widths[-1]


@pytest.mark.parametrize(
    ("width", "small", "large"),
    [(0.6, "1 ", "10 "), (99.5, "100 ", "1,000 "), (123.4, "130 ", "1,300 "), (4_510.0, "4,600 ", "46,000 ")],
)
def test_a_verdict_is_rounded_up_to_two_digits(width, small, large):
    said = describe_half_width(width)
    assert f"below {small}trips" in said
    assert f"from {large}on" in said


@pytest.mark.parametrize("mechanism", ["inftda_refined", "inftda", InfTDARefined(keep_all_cap=0)], ids=str)
def test_a_level_with_one_area_changes_no_number(mechanism):
    """The total of a country is that of the whole space: where it is not exact, it is as uncertain, and as accurate."""
    budget, unit = Budget(epsilon=1, delta="1e-8", shares="geography"), PrivacyUnit("trip", "unbounded")
    both = (geography_of(ZONES), geography_of([("c", *zone) for zone in ZONES]))
    plain, country = (plan_release(areas, unit=unit, budget=budget, mechanism=mechanism) for areas in both)
    assert [step.level for step in country.steps] == [2, 3, 4, 5, 6]
    for numbers in ("half_widths", "expected_errors"):
        of_plain, of_country = getattr(plain, numbers), getattr(country, numbers)
        assert of_country[:2] == pytest.approx([of_plain[0]] * 2)
        assert of_country[2:] == pytest.approx(of_plain)
    assert [*country.known_to_within.values()] == pytest.approx([*plain.known_to_within.values()])
