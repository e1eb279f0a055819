"""Errors against the truth, recomputed with pandas over the union of true and released pairs."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Budget, PrivacyUnit, evaluate, evaluate_area_totals, release_counts, release_flows
from tests.od_core.doubles import no_noise, released
from tests.od_core.strategies import TREES, geography_of, noises, worlds

COLUMNS = ["level", "max_abs_error", "mean_abs_error", "false_discovery_rate", "false_negative_rate"]


def by_hand(world, tree, flows: pd.DataFrame, made: pd.DataFrame, level: int, public: list) -> dict[str, float]:
    """One level: both tables summed by areas, aligned over all public pairs."""
    (o_path, d_path) = ({zone[-1]: zone for zone in zones} for zones in (world.origins, world.destinations))
    o_level, d_level = tree.level_pair(level)

    def summed(flows: pd.DataFrame) -> np.ndarray:
        table: dict = {}
        for o, d, n in flows[["origin", "destination", "trips"]].itertuples(index=False, name=None):
            pair = o_path[o][:o_level], d_path[d][:d_level]
            table[pair] = table.get(pair, 0) + n
        return np.array([table.get(pair, 0) for pair in public], dtype=np.int64)

    truth, result = summed(flows), summed(made)
    assert truth.sum() == sum(world.flows.values())
    positive, real = result > 0, truth > 0
    return {
        "level": level,
        "max_abs_error": np.abs(truth - result).max(),
        "mean_abs_error": np.abs(truth - result).mean(),
        "false_discovery_rate": (positive & ~real).sum() / positive.sum() if positive.any() else 0.0,
        "false_negative_rate": (real & ~positive).sum() / real.sum() if real.any() else 0.0,
    }


@given(
    world=worlds(),
    order=st.sampled_from(TREES),
    neighbours=st.sampled_from(("bounded", "unbounded")),
    values=noises(reach=6),
    mechanism=st.sampled_from(["inftda_refined", "vanilla_gauss"]),
)
def test_errors_equal_a_recomputation_over_the_union_of_pairs(world, order, neighbours, values, mechanism):
    """Leaves of vanilla_gauss may be below zero, and sums of them 0: these are errors, but no discoveries."""
    release = released(world, order, neighbours, values, mechanism)
    tree, reference = world.trees(order)
    levels = enumerate(reference.levels())
    flows = world.frame
    expected = [by_hand(world, tree, flows, release.flows, level, public) for level, public in levels]
    table = evaluate(release, flows)
    assert list(table.columns) == COLUMNS
    pd.testing.assert_frame_equal(table, pd.DataFrame(expected), check_dtype=False, rtol=1e-12)


def test_each_weight_counts_in_full():
    """Three records of weight 4 in a>b are released as 2 trips each, and a fourth of weight 1.5 as 2."""
    geography, kept = geography_of([("a",), ("b",)]), {"budget": Budget(rho=1, delta=1e-8), "noise": no_noise()}
    records = pd.DataFrame({"origin": "a", "destination": "b", "weight": [4, 4, 4, 1.5]})
    release = release_flows(records, geography, unit=PrivacyUnit("trip", max_weight=2), **kept)
    assert release.flows["trips"].tolist() == [8]
    assert evaluate(release, records)["max_abs_error"].tolist() == [6, 6, 6]
    named = records.rename(columns={"weight": "n"})
    totals = evaluate_area_totals(release, named, columns={"weight": "n"})
    assert totals["largest_bias"].tolist() == pytest.approx([8 / 14 - 1] * 2)
    people = records.rename(columns={"origin": "area"})[["area", "weight"]]
    counts = release_counts(people, geography, unit=PrivacyUnit("trip", max_weight=4), **kept)
    assert evaluate(counts, people)["max_abs_error"].tolist() == [0, 0]
