"""Measure the processor time that a ledger of many releases takes: status, one more release, and a tick of sensors.

    python -m benchmarks.ledger --releases 100 1000

Every release is of one day, with the plan of a project of six zones, and is entered as a run enters it. Nothing is
drawn. Everything is written to a temporary folder.
"""

from __future__ import annotations

import argparse
import datetime
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measuring import printed

FIRST = datetime.date(2001, 1, 1)

FILES = {
    "pyproject.toml": '[tool.dg]\ndirectory_type = "project"\n\n[tool.dg.project]\nroot_module = "declared"\n',
    "zones.csv": "region,zone\nR0,Z00\nR0,Z01\nR1,Z10\nR1,Z11\nR2,Z20\nR2,Z21\n",
    "declared/defs/domains/trips.yaml": """\
name: trips
unit: trip
neighbours: bounded
elementary_period: day
cap: {rho: "1", reason: a benchmark}
""",
    "declared/defs/trips/defs.yaml": """\
type: od_assets.components.OdRelease
attributes:
  name: trips
  owners: ["team:statistics"]
  trips: {files: "records/{period}.csv", columns: {date: date}}
  geography: {file: zones.csv, levels: [region, zone]}
  periods: {every: day, first: "2001-01-01", last: "LAST"}
  domain: trips
  privacy: {epsilon: "1", delta: "1e-8"}
""",
}
"""The project, by path."""


def main() -> None:
    """Fill a ledger for each number of releases, and print the processor times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="few releases, to see that it runs")
    parser.add_argument("--releases", type=int, nargs="+", default=[100, 1000])
    options = parser.parse_args()
    printed(
        {"seconds": [measured(number) for number in ([3] if options.small else options.releases)]}, as_json=options.json
    )


def measured(releases: int) -> dict[str, Any]:
    """Return the processor seconds with a ledger of some releases, of which the last was made after all others."""
    with TemporaryDirectory(prefix="od-benchmark-") as folder:
        root = Path(folder)
        last = FIRST + datetime.timedelta(days=releases - 1)
        for name, text in FILES.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text.replace("LAST", last.isoformat()), encoding="utf-8")
        os.environ.update(OD_PROJECT=folder, OD_VAR=f"{folder}/var")
        return {"releases": releases, **_in_project(releases)}


def _in_project(releases: int) -> dict[str, Any]:
    from od_assets.cli.declared_series import declared_series
    from od_assets.resources.folders import Folders
    from od_core.ledger.ledger import Ledger

    settings = declared_series("trips").settings()
    geography, place = settings.read_geography(), Folders().ledger_place
    ledger = Ledger(*place)
    ledger.declare(settings.domain)

    def release(ledger: Ledger, number: int) -> None:
        key = settings.key((FIRST + datetime.timedelta(days=number)).isoformat())
        plan = settings.plan(geography, key.period)
        ledger.reserve(key, settings.domain.name, plan)
        for step in plan.charged_steps:
            draw = ledger.start_draw(key, step.number, "opendp")
            ledger.finish_draw(key, step.number, draw, "0" * 64)
        ledger.publish(key, "0" * 64)

    with ledger.kept_open():
        for number in range(releases - 1):
            release(ledger, number)
    with ledger.kept_open():
        calls = _seconds(lambda: release(ledger, releases - 1))
    return {
        "entries": ledger.verify(),
        "whole verification": _seconds(ledger.verify),
        "calls of one release": calls,
        "tick of 100 sensors": _seconds(lambda: [Folders().published_periods("trips") for _ in range(100)]),
        "status": _of_command([sys.executable, "-m", "od_assets.cli", "status", "--json"]),
        "--version": _of_command([sys.executable, "-m", "od_assets.cli", "--version"]),
    }


def _seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return round(time.process_time() - begun, 4)


def _of_command(command: Sequence[str]) -> float:
    """Return the processor seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  # our own command
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)


if __name__ == "__main__":
    main()
