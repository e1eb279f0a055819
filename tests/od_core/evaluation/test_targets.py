"""Targets of accuracy: their texts, the flows to which they apply, and when a release meets them."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from od_core import OdError
from od_core.evaluation.targets import Target, TargetClass, sum_positive_trips
from od_core.flows.optimal_shares import Quantity
from od_core.geography.flow_tree import FlowTree, Nodes
from od_core.records.segments import make_breakdowns
from tests.od_core.strategies import geography_of, leaves_of

ZONES = [("A", "a", "1"), ("A", "a", "2"), ("A", "b", "3"), ("B", "c", "4"), ("B", "c", "5")]
TREE = FlowTree(geography_of(ZONES), geography_of(ZONES))
FIRST, SECOND, LAST = TREE.origin.levels
MODES = make_breakdowns({"mode": ["car", "bus"]}, {})


def table(seed: int = 1) -> tuple[Nodes, np.ndarray, pd.DataFrame]:
    """Flows between zones as leaves in tree order, with categories, and as a data frame with all areas."""
    generator = np.random.default_rng(seed)
    trips = generator.integers(0, 60, (5, 5)) * (generator.random((5, 5)) < 0.6)
    origin, destination = np.nonzero(trips)
    leaves = leaves_of(TREE, origin, destination, trips[origin, destination])
    car = generator.binomial(leaves.trips, 0.4)
    segments = np.column_stack([car, leaves.trips - car])
    zones = pd.DataFrame(ZONES, columns=[FIRST, SECOND, LAST])
    ends = (("o_", leaves.origin), ("d_", leaves.destination))
    sides = [zones.iloc[numbers].add_prefix(side).reset_index(drop=True) for side, numbers in ends]
    flows = pd.concat(sides, axis=1).assign(trips=leaves.trips, car=segments[:, 0], bus=segments[:, 1])
    return leaves, segments, flows


def expected(name: str, flows: pd.DataFrame) -> dict[tuple[str, ...], int]:
    """The numbers of a quantity that are above 0, by pandas."""
    name, _, by = name.partition(" by ")
    columns = ["car", "bus"] if by else ["trips"]
    if " x " in name:
        origin, destination = name.split(" x ")
        keys = [f"{side}_{level}" for side, level in (("o", origin), ("d", destination)) if level != "all"]
        rows = flows
    else:
        level, part = name.split()
        inside = flows[f"o_{level}"] == flows[f"d_{level}"]
        rows = flows[inside if part == "within" else ~inside]
        keys = [f"{'d' if part == 'inflow' else 'o'}_{level}"]
    sums = rows.groupby(keys)[columns].sum() if keys else rows[columns].sum().to_frame().T
    return sorted(int(value) for value in sums.to_numpy().ravel() if value > 0)


NAMES = [
    *(f"{o} x {d}" for o in TREE.origin.level_names for d in TREE.destination.level_names),
    *(f"{level} {part}" for level in TREE.origin.levels for part in ("within", "outflow", "inflow")),
]


@pytest.mark.representatives
@pytest.mark.parametrize("name", [*NAMES, *(f"{name} by mode" for name in NAMES)])
def test_numbers_of_a_quantity_are_sums_of_flows(name):
    leaves, segments, flows = table()
    quantity = Quantity.parse(name, TREE, MODES)
    keys, trips = sum_positive_trips(quantity, TREE, leaves, segments if quantity.breakdown else None)
    assert (np.diff(keys) > 0).all()
    assert sorted(trips.tolist()) == expected(name, flows)


@pytest.mark.representatives
@pytest.mark.parametrize("name", [*NAMES, *(f"{name} by mode" for name in NAMES)])
def test_a_release_meets_a_target_if_enough_flows_are_within_the_tolerance(name):
    """The smallest sufficient factor of the tolerances, by trying out all of them."""
    (leaves, segments, _), (other, other_segments, _) = table(1), table(2)
    target = Target.parse(f"{name}: flows >= 15 within 20 % in 70 %", TREE, MODES)
    by_mode = target.quantity.breakdown is not None
    chosen = TargetClass.select_flows(target, TREE, leaves, segments if by_mode else None)
    numbers = sum_positive_trips(target.quantity, TREE, leaves, segments)
    true = dict(zip(*(part.tolist() for part in numbers), strict=True))
    numbers = sum_positive_trips(target.quantity, TREE, other, other_segments)
    found = dict(zip(*(part.tolist() for part in numbers), strict=True))
    large = {key: trips for key, trips in true.items() if trips >= 15}
    ratios = sorted(abs(found.get(key, 0) - trips) / (trips // 5 + 0.5) for key, trips in large.items())
    smallest = next(r for r in ratios if sum(one <= r for one in ratios) >= 0.7 * len(ratios) - 1e-9)
    assert chosen.sizes.tolist() == list(large.values())
    assert chosen.compute_ratio(TREE, other, other_segments if by_mode else None) == pytest.approx(smallest, rel=1e-12)
    assert chosen.compute_ratio(TREE, leaves, segments if by_mode else None) == 0


def test_the_cells_of_a_class_are_its_areas():
    leaves, segments, flows = table()
    quantity = f"{SECOND} x {FIRST} by mode"
    target = Target.parse(f"{quantity}: flows >= 1 within 1 trip in 50 %", TREE, MODES)
    chosen = TargetClass.select_flows(target, TREE, leaves, segments)
    towns, regions = (TREE.origin.codes_of(level, np.arange(TREE.origin.size(level))) for level in (2, 1))
    sums = flows.groupby([f"o_{SECOND}", f"d_{FIRST}"])[["car", "bus"]].sum().stack()
    expected = [(town, region, trips) for (town, region, _), trips in sums.items() if trips > 0]
    found = [(towns[o], regions[d], n) for o, d, n in zip(*chosen.cells, chosen.sizes, strict=True)]
    assert found == expected


def one_flow(trips: int) -> Nodes:
    places = np.array([2], dtype=np.int32)
    return leaves_of(TREE, places, places, np.array([trips]))


@pytest.mark.parametrize(
    ("size", "within", "largest"),
    [
        (100, "29 %", 29),  # 100 * 0.29 is below 29 in floating point
        (100, "0.4 %", 0),
        (7, "100 %", 7),
        (50, "3.9 trips", 3),
        (3, "33.333 %", 0),
        (2**40, "12.5 %", 2**37),
    ],
)
def test_whole_errors_up_to_the_tolerance_are_within_it(size, within, largest):
    target = Target.parse(f"{LAST} x {LAST}: flows >= 1 within {within} in 90 %", TREE)
    chosen = TargetClass.select_flows(target, TREE, one_flow(size), None)
    generator = np.random.default_rng(4)
    for error in {largest, -largest}:
        assert chosen.compute_ratio(TREE, one_flow(size + error), None) <= 1
        assert chosen.compute_ratio(TREE, one_flow(size + error), None, generator) <= 1
    for error in (largest + 1, -largest - 1)[: 1 if size == largest else 2]:
        assert chosen.compute_ratio(TREE, one_flow(size + error), None) > 1
        assert chosen.compute_ratio(TREE, one_flow(size + error), None, generator) > 1


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("{} x {}: flows >= 1000 within 5 % in 90 %", (1000, Fraction(1, 20), True, Fraction(9, 10))),
        ("  {}  x  {} :>= 1,000 within 12.5% in 99.9%  ", (1000, Fraction(1, 8), True, Fraction(999, 1000))),
        ("{} x {}: trips >= 7 within 3 trips in 50 %", (7, Fraction(3), False, Fraction(1, 2))),
        ("{} x {}: flows >= 7 within 1 trip in 50 %", (7, Fraction(1), False, Fraction(1, 2))),
    ],
)
def test_texts_of_targets(text, numbers):
    target = Target.parse(text.format(FIRST, SECOND), TREE)
    assert (target.least, target.within, target.is_relative, target.share) == numbers
    assert Target.parse(str(target), TREE) == target


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("flows >= 0 within 5 % in 90 %", "at least 1 trip"),
        ("flows >= 10 within 0 % in 90 %", "above 0"),
        ("flows >= 10 within 105 % in 90 %", "at most 100 %"),
        ("flows >= 10 within 5 % in 100 %", "below 100 %"),
        ("flows >= 10 within 5 % in 0 %", "above 0 %"),
        ("flows >= -3 within 5 % in 90 %", "is not a target"),
        ("flows >= 10 within 5 %", "is not a target"),
    ],
)
def test_what_is_not_a_target_is_refused_in_one_line(rest, message):
    with pytest.raises(OdError, match="OD-TARGET") as raised:
        Target.parse(f"{FIRST} x {FIRST}: {rest}", TREE)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "state x state: flows >= 1000 within 5 % in 90 %" in str(raised.value)


def test_a_class_without_flows_is_refused():
    leaves, _, flows = table()
    largest = int(flows["trips"].max())
    target = Target.parse(f"{LAST} x {LAST}: flows >= 1,000,000 within 5 % in 90 %", TREE)
    with pytest.raises(OdError, match=rf"OD-TARGET-EMPTY: no flow .* 1,000,000 .*the largest has {largest}"):
        TargetClass.select_flows(target, TREE, leaves, None)


@pytest.mark.parametrize(("factor", "within"), [(1.0, "5"), (1.001, "5.01"), (1.37, "6.85"), (19.999, "100")])
def test_relaxed_targets_have_wider_tolerances(factor, within):
    target = Target.parse(f"{FIRST} x {FIRST}: flows >= 1000 within 5 % in 90 %", TREE)
    assert str(target.with_scaled_tolerance(factor)) == f"{FIRST} x {FIRST}: flows >= 1000 within {within} % in 90 %"
    with pytest.raises(OdError, match="at most 100 %"):
        target.with_scaled_tolerance(21)
