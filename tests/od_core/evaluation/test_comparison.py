"""The comparison: what a run says, what a killed comparison does again, and the table of it all."""

import json
import statistics
import sys
import threading
import time
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from od_core import Budget, OdError, PrivacyUnit, plan_release
from od_core.evaluation import comparison
from od_core.evaluation.comparison import (
    CONTENDERS,
    METRICS,
    Contender,
    Run,
    compare,
    list_runs,
    measure_release,
    read_comparison_results,
    read_refusals,
)
from od_core.evaluation.known_flows import KnownFlows, make_binary_flows, make_known_flows, make_random_tree_flows
from od_core.evaluation.metrics import compute_top_down_bounds
from od_core.flows.release import run_plan
from od_core.privacy.neighbours import NO_FAULTS
from tests.forked import SERVER

SMALL = {
    "small binary": partial(
        make_known_flows, "small binary", partial(make_binary_flows, 5, levels=4, filled=Fraction(1, 10), trips=900)
    ),
    "small random": partial(
        make_known_flows, "small random", partial(make_random_tree_flows, 5, levels=2, zones=30, trips=20_000)
    ),
}
TWO = (CONTENDERS[0], CONTENDERS[5])


@pytest.fixture(scope="module", autouse=True)
def _workers():
    """Workers are forked from a process that has imported the library, which takes most of their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "get_context", lambda _: SERVER)
        yield


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder with the two contenders on both small data sets, three runs each, and the runs as they were told."""
    folder, told = tmp_path_factory.mktemp("results"), []
    runs = list_runs(SMALL, TWO, epsilons=("2",), number=3)
    compare(runs, folder, SMALL, progress=lambda run, made: told.append((run, made)))
    return folder, runs, told


def test_a_file_says_what_was_run_and_with_what_noise(results):
    folder, runs, _ = results
    for run in runs:
        record = json.loads(run.locate_result_file(folder).read_text(encoding="utf-8"))
        data = SMALL[run.data_set]()
        given = {"unit": PrivacyUnit("trip"), "budget": Budget(run.epsilon, "1e-8"), "acceptance": NO_FAULTS}
        plan = plan_release(data.geography, mechanism=run.contender.mechanism, **given)
        assert (record["plan_digest"], record["data_digest"]) == (plan.digest, data.digest)
        assert Fraction(record["rho"]) == plan.spent.rho
        assert record["bound"] == (compute_top_down_bounds(plan) if run.contender.label == "inftda" else None)
        assert [level["level"] for level in record["levels"]] == list(range(data.geography.depth * 2 + 1))
        assert record["levels"][0]["max_abs_error"] == 0
        assert record["levels"][-1]["max_abs_error"] > 0
        assert record["threads"] == 1
        assert record["seconds"] > 0
        if sys.platform == "linux":
            assert 0.05 < record["peak_memory_gigabytes"] < 4


def test_the_table_by_hand(results):
    """Every number again from the files, in plain Python."""
    folder, runs, _ = results
    rows = read_comparison_results(folder)
    assert len(rows) == sum(SMALL[name]().geography.depth * 2 + 1 for name in SMALL) * 2
    assert (rows["runs"] == 3).all()
    for _, row in rows.iterrows():
        records = [
            json.loads(run.locate_result_file(folder).read_text(encoding="utf-8"))
            for run in runs
            if (run.data_set, run.contender.label, run.epsilon) == (row["data_set"], row["contender"], row["epsilon"])
        ]
        for metric in METRICS:
            values = [record["levels"][row["level"]][metric] for record in records]
            assert row[f"{metric}_median"] == pytest.approx(statistics.median(values))
            assert (row[f"{metric}_min"], row[f"{metric}_max"]) == (min(values), max(values))
        for name in ("seconds", "peak_memory_gigabytes", "largest_bias_origin", "largest_bias_destination"):
            values = [record[name] for record in records]
            assert row[f"{name}_median"] == statistics.median(values)
            assert (row[f"{name}_min"], row[f"{name}_max"]) == (min(values), max(values))
        assert row["rho"] == records[0]["rho"]


def test_what_is_there_is_not_made_again(results):
    folder, runs, _ = results
    before, told = {path: path.stat().st_mtime_ns for path in folder.iterdir()}, []
    compare(runs[:6], folder, SMALL, workers=1, progress=lambda run, made: told.append(made))
    assert told == [False] * 6
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def _once_there(file: Path) -> KnownFlows:
    """Wait for a file, then make a data set."""
    while not file.exists():
        time.sleep(0.01)
    return SMALL["small binary"]()


def test_a_comparison_that_is_ended_makes_no_run_but_those_in_progress(tmp_path):
    """The worker may have begun the second run when the first is told; the pool holds the third ready for it."""
    data_sets = SMALL | {"later": partial(_once_there, tmp_path / "go")}
    runs = [Run("small binary", CONTENDERS[0], "1", 1)]
    runs += [Run("later", CONTENDERS[0], "1", number) for number in (1, 2, 3)]

    def end(_run: Run, _made: bool) -> None:
        threading.Timer(2, (tmp_path / "go").touch).start()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(runs, tmp_path / "runs", data_sets, workers=1, progress=end)
    allowed = {run.locate_result_file(tmp_path).name for run in runs[:2]}
    assert {path.name for path in (tmp_path / "runs").iterdir()} <= allowed


