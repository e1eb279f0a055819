"""The benchmark of trips with stops: what its figures are made of."""

import json
import statistics
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from benchmarks.stops import CONTENDERS, Questions, errors, never_materialised, questions, root
from benchmarks.synthetic_stops import zipf
from od_core.stops.mechanisms import Identity
from od_core.stops.release import make_counts_nonnegative

CASE = "zipf 1.5, 4 dimensions"
BY_LABEL = {contender.label: contender for contender in CONTENDERS}
ALPHA = 1e-6


def test_figures_are_medians_over_the_runs_of_means_over_the_queries(monkeypatch):
    """Run by run against the drawn boxes, cell by cell: kind, counts and floor each of their own."""
    made = []

    def kept(self, *arguments):
        made.append(draw(self, *arguments))
        return made[-1]

    draw = Identity.draw_boxes
    monkeypatch.setattr(Identity, "draw_boxes", kept)
    rows = errors(CASE, "0.5", BY_LABEL["identity"], 3, small=True)
    assert len(made) == 3
    asked = questions(CASE, small=True)
    points, sizes = asked.data.points, asked.data.grid.sizes
    truth = np.zeros(sizes)
    np.add.at(truth, tuple(points.T), 1)
    for row, queries in zip(rows, np.split(asked.ranges, 4), strict=True):
        slices = [tuple(slice(first, last + 1) for first, last in query) for query in queries.tolist()]
        true = np.array([truth[some].sum() for some in slices])
        for counts, cut in (("noisy", np.array), ("whole", make_counts_nonnegative)):
            cells = [cut(drawn.boxes.noisy).reshape(sizes) for drawn in made]
            answered = [np.array([each[some].sum() for some in slices]) for each in cells]
            for name, floor in (("thousandth", len(points) / 1000), ("one", 1)):
                expected = [np.mean(np.abs(each - true) / np.maximum(true, floor)) for each in answered]
                figures = [row[f"{counts}_{name}{end}"] for end in ("", "_least", "_most")]
                assert figures == pytest.approx([statistics.median(expected), min(expected), max(expected)])
    assert [row["queries"] for row in rows] == ["random", "sized", "about records", "filled"]
    assert {row["boxes"] for row in rows} == {len(truth.ravel())}
    json.dumps(rows, allow_nan=False)


def test_identity_that_is_never_materialised_has_the_law_of_the_real_one():
    """Noise on ten cells at epsilon 1/2, two samples each: fails with 1e-6, and refuses epsilon 0.6 and nine cells."""
    data = zipf(1, 1, 1.5, trips=50, side=10)
    count = 200_000

    def sampled(epsilon, cells):
        ranges = np.tile(np.array([[[0, cells - 1]]]), (count, 1, 1))
        return never_materialised(Questions(data, ranges, np.zeros(count, dtype=int), (1.0, 1.0)), epsilon)["noisy"]

    real = root("0.5").source.draw_laplace(Fraction(2), 10 * count).reshape(-1, 10).sum(axis=1)
    edges = np.quantile(real, np.linspace(0.05, 0.95, 19))

    def differ(some):
        table = [np.bincount(np.searchsorted(edges, each), minlength=20) for each in (real, some)]
        return stats.chi2_contingency(table).pvalue < ALPHA

    assert not differ(sampled("0.5", 10))
    assert differ(sampled("0.6", 10))
    assert differ(sampled("0.5", 9))
    drawn = Identity().draw_boxes(data.points, data.grid, root("0.5"))  # the real one draws that noise on each cell
    assert len(drawn.boxes) == 10
