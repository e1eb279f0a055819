"""Measure the processor time that a ledger of many releases takes: status, one more release, and a tick of sensors.

    python -m benchmarks.ledger --releases 100 1000 --series 1 100

Every release is of one day, in a project of six zones whose series share one data set, and is entered as a run enters
it. Nothing is drawn. Each file of records is a line, which the sensors compare with what was read. Everything is
written to a temporary folder.
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
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measuring import machine, printed

FIRST = datetime.date(2001, 1, 1)

FILES = {
    "pyproject.toml": '[tool.dg]\ndirectory_type = "project"\n\n[tool.dg.project]\nroot_module = "declared"\n',
    "zones.csv": "region,zone\nR0,Z00\nR0,Z01\nR1,Z10\nR1,Z11\nR2,Z20\nR2,Z21\n",
    "declared/defs/domains/trips.yaml": """\
name: trips
unit: trip
neighbours: bounded
elementary_period: day
cap: {rho: "100", reason: a benchmark}
""",
}
"""The project without its series, by path."""

SERIES = """\
type: od_assets.components.OdRelease
attributes:
  name: NAME
  owners: ["team:statistics"]
  trips: {files: "records/{period}.csv", columns: {date: date}}
  geography: {file: zones.csv, levels: [region, zone]}
  periods: {every: day, first: "2001-01-01", last: "LAST"}
  domain: trips
  privacy: {epsilon: "1", delta: "1e-8"}
"""


def main() -> None:
    """Fill a ledger for each number of releases and of series, and print the processor times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="few releases, to see that it runs")
    parser.add_argument("--releases", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--series", type=int, nargs="+", default=[1, 100])
    options = parser.parse_args()
    cases = [(4, 2)] if options.small else list(product(options.releases, options.series))
    printed({"machine": machine(), "processor_seconds": [measured(*case) for case in cases]}, as_json=options.json)


def measured(releases: int, series: int) -> dict[str, Any]:
    """Return the processor seconds with a ledger of some releases, of which the last was made after all others."""
    with TemporaryDirectory(prefix="od-benchmark-") as folder:
        root = Path(folder)
        days = [(FIRST + datetime.timedelta(days=day)).isoformat() for day in range(releases // series)]
        names = [f"trips_{number}" for number in range(series)]
        written = {f"declared/defs/{name}/defs.yaml": SERIES.replace("NAME", name) for name in names}
        for name, text in {**FILES, **written}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text.replace("LAST", days[-1]), encoding="utf-8")
        (root / "records").mkdir()
        for day in days:
            (root / "records" / f"{day}.csv").write_text("origin,destination,date\n", encoding="utf-8")
        os.environ.update(OD_PROJECT=folder, OD_VAR=f"{folder}/var")
        return {"releases": releases, "series": series, **_in_project(names, days)}


def _in_project(names: Sequence[str], days: Sequence[str]) -> dict[str, Any]:
    import dagster as dg

    from od_assets.compatibility import without_beta_warnings
    from od_assets.resources.arrivals import source_kept
    from od_assets.resources.folders import Folders
    from od_assets.sensors.automation import arrival_sensor
    from od_assets.series.reading import declaration
    from od_core.ledger.ledger import Ledger

    declared = [declaration(name) for name in names]
    geography, folders = declared[0].read_geography(), Folders()
    plan = declared[0].plan(geography, days[0])

    def release(ledger: Ledger, settings: Any, day: str) -> None:
        """Make the calls of a run, from the declaration of the data set to the balance after the publication."""
        key, domain = settings.key(day), settings.domain.name
        staged = folders.confidential.path / key.folder
        staged.mkdir(parents=True)
        with source_kept(staged, settings.records_path(day)):
            pass
        ledger.declare(settings.domain)
        ledger.hold_to_plan(key, domain, plan)
        ledger.reserve(key, domain, plan)
        for step in plan.charged_steps:
            draw = ledger.start_draw(key, step.number, "opendp")
            ledger.finish_draw(key, step.number, draw, "0" * 64)
        ledger.spent(key, plan)
        ledger.balance(domain, day, ledger.record(key).entry.number)
        ledger.published(series=settings.name)
        ledger.publish(key, "0" * 64)
        folders.bundle(key).mkdir(parents=True)
        ledger.balance(domain, day)

    place = folders.ledger_place
    *others, last = [(settings, day) for day in days for settings in declared]
    ledger = Ledger(*place)
    with ledger.kept_open():
        for each in others:
            release(ledger, *each)
        calls = _seconds(lambda: release(ledger, *last))
    job = dg.define_asset_job("release")
    with without_beta_warnings():
        sensors = [arrival_sensor(settings, job) for settings in declared]

    def tick() -> None:
        for sensor in sensors:
            sensor(dg.build_sensor_context())

    return {
        "entries": ledger.verify(),
        "whole verification": _seconds(ledger.verify),
        "calls of one release": calls,
        "tick of all sensors": _seconds(tick),
        "status": _of_command([sys.executable, "-m", "od_assets.cli", "status", "--json"]),
        "--version": _of_command([sys.executable, "-m", "od_assets.cli", "--version"]),
        "import dagster": _of_command([sys.executable, "-c", "import dagster"]),
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
