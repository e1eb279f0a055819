"""The comparison of mechanisms: what it adds up, and what its tables say."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from benchmarks.estimator import (
    METRICS,
    PAPER,
    VARIANTS,
    errors_by_level,
    errors_of_runs,
    estimated,
    is_there,
    markdown,
    means,
    measured,
    paired,
    paired_lines,
    planned,
    ratios,
)
from benchmarks.rivals import RIVALS
from od_core import Budget, PrivacyUnit, evaluate, plan_release, release_flows
from od_core.evaluation.known_flows import KnownFlows, binary
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.privacy.neighbours import NO_FAULTS
from tests.od_core.doubles import no_noise

TRIP = PrivacyUnit("trip")


def table(max_abs_error: list[list[float]], **others: float) -> dict[str, np.ndarray]:
    """Errors of some runs: the other metrics are the same at every level, and 1 where none is given."""
    values = np.array(max_abs_error)
    return {metric: np.full(values.shape, others.get(metric, 1.0)) for metric in METRICS} | {"max_abs_error": values}


def row(variant: str, errors: dict[str, np.ndarray], reference: dict[str, np.ndarray] | None) -> dict[str, object]:
    compared = None if reference is None else ratios(errors, reference)
    return {"case": "c", "epsilon": "1", "variant": variant, "levels": means(errors), "ratios": compared}


def test_errors_are_those_of_evaluate():
    """By releases without noise of other flows: every run has the same errors, and those of the façade."""
    truth, other = binary(1, levels=2, trips=50), binary(2, levels=2, trips=50)
    data = KnownFlows.synthetic(truth)
    release = release_flows(
        other.to_frame(),
        truth.geography,
        unit=TRIP,
        budget=Budget(rho=1, delta="1e-8"),
        noise=no_noise(),
        fault_threshold=0,
    )
    by_evaluate = evaluate(release, truth.to_frame())
    assert by_evaluate["max_abs_error"].max() > 0
    pd.testing.assert_frame_equal(pd.DataFrame(data.truth.errors(release.leaves)), by_evaluate)


def test_every_run_has_noise_of_its_own():
    data = KnownFlows.synthetic(binary(1, levels=2, trips=5_000))
    errors = errors_of_runs(planned(PAPER, data.geography, "0.1"), data, runs=5)
    assert {values.shape for values in errors.values()} == {(5, 4)}
    assert set(errors) == set(METRICS)
    assert len(np.unique(errors["mean_abs_error"][:, -1])) > 1  # all five alike has a probability below 1e-6
    assert (errors["max_abs_error"] >= errors["mean_abs_error"]).all()


def test_another_total_is_refused():
    data, other = (KnownFlows.synthetic(binary(1, levels=2, trips=trips)) for trips in (5_000, 5_001))
    release = run_plan(planned(PAPER, data.geography, "1"), other.trips, no_noise(), MemoryMeasurements())
    with pytest.raises(ValueError, match="sum to n"):
        errors_by_level(data, release.leaves)


def test_the_reference_is_the_paper():
    """Bun & Steinke's rho, spread evenly over the levels."""
    geography = binary(1, levels=2, trips=50).geography
    assert VARIANTS[0] is PAPER
    for epsilon, rho in (("0.1", 1.3535e-4), ("1", 0.0132154), ("10", 1.07988)):
        plan = planned(PAPER, geography, epsilon)
        assert float(plan.spent.rho) == pytest.approx(rho, rel=1e-4)
        assert {step.rho / plan.spent.rho for step in plan.steps} == {Fraction(1, 4)}
        assert (
            plan.digest
            == plan_release(
                geography,
                unit=TRIP,
                budget=Budget(epsilon, "1e-8", conversion="bun_steinke", shares="uniform"),
                mechanism="inftda",
                acceptance=NO_FAULTS,
            ).digest
        )


