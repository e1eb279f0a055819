"""Measure the processor time that a ledger of many releases takes: a release, a verification, a tick, a status.

Every release is of one day, in a project of four zones whose series share one data set, and is entered as a run enters
it. Nothing is drawn. Each file of records is a line, which the sensors compare with what was read. Everything is
written to a temporary folder.
"""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.cases import used
from benchmarks.projects import write_project

FIRST = datetime.date(2001, 1, 1)


def measured(releases: int, series: int) -> dict[str, float]:
    """Return the processor seconds with a ledger of some releases, of which the last was made after all others."""
    with TemporaryDirectory(prefix="od-benchmark-") as folder:
        root = Path(folder)
        days = [(FIRST + datetime.timedelta(days=day)).isoformat() for day in range(releases // series)]
        names = [f"trips_{number}" for number in range(series)]
        attributes = {
            "owners": ["team:statistics"],
            "trips": {"files": "records/{period}.csv", "columns": {"date": "date"}},
            "geography": {"file": "zones.csv", "levels": ["region", "zone"]},
            "periods": {"every": "day", "first": days[0], "last": days[-1]},
            "domain": "trips",
            "privacy": {"epsilon": "1", "delta": "1e-8"},
        }
        domain = {"name": "trips", "elementary_period": "day", "cap": {"rho": "100", "reason": "a benchmark"}}
        write_project(root, domain, [{"name": name, **attributes} for name in names])
        (root / "zones.csv").write_text("region,zone\nR0,Z00\nR0,Z01\nR1,Z10\nR1,Z11\n", encoding="utf-8")
        (root / "records").mkdir()
        for day in days:
            (root / "records" / f"{day}.csv").write_text("origin,destination,date\n", encoding="utf-8")
        os.environ.update(OD_PROJECT=folder, OD_VAR=f"{folder}/var")
        return _in_project(names, days)


def _in_project(names: Sequence[str], days: Sequence[str]) -> dict[str, float]:
    import dagster as dg

    from od_assets.compatibility import suppress_beta_warnings
    from od_assets.resources.arrivals import store_source_state
    from od_assets.resources.folders import Folders
    from od_assets.sensors.automation import make_arrival_sensor
    from od_assets.series.reading import read_declared_series
    from od_core.ledger.ledger import Ledger

    declared = [read_declared_series(name) for name in names]
    geography, folders = declared[0].read_geography(), Folders()
    plan = declared[0].plan(geography, days[0])

    def release(ledger: Ledger, settings: Any, day: str) -> None:
        """Make the calls of a run, from the declaration of the data set to the balance after the publication."""
        key, domain = settings.key(day), settings.domain.name
        staged = folders.confidential.path / key.folder
        staged.mkdir(parents=True)
        with store_source_state(staged, settings.locate_records_file(day)):
            pass
        ledger.declare(settings.domain)
        ledger.hold_to_plan(key, domain, plan)
        ledger.reserve(key, domain, plan)
        for step in plan.charged_steps:
            draw = ledger.start_draw(key, step.number, "opendp")
            ledger.finish_draw(key, step.number, draw, "0" * 64)
        ledger.compute_spent_budget(key, plan)
        ledger.balance(domain, day, ledger.record(key).entry.number)
        ledger.list_published_releases(series=settings.name)
        ledger.publish(key, "0" * 64)
        folders.locate_bundle(key).mkdir(parents=True)
        ledger.balance(domain, day)

    place = folders.ledger_place
    *others, last = [(settings, day) for day in days for settings in declared]
    ledger = Ledger(*place)
    with ledger.keep_open():
        for each in others:
            release(ledger, *each)
        calls = _seconds(lambda: release(ledger, *last))
    job = dg.define_asset_job("release")
    with suppress_beta_warnings():
        sensors = [make_arrival_sensor(settings, job) for settings in declared]

    def tick() -> None:
        for sensor in sensors:
            sensor(dg.build_sensor_context())

    return {
        "calls of a release": calls,
        "verification": _seconds(ledger.verify),
        "tick of all sensors": _seconds(tick),
        "status": used(["-m", "od_assets.cli", "status"])[0],
    }


def _seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun
