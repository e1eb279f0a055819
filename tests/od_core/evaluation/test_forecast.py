"""Forecasts: errors by level and size as counted by hand, near what a release then has, from public tables alone."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from od_core import Budget, Geography, OdError, PrivacyUnit, ReleasePlan, plan_release
from od_core.evaluation.forecast import (
    CLASS_NAMES,
    COLUMNS,
    arrange_counts_for_plan,
    forecast,
    make_synthetic_table,
    simulate_releases,
    with_epsilon,
)
from od_core.evaluation.known_flows import KnownFlows
from od_core.privacy.neighbours import NO_FAULTS

UNIT = PrivacyUnit("trip")
BUDGET = Budget(1, "1e-8")
BOUNDS = [0, 1, 10, 100, 1000, 10**18]


def zones(regions: int = 3, size: int = 4) -> Geography:
    rows = [(f"R{region}", f"Z{region}{zone}") for region in range(regions) for zone in range(size)]
    return Geography.from_frame(pd.DataFrame(rows, columns=["region", "zone"]), levels=["region", "zone"])


def known(geography: Geography, seed: int = 1) -> KnownFlows:
    """A table with flows of every size class."""
    generator = np.random.default_rng(seed)
    pairs = pd.MultiIndex.from_product([geography.zones, geography.zones], names=["origin", "destination"])
    counts = (generator.random(len(pairs)) < 0.6) * np.floor(10 ** (4 * generator.random(len(pairs)))).astype(np.int64)
    return KnownFlows.from_frame("made up", "synthetic", pairs.to_frame(index=False).assign(trips=counts), geography)


def plan(geography: Geography, **changes: object) -> ReleasePlan:
    return plan_release(geography, **({"unit": UNIT, "budget": BUDGET} | changes), acceptance=NO_FAULTS)  # type: ignore[arg-type]


def summed(geography: Geography, full: np.ndarray, levels: tuple[int, int]) -> np.ndarray:
    """Trips of all pairs of areas of two levels, from those of all pairs of zones."""
    found = np.zeros([geography.size(level) for level in levels])
    np.add.at(found, np.ix_(*(geography.ancestors(level) for level in levels)), full)
    return found.ravel()


@pytest.mark.parametrize("mechanism", ["inftda", "inftda_refined", "stability_histogram"])
@pytest.mark.parametrize("order", ["destination", "origin"])
def test_errors_of_every_level_and_size_are_those_of_the_simulated_releases_cell_by_cell(mechanism, order):
    """Also of the totals of 25 zones, of which the smallest five do not count in the bias."""
    geography = zones(5, 5)
    wanted, table = plan(geography, mechanism=mechanism, tree=order, budget=Budget("0.1", "1e-8")), known(geography)
    found, tree = forecast(wanted, table, runs=3).set_index(["level", "size_class"]), wanted.tree
    trips = arrange_counts_for_plan(table, wanted)
    tables = np.zeros((4, 25, 25))  # the truth, and three releases
    pairs = tree.find_leaf_pairs(trips.rank)
    tables[0, pairs.origin, pairs.destination] = np.diff(trips.before)
    for number, release in enumerate(simulate_releases(wanted, trips, 3, 0), 1):
        tables[number, release.leaves.origin, release.leaves.destination] = release.leaves.trips
    classes = dict(zip(CLASS_NAMES, pairwise(BOUNDS), strict=True)) | {"all": (0, 10**18)}
    for level, of_level in enumerate([*map(tree.level_pair, range(tree.depth + 1)), (2, 0), (0, 2)]):
        true, *own = (summed(geography, full, of_level) for full in tables)
        errors = np.array(own) - true
        for name, (least, below) in classes.items():
            inside = (true >= least) & (true < below)
            assert ((level, name) in found.index) == inside.any()
            if not inside.any():
                continue
            error, row = errors[:, inside], found.loc[(level, name)]
            assert row["cells"] == inside.sum()
            assert row["mean_abs_error"] == pytest.approx(np.abs(error).mean())
            assert row["root_mean_square_error"] == pytest.approx(np.sqrt(np.square(error).mean()))
            assert row["share_released"] == pytest.approx((np.array(own)[:, inside] > 0).mean())
            relative = np.abs(error).sum() / (3 * true[inside].sum()) if true[inside].sum() else np.nan
            assert row["relative_error"] == pytest.approx(relative, nan_ok=True)
            if level > tree.depth and name == "all":
                largest = np.argsort(-true, kind="stable")[:20]
                assert row["largest_bias"] == pytest.approx((errors[:, largest] / true[largest]).mean())
                assert row["largest_bias"] != 0
            else:
                assert np.isnan(row["largest_bias"])


def two_sided() -> KnownFlows:
    return make_synthetic_table(zones(), zones(2))


@pytest.mark.parametrize("order", ["destination", "origin"])
def test_two_geographies_are_forecast_from_a_table_between_them(order):
    """The made-up table has listed zones of each side alone, and its cells are counted as those of the plan."""
    table, again = two_sided(), two_sided()
    assert table.digest == again.digest
    assert table.marking == "synthetic"
    assert table.trips.total == 12_000
    tree = table.tree
    assert (tree.origin.digest, tree.destination.digest) == (zones().digest, zones(2).digest)
    pairs = tree.find_leaf_pairs(table.trips.rank)
    assert len(pairs) <= 48
    assert set(pairs.destination.tolist()) <= set(range(8))
    assert pairs.origin.max() > 7
    one, swapped = make_synthetic_table(zones()), make_synthetic_table(zones(2), zones())
    assert make_synthetic_table(zones(), zones()).digest == one.digest
    assert len({one.digest, swapped.digest, table.digest}) == 3
    two = plan(zones(), destination_geography=zones(2), tree=order)
    found = forecast(two, table, runs=2)
    whole = found[found["size_class"] == "all"].set_index("level")
    assert whole["cells"].to_dict() == {level: two.tree.cells(level) for level in range(5)} | {5: 12, 6: 8}
    levels = whole.loc[[5, 6], ["origin_level", "destination_level"]]
    assert levels.to_numpy().tolist() == [["zone", "all"], ["all", "zone"]]
    assert whole["mean_abs_error"].max() < 10 * max(two.expected_errors)


def code(call) -> str:
    with pytest.raises(OdError) as refused:
        call()
    assert refused.value.next_step
    return refused.value.code


def test_what_cannot_be_forecast_is_refused():
    geography, table = zones(), known(zones())
    assert code(lambda: forecast(plan(geography), table, runs=0)) == "OD-FORECAST-RUNS"
    assert code(lambda: forecast(plan(zones(2)), table)) == "OD-FORECAST-GEOGRAPHY"
    two = plan(geography, destination_geography=zones(2))
    assert code(lambda: forecast(two, table)) == "OD-FORECAST-GEOGRAPHY"
    assert code(lambda: forecast(plan(geography), make_synthetic_table(geography, zones(2)))) == "OD-FORECAST-GEOGRAPHY"
    of_two = plan(zones(2), destination_geography=geography)
    assert code(lambda: forecast(of_two, two_sided())) == "OD-FORECAST-GEOGRAPHY"
    assert code(lambda: forecast(with_epsilon(plan(geography), "1e-9"), table)) == "OD-FORECAST-NOISE"
    assert code(lambda: with_epsilon(plan(geography), "-1")) == "OD-BUDGET-EPSILON"
    assert code(lambda: make_synthetic_table(zones(1, 2))) == "OD-SYNTHETIC"
    wide = Fraction(1, 10**9)
    assert code(lambda: forecast(plan(geography, budget=Budget(rho=wide, delta="1e-8")), table)) == "OD-FORECAST-NOISE"


def test_a_forecast_gives_errors_and_no_value_that_was_drawn():
    """Nothing of a run but sums over cells leaves it: no noisy value could be read off and published."""
    found = forecast(plan(zones()), known(zones()), runs=2)
    assert isinstance(found, pd.DataFrame)
    assert not found.attrs
    errors = {"mean_abs_error", "root_mean_square_error", "relative_error", "largest_bias"}
    assert set(found.select_dtypes("number").columns) == errors | {"level", "cells", "share_released"}


def test_flows_by_category_have_rows_of_their_own_and_about_the_planned_error():
    """Where all cells are far from 0, none is cut, so the errors are within a fifth of those planned.

    Level 1 has fewest cells: 80 runs give at least 400 independent errors, whose root mean square has a relative
    standard deviation of 3.5 %. The test fails with a probability below 1e-6.
    """
    geography = zones(6, 2)
    pairs = pd.MultiIndex.from_product([geography.zones, geography.zones], names=["origin", "destination"])
    table = KnownFlows.from_frame("large", "synthetic", pairs.to_frame(index=False).assign(trips=10**5), geography)
    segmented = plan(geography, segments={"mode": ["car", "bus", "walk"]})
    errors = forecast(segmented, table, runs=80)
    assert list(errors) == [*COLUMNS[:3], "breakdown", *COLUMNS[3:]]
    whole = errors[errors["size_class"] == "all"].set_index(["breakdown", "level"])
    for level in range(segmented.tree.depth + 1):
        cells = segmented.tree.cells(level)
        assert whole.loc[("", level), "cells"] == cells
        assert whole.loc[("mode", level), "cells"] == 3 * cells
        if cells > 1:
            planned = {"": segmented.expected_errors[level], "mode": segmented.expected_segment_errors("mode")[level]}
            for name, error in planned.items():
                assert whole.loc[(name, level), "root_mean_square_error"] == pytest.approx(error, rel=0.2)
    assert with_epsilon(segmented, 2).segments == segmented.segments
