"""Table 7 and figures 7 to 9 of Fioretto et al.: the slow mechanisms against optima, and what is drawn."""

import json
from fractions import Fraction

import numpy as np
import pytest

from benchmarks import published_group_sizes
from benchmarks.group_sizes import CONTENDERS, data_set
from benchmarks.published_group_sizes import PAPER, UNITS, IntegerCumulative, IntegerHistogram, OptimisedTables, errors
from od_core.group_sizes.release import evaluate_group_sizes
from tests.benchmarks.test_group_sizes import kept_releases
from tests.od_core.group_sizes.trees import assert_consistent, cost, least_cost, random_case

BY_LABEL = {contender.label: contender for contender in CONTENDERS}


def test_tables_without_their_structure_give_the_optimum_of_the_fast_ones():
    """M_dp^OP, M_H^dp and a linear program; REACH is so far that no domain is cut."""
    rng, solved = np.random.default_rng(80), 0
    while solved < 5:
        frame, noisy, scale = random_case(rng, most_groups=3, most_sizes=4, max_fan_out=2)
        if not 1 < len(frame.groups) <= 4:
            continue
        mechanism = OptimisedTables(area_totals=False)
        histograms = mechanism.estimate(frame, noisy, Fraction(scale) + 4)
        assert_consistent(frame, histograms, all_totals=False)
        assert cost(noisy, histograms) == least_cost(frame, noisy, area_totals=False)
        solved += 1


def test_integer_programs_of_any_size_are_optimal():
    rng = np.random.default_rng(81)
    for _ in range(10):
        frame, noisy, scale = random_case(rng)
        histograms = IntegerHistogram().estimate(frame, noisy, Fraction(scale))
        assert cost(noisy, histograms) == least_cost(frame, noisy, area_totals=True)
        cumulative = [np.cumsum(values, axis=1)[:, :-1] for values in noisy]
        assert_consistent(frame, IntegerCumulative().estimate(frame, cumulative, Fraction(scale)), all_totals=True)


@pytest.mark.parametrize("label", ["histogram_relaxed", "top_down, as published", "cumulative_relaxed", "sizes"])
def test_errors_are_sums_over_the_areas(label, monkeypatch):
    made = kept_releases(monkeypatch, published_group_sizes)
    row = errors("taxis", "0.1", BY_LABEL[label], 3, 1e9, small=True)
    data = data_set("taxis", small=True)
    assert len(made) == 1 + row["runs"] == 4
    l1, distance, violations = [], [], []
    for release in made[1:]:
        table = evaluate_group_sizes(release, data.to_frame())
        l1.append([table.loc[table["level"] == name, "l1_error"].sum() for name in row["level_names"]])
        distance.append(
            [table.loc[table["level"] == name, "earth_movers_distance"].to_numpy().sum() for name in row["level_names"]]
        )
        parents = zip(release.histograms, release.histograms[1:], data.geography.parents[2:], strict=False)
        violations.append(0)
        for above, below, parent in parents:
            added = np.zeros_like(above)
            np.add.at(added, parent, below)
            violations[-1] += int((added != above).sum())
    assert row["l1"] == pytest.approx(np.mean(l1, axis=0))
    assert row["l1_deviation"] == pytest.approx(np.std(l1, axis=0, ddof=1))
    expected = [None if np.isnan(value) else pytest.approx(value) for value in np.mean(distance, axis=0)]
    assert row["distance"] == expected
    assert row["violations"] == pytest.approx(np.mean(violations))
    assert (row["violations"] > 0) == label.endswith("relaxed")
    json.dumps(row, allow_nan=False)


def test_the_l1_errors_of_the_taxis_are_larger_than_any_tables_of_their_groups_can_have():
    """Two tables of G = 13,282 groups differ by at most 2 G at a level. In thousands, two of level 1 would be 2 G."""
    most = 2 * 13_282
    printed = [
        value * UNITS["taxis"] for (case, _), row in PAPER.items() if case == "taxis" for value in row["M_H^dp"][0]
    ]
    assert min(printed) > most
    at_most = [PAPER["taxis", "0.1"][name][0][0] for name in ("M_H^dp", "TopDown")]
    assert at_most == [round(most / 1e3, 1)] * 2