def test_means_and_ratios():
    errors, reference = table([[1.0, 10.0], [3.0, 10.0]]), table([[4.0, 5.0], [4.0, 5.0]])
    assert means(errors) == [
        {"level": 1, **dict.fromkeys(METRICS, 1.0), "max_abs_error": 2.0},
        {"level": 2, **dict.fromkeys(METRICS, 1.0), "max_abs_error": 10.0},
    ]
    compared = ratios(errors, reference)
    assert [ratio["ratio"] for ratio in compared["max_abs_error"]] == [0.5, 2.0]
    assert [ratio["verdict"] for ratio in compared["max_abs_error"]] == ["not above 1", "significantly above 1"]
    assert compared["max_abs_error_over_levels"]["ratio"] == 1.25
    assert [ratio["ratio"] for ratio in compared["mean_abs_error"]] == [1.0, 1.0]


def test_every_variant_is_divided_by_the_paper():
    """And not by the variant before it."""
    paper, *others = measured("c", "1", KnownFlows.synthetic(binary(1, levels=2, trips=500)), runs=3)
    assert paper["variant"] == "paper"
    assert paper["ratios"] is None
    for other in others:
        quotients = [
            level["mean_abs_error"] / reference["mean_abs_error"]
            for level, reference in zip(other["levels"], paper["levels"], strict=True)
        ]
        assert [ratio["ratio"] for ratio in other["ratios"]["mean_abs_error"]] == pytest.approx(quotients)


def test_a_table_marks_what_is_above_one_and_what_is_open():
    paper = table([[1.0, 0.5, 0.25], [1.0, 0.5, 0.75]], false_discovery_rate=0.4, false_negative_rate=0.3)
    other = table([[2.0, 0.1, 0.125], [2.0, 0.1, 0.875]], mean_abs_error=3, false_discovery_rate=0.2)
    rows = [row("paper", paper, None), row("other", other, paper)]
    text = markdown(rows, ["norway"])
    lines = [line for line in text.splitlines() if line.startswith(("#", "|"))]
    assert lines[0] == "### epsilon 1"
    assert lines[1].split(" | ")[-3:] == ["total error of the leaves", "false discoveries", "false negatives |"]
    assert lines[3:] == ["| c | other | 1.07? | 2.00! 0.20 1.00? | 3.00! | 20.0% (40.0%) | 100.0% (30.0%) |"]
    assert text.endswith("Skipped: norway.")


def test_data_that_is_read_is_there_or_not(tmp_path):
    (tmp_path / "nyc_yellow_taxi").mkdir()
    assert is_there("binary", None)
    assert is_there("taxis", tmp_path)
    assert not is_there("taxis", None)
    assert not is_there("norway", tmp_path)


def test_a_table_that_is_refined_has_no_change_and_another_has_one():
    """All are made from the same measurements, so that equal tables have no change at all."""
    data = KnownFlows.synthetic(binary(1, levels=6, trips=5_000))
    same, other, rival = paired("binary", "1", data, 2, ["refined", "shrunk", "grem_lnn"])
    assert same["largest_error_change"] == same["leaf_error_change"] == 0
    assert set(same["largest_error_change_by_level"]) == {0.0}
    assert len(set(same["total_abs_error_of_leaves"])) == 1
    assert other["leaf_error_change"] != 0
    assert rival["leaf_error_change"] not in (0, other["leaf_error_change"])
    assert len(other["largest_error_change_by_level"]) == data.geography.depth * 2
    refined, changed = rival["total_abs_error_of_leaves"]
    assert changed == pytest.approx(refined * (1 + rival["leaf_error_change"]))
    assert paired_lines([rival])[0]["total error of the leaves"].startswith(f"{rival['leaf_error_change']:+.1%} (")


@pytest.mark.parametrize("name", ["refined", *RIVALS])
def test_without_noise_every_table_is_the_truth(name):
    data = KnownFlows.synthetic(binary(1, levels=4, trips=5_000))
    plan = planned(next(variant for variant in VARIANTS if variant.name == "refined"), data.geography, "1")
    measured = run_plan(plan, data.trips, no_noise(), MemoryMeasurements()).measured
    errors = np.array(errors_by_level(data, estimated(name, plan, data.trips.total, measured)))
    assert errors.shape == (8, len(METRICS))
    assert not errors.any()
