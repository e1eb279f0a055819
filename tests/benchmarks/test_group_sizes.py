"""The benchmark of group sizes: what its figures are made of."""

import json
from types import ModuleType

import numpy as np
import pytest

from benchmarks import group_sizes
from benchmarks.group_sizes import CONTENDERS, errors
from od_core.group_sizes.release import GroupSizeRelease, evaluate_group_sizes

BY_LABEL = {contender.label: contender for contender in CONTENDERS}


def kept_releases(monkeypatch: pytest.MonkeyPatch, benchmark: ModuleType) -> list[GroupSizeRelease]:
    """Return the list to which each further release of a benchmark is added."""
    made: list[GroupSizeRelease] = []
    run_plan = benchmark.run_plan

    def kept(*arguments):
        made.append(run_plan(*arguments))
        return made[-1]

    monkeypatch.setattr(benchmark, "run_plan", kept)
    return made


@pytest.mark.parametrize("label", ["bottom_up, sizes", "histogram_relaxed"])
def test_figures_are_means_over_the_areas_and_the_runs(label, monkeypatch):
    """Against the table of the façade, run by run; least and most are of runs; totals that are off are counted."""
    made = kept_releases(monkeypatch, group_sizes)
    figures = errors("taxis", "0.1", BY_LABEL[label], 3, small=True)
    data = group_sizes.data_set("taxis", small=True)
    tables = [evaluate_group_sizes(release, data.to_frame()) for release in made]
    assert len(tables) == figures["runs"] == 3
    by_run = np.array(
        [[t.loc[t["level"] == name, "l1_error"].mean() for name in figures["level_names"]] for t in tables]
    )
    assert np.allclose(figures["l1"], by_run.mean(axis=0))
    assert np.allclose(figures["l1_least"], by_run.min(axis=0))
    assert np.allclose(figures["l1_most"], by_run.max(axis=0))
    off = [sum((t["total_error"] != 0) | (t["child_error"] != 0)) for t in tables]
    assert figures["violations"] == pytest.approx(np.mean(off))
    assert (figures["violations"] == 0) == (label == "bottom_up, sizes")
    is_whole = [
        all((t["total_error"] == 0)[t["level"] == name].all() for t in tables) for name in figures["level_names"]
    ]
    assert [value is not None for value in figures["distance"]] == is_whole
    json.dumps(figures, allow_nan=False)
