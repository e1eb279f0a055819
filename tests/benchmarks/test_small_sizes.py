"""Every benchmark runs at a small size and says what it measured; how fast that was is not asked here."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = sorted(
    path.stem
    for path in (ROOT / "benchmarks").glob("*.py")
    if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")
) + sorted(path.parent.name for path in (ROOT / "benchmarks").glob("*/__main__.py"))
ERRORS = ("max_abs_error", "mean_abs_error", "false_discovery_rate", "false_negative_rate", "ratio", "lower", "upper")
GROUP_SIZES = tuple(f"{metric}{end}" for metric in ("distance", "l1", "violations") for end in ("", "_least", "_most"))
STOPS = tuple(f"{counts}_{floor}" for counts in ("noisy", "whole") for floor in ("thousandth", "one"))
STOPS_ENDS = tuple(f"{figure}{end}" for figure in STOPS for end in ("", "_least", "_most"))
INTERVALS = ("covered", "significant", "width", "least_trips")
WIDENED = ("widened", "released_error", "centre_error", "covered_before", "covered_of_all")
COSTS = ("largest_errors", "total_error", "largest_error_of_a_level", "total_error_of_a_level")
CHANGES = tuple(
    f"{error}{figure}"
    for error in ("leaf_error", "rescaled_error")
    for table in ("refined", "auto")
    for figure in ("_two_standard_errors", f"_from_{table}_percent", f"_from_{table}_two_standard_errors")
)
OF_TABLES = (
    *("groups", "before_widening", "none_or_all", "members", "within_zones", "mean_distance", "smooth"),
    *("held", "held_before", "width_before"),
)
"""Shares of intervals that hold, of which a single release has few."""
MAY_BE_ZERO = (
    *("l1_all_sizes", "files_written", "from_size", "deviation", "inside_90", "changes"),
    *(
        "empty_percent",
        "below_thousandth_percent",
        "median_trips_percent",
        "bits_of_boxes",
        "error_of_all",
        "error_of_all_ratio",
    ),
    *("by_quantiles", "bias_in_deviations", "trips_unseen"),
    *("uncounted_percent", "error_from", "error_to", "width_of_totals"),  # with all pairs, or exact known totals
    *("bias_from_percent", "bias_to_percent", "false_discoveries_percent", "false_negatives_percent"),
    *("gap", "met", "gain", "percent right", "error of the released", "error of the unbiased", "percent of totals"),
    *("trips_lost_percent", "missing_percent", *CHANGES),
    *("slope", "slope_without_fixed", "overhead_seconds", "busy_processes"),
    *(*ERRORS, *GROUP_SIZES, *STOPS_ENDS, *INTERVALS, *WIDENED, *COSTS, *OF_TABLES),
)
"""Or less: at small sizes slopes and differences are noise, and a level may have no error."""


def numbers(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Every number and the name nearest to it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner, name)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield name, value


def files() -> set[Path]:
    """What stands in the repository, apart from hidden folders, outputs of releases and compiled code."""
    found = set()
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in ("var", "__pycache__")]
        found |= {Path(folder, name) for name in names}
    return found


@pytest.mark.parametrize("name", BENCHMARKS)
def test_runs_and_prints_figures(name, tmp_path):
    work, temporary = tmp_path / "work", tmp_path / "temporary"
    work.mkdir()
    temporary.mkdir()
    before = files()
    command = [sys.executable, "-m", f"benchmarks.{name}", "--small", "--json"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert {"processor", "cores", "python"} <= results["machine"].keys()
    measured = list(numbers({key: value for key, value in results.items() if key != "machine"}))
    assert measured
    for figure, value in measured:
        assert math.isfinite(value), figure
        assert value > 0 or figure in MAY_BE_ZERO, figure
    assert not list(work.iterdir())
    assert not list(temporary.iterdir())
    assert files() == before
