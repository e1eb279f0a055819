"""Time whole processes: the start of every command, and the release of one period against a job that does nothing.

    python -m benchmarks.startup --json

Each command is compared with ``python -c 'import dagster'``, and ``od-release run`` of one period after the other with
a job of the same assets and checks whose steps do nothing (``benchmarks.idle_job``). All of them alternate. Imports are
part of the times. Everything is written to a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measuring import machine, printed, steps

SERIES = "us_flights"
COMMANDS = {
    "import dagster": ["-c", "import dagster"],
    "--help": ["-m", "od_assets.cli", "--help"],
    "--version": ["-m", "od_assets.cli", "--version"],
    "status": ["-m", "od_assets.cli", "status"],
    f"plan {SERIES}": ["-m", "od_assets.cli", "plan", SERIES],
    f"doctor {SERIES}": ["-m", "od_assets.cli", "doctor", SERIES],
    "ledger": ["-m", "od_assets.cli", "ledger"],
}
"""Arguments of Python for each command; the first is what the others are compared with."""

IDLE = "from benchmarks.idle_job import main; main()"


def main() -> None:
    """Time the commands, then the releases, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="one command and no release, to see that it runs")
    parser.add_argument("--repeats", type=int, default=5, help="times each command is started")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="od-benchmark-") as folder:
        environment = os.environ | {"OD_VAR": f"{folder}/var"}
        commands = dict(list(COMMANDS.items())[:2]) if options.small else COMMANDS
        releases = [] if options.small else _releases(Path(folder), environment)  # first: status then has a ledger
        results = {
            "machine": machine(),
            "commands": _starts(commands, 1 if options.small else options.repeats, environment),
            "releases": releases,
        }
    printed(results, as_json=options.json)


def _starts(
    commands: Mapping[str, Sequence[str]], repeats: int, environment: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the median seconds of each command, and their ratio to those of the first."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in steps(range(repeats), "commands"):
        for name, arguments in commands.items():
            seconds[name].append(_seconds(arguments, environment))
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    base = next(iter(medians.values()))
    return [{"command": name, "seconds": median, "ratio": median / base} for name, median in medians.items()]


def _releases(folder: Path, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the seconds of the release of each period but the first, and of the idle job that ran after it."""
    os.environ |= environment
    graph, periods = graph_of(SERIES)
    (folder / "graph.json").write_text(json.dumps(graph), encoding="utf-8")
    rows = []
    for period in steps(periods, "releases"):
        release = _seconds(["-m", "od_assets.cli", "run", SERIES, "--period", period], environment)
        home = {"DAGSTER_HOME": f"{folder}/var/dagster"}
        idle = _seconds(["-c", IDLE, f"{folder}/graph.json", period], {**environment, **home})
        rows.append({"period": period, "release_seconds": release, "idle_seconds": idle, "ratio": release / idle})
    return rows[1:]  # the first creates Dagster's tables and the ledger


def graph_of(series: str) -> tuple[dict[str, Any], list[str]]:
    """Return the assets and checks of the release job of a series in JSON-ready form, and the series' periods."""
    from od_assets.code_location import load_definitions
    from od_assets.runs.period_status import chosen_periods
    from od_assets.series.reading import declaration

    with warnings.catch_warnings(action="ignore"):
        definitions = load_definitions()
        job = definitions.resolve_job_def(f"{series}_release")
    layer = job.asset_layer
    assets = [
        {
            "key": list(key.path),
            "deps": [list(parent.path) for parent in layer.asset_graph.get(key).parent_keys],
            "partitioned": layer.asset_graph.get(key).partitions_def is not None,
        }
        for key in sorted(layer.executable_asset_keys, key=str)
    ]
    nodes = {node.name for node in job.nodes}
    checks = [
        {
            "asset": list(next(iter(definition.check_keys)).asset_key.path),
            "names": sorted(key.name for key in definition.check_keys),
            "partitioned": next(iter(definition.check_specs)).partitions_def is not None,
        }
        for definition in definitions.asset_checks or []
        if definition.node_def.name in nodes
    ]
    return {"assets": assets, "checks": checks}, chosen_periods(declaration(series), None, every=True)


def _seconds(arguments: Sequence[str], environment: Mapping[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(  # noqa: S603  # ourselves
        [sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
