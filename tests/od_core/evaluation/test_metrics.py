"""Errors against the truth, recomputed with pandas over the union of true and released pairs."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from od_core import Budget, PrivacyUnit, evaluate, release_flows
from tests.od_core.doubles import no_noise, released
from tests.od_core.strategies import TREES, frame_of, geography_of, noises, worlds

COLUMNS = ["level", "max_abs_error", "mean_abs_error", "false_discovery_rate", "false_negative_rate"]


def by_hand(world, release, level: int, public: list) -> dict[str, float]:
    """One level: both tables summed by areas, aligned over all public pairs."""
    (o_path, d_path) = ({zone[-1]: zone for zone in zones} for zones in (world.origins, world.destinations))
    o_level, d_level = release.plan.tree.level_pair(level)

    def summed(flows: pd.DataFrame) -> pd.Series:
        table: dict = {}
        for o, d, n in flows[["origin", "destination", "trips"]].itertuples(index=False, name=None):
            pair = o_path[o][:o_level], d_path[d][:d_level]
            table[pair] = table.get(pair, 0) + n
        return pd.Series([table.get(pair, 0) for pair in public], dtype="int64")

    truth, result = summed(world.frame), summed(release.flows)
    assert truth.sum() == world.frame["trips"].sum()
    positive, real = result > 0, truth > 0
    return {
        "level": level,
        "max_abs_error": (truth - result).abs().max(),
        "mean_abs_error": (truth - result).abs().mean(),
        "false_discovery_rate": (positive & ~real).sum() / positive.sum() if positive.any() else 0.0,
        "false_negative_rate": (real & ~positive).sum() / real.sum() if real.any() else 0.0,
    }


@settings(max_examples=80)
@given(
    world=worlds(),
    order=st.sampled_from(TREES),
    neighbours=st.sampled_from(("bounded", "unbounded")),
    values=noises(reach=6),
)
def test_errors_equal_a_recomputation_over_the_union_of_pairs(world, order, neighbours, values):
    release = released(world, order, neighbours, values)
    _, reference = world.trees(order)
    expected = [by_hand(world, release, level, public) for level, public in enumerate(reference.levels())]
    table = evaluate(release, world.frame)
    assert list(table.columns) == COLUMNS
    pd.testing.assert_frame_equal(table, pd.DataFrame(expected), check_dtype=False, rtol=1e-12)


def test_a_small_case_by_hand():
    """Truth a>a 4, b>b 2 against released a>a 5, a>b 1: a false positive and a false negative, total kept."""
    geography = geography_of([("a",), ("b",)])
    flows = frame_of({(("a",), ("a",)): 4, (("b",), ("b",)): 2})
    other = frame_of({(("a",), ("a",)): 5, (("a",), ("b",)): 1})
    release = release_flows(
        other, geography, unit=PrivacyUnit("trip"), budget=Budget(rho=1, delta=1e-8), noise=no_noise()
    )
    table = evaluate(release, flows)
    assert table["max_abs_error"].tolist() == [0, 1, 2]
    assert table["mean_abs_error"].tolist() == [0.0, 1.0, (1 + 1 + 0 + 2) / 4]
    assert table["false_discovery_rate"].tolist() == [0.0, 0.0, pytest.approx(1 / 2)]
    assert table["false_negative_rate"].tolist() == [0.0, 0.0, pytest.approx(1 / 2)]


def test_without_noise_there_is_no_error():
    geography = geography_of([("a", "aa"), ("b", "ba")])
    flows = frame_of({(("a", "aa"), ("b", "ba")): 4})
    usual = {"unit": PrivacyUnit("trip"), "budget": Budget(rho=1, delta=1e-8)}
    table = evaluate(release_flows(flows, geography, **usual, noise=no_noise()), flows)
    assert table["level"].tolist() == [0, 1, 2, 3, 4]
    assert (table.drop(columns="level") == 0).all(axis=None)