def test_runs_of_different_plans_make_no_table(tmp_path):
    other = Contender("inftda", "inftda", "bun_steinke")
    compare([Run("small binary", CONTENDERS[0], "1", 1)], tmp_path, SMALL, workers=1)
    compare([Run("small binary", other, "1", 2)], tmp_path, SMALL, workers=1)
    with pytest.raises(OdError, match="inftda on small binary at epsilon 1 do not all have the same plan") as caught:
        read_comparison_results(tmp_path)
    assert caught.value.code == "OD-EVALUATION-MIXED"


def test_a_mechanism_that_refuses_the_size_is_recorded_and_not_a_failure(tmp_path):
    """Italy's shape has 65 million pairs of zones, more than ``vanilla_gauss`` takes."""
    gauss = next(contender for contender in CONTENDERS if contender.label == "vanilla_gauss")
    tree = partial(make_binary_flows, 1, levels=13, filled=Fraction(1, 10**6), trips=100)
    large = {"large": partial(make_known_flows, "large", tree)}
    runs = [Run("large", gauss, "1", 1), Run("large", CONTENDERS[0], "1", 1)]
    compare(runs, tmp_path, large, workers=1)
    (refused,) = read_refusals(tmp_path).to_dict("records")
    assert (refused["data_set"], refused["contender"], refused["epsilon"]) == ("large", "vanilla_gauss", "1")
    assert "67,108,864" in refused["refused"]
    assert set(read_comparison_results(tmp_path)["contender"]) == {"inftda"}
    before, told = runs[0].locate_result_file(tmp_path).stat().st_mtime_ns, []
    compare(runs[:1], tmp_path, large, workers=1, progress=lambda run, made: told.append(made))
    assert told == [False]
    assert runs[0].locate_result_file(tmp_path).stat().st_mtime_ns == before


def test_the_variants_of_a_contender_are_those_that_their_labels_say():
    """IntOpt in descending order has the rho of the ascending one; both thresholds differ but at epsilon 10."""
    geography, known = SMALL["small binary"]().geography, {contender.label: contender for contender in CONTENDERS}
    options = {label: known[label].plan(geography, "1").mechanism.options for label in ("inftda", "inftda, descending")}
    assert options == {"inftda": {"order": "ascending"}, "inftda, descending": {"order": "descending"}}
    histograms = [label for label in known if label.startswith("stability")]
    plans = [[known[label].plan(geography, epsilon) for label in histograms] for epsilon in ("0.1", "1", "10")]
    thresholds = [[plan.steps[0].threshold for plan in row] for row in plans]
    assert thresholds == [[357, 384], [37, 40], [5, 5]]  # docs/explanation/noise.md


@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda contender: contender.label)
def test_every_contender_is_judged(contender, monkeypatch):
    """On a small data set with little noise: errors and rates that fit each other, and the bias by its definition."""
    data = KnownFlows.from_synthetic_flows(make_binary_flows(5, levels=5, filled=Fraction(1, 20), trips=20_000))
    runs = []
    monkeypatch.setattr(comparison, "run_plan", lambda *given: runs.append(run_plan(*given)) or runs[-1])
    record = measure_release(contender.plan(data.geography, "10"), data)
    pairs, size = data.tree.find_leaf_pairs(data.trips.rank), len(data.geography.zones)
    for side, axis in (("origin", 1), ("destination", 0)):
        tables = np.zeros((2, size, size))
        np.add.at(tables[0], (pairs.origin, pairs.destination), np.diff(data.trips.before))
        np.add.at(tables[1], (runs[-1].leaves.origin, runs[-1].leaves.destination), runs[-1].leaves.trips)
        true, found = tables.sum(axis=1 + axis)
        largest = np.argsort(-true, kind="stable")[:20]
        assert (true[largest] > 0).all()
        assert size > 20
        assert record[f"largest_bias_{side}"] == pytest.approx((found / np.maximum(true, 1) - 1)[largest].mean())
    assert record["mechanism"] == contender.label.partition(",")[0]
    assert (record["rho"] is None) == contender.label.startswith("stability_histogram")
    assert (record["bound"] is None) == contender.label.startswith("inftda_refined")
    for level in record["levels"]:
        assert 0 <= level["mean_abs_error"] <= level["max_abs_error"] < 300
        assert 0 <= level["false_negative_rate"] < 1
    if record["bound"] is not None:
        errors = np.array([level["max_abs_error"] for level in record["levels"]])
        assert (errors <= 2 * np.array(record["bound"])).all()  # fails by chance with probability below 1e-6
    assert record["levels"][0]["max_abs_error"] == 0 or record["mechanism"] in ("vanilla_gauss", "stability_histogram")
