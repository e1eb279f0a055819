"""Measure the overhead of the Dagster job over ``release_flows``: both release the same table.

    python -m benchmarks.dagster --json
    python -m benchmarks.dagster --case us_counties --data FOLDER

The job runs in this process, on its own Dagster instance, in a temporary project. It goes from records in Parquet to a
published and verified bundle and database.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg
import numpy as np
import pandas as pd

from benchmarks.estimator import data_set
from benchmarks.measuring import machine, peak_memory_gigabytes, printed, reset_peak_memory
from od_assets.components import OdRelease, OdWarehouse
from od_assets.components.series import series_definitions
from od_core import Budget, Geography, PrivacyUnit, release_flows
from od_core.evaluation.known_flows import KnownFlows
from od_core.warmup import rehearse

PERIOD = "2001-06"


def main() -> None:
    """Run the job, then the same call of the library, and print their times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="a small table, to see that it runs")
    parser.add_argument("--noise", default="table")
    parser.add_argument("--case", choices=("italy", "us_counties"), default="italy")
    parser.add_argument("--data", type=Path, help="folder of the public data sets")
    parser.add_argument("--area-totals", metavar="SHARE", help="measure area totals with this share of the budget")
    options = parser.parse_args()
    rehearse()
    flows = data_set(options.case, options.data, small=options.small)
    frame = _frame(flows)
    reset_peak_memory()
    with TemporaryDirectory(prefix="od-benchmark-") as folder:
        job_seconds, steps = _job_seconds(options, frame, flows.geography, Path(folder))
    peak = peak_memory_gigabytes()
    start = time.perf_counter()
    release_flows(
        frame,
        flows.geography,
        unit=PrivacyUnit("trip"),
        budget=Budget(epsilon=1, delta="1e-8"),
        noise=options.noise,
        fault_threshold=0,
        area_totals=options.area_totals,
    )
    library_seconds = time.perf_counter() - start
    results = {
        "machine": machine(),
        "case": options.case,
        "noise": options.noise,
        "area_totals": options.area_totals,
        "zones": len(flows.geography.zones),
        "pairs": len(frame),
        "job_seconds": job_seconds,
        "release_flows_seconds": library_seconds,
        "overhead_seconds": job_seconds - library_seconds,
        "peak_memory_gigabytes": peak,
        "longest_steps": [
            {"step": step, "seconds": took} for step, took in sorted(steps.items(), key=lambda step: -step[1])[:8]
        ],
    }
    printed(results, as_json=options.json)


def _frame(flows: KnownFlows) -> pd.DataFrame:
    """Return the flows as records: one row a pair of zones, with its trips."""
    geography, pairs = flows.geography, flows.tree.pairs_at(flows.trips.rank)
    origin, destination = (geography.codes_of(geography.depth, zones) for zones in (pairs.origin, pairs.destination))
    return pd.DataFrame({"origin": origin, "destination": destination, "trips": np.diff(flows.trips.before)})


def _job_seconds(
    options: argparse.Namespace, frame: pd.DataFrame, geography: Geography, folder: Path
) -> tuple[float, dict[str, float]]:
    """Return the seconds of the whole job, and of each of its steps."""
    name = options.case
    os.environ |= {"OD_PROJECT": str(folder), "OD_VAR": str(folder / "var")}
    frame.to_parquet(folder / f"{PERIOD}.parquet")
    geography.to_frame().to_csv(folder / "zones.csv", index=False)
    domains = folder / "declared" / "defs" / "domains"
    domains.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[tool.dg.project]\nroot_module = "declared"\n', encoding="utf-8")
    domain = {"name": name, "cap": {"rho": "1", "reason": "a benchmark"}}
    (domains / f"{name}.yaml").write_text(json.dumps(domain), encoding="utf-8")
    component = OdRelease.model_validate(
        {
            "name": name,
            "owners": ["team:benchmarks"],
            "trips": {"files": "{period}.parquet", "columns": {"trips": "trips"}},
            "geography": {"file": "zones.csv", "levels": list(geography.levels)},
            "periods": {"first": PERIOD, "last": PERIOD},
            "domain": name,
            "privacy": {"epsilon": "1", "delta": "1e-8"},
            "noise": options.noise,
            **({} if options.area_totals is None else {"area_totals": {"share": options.area_totals}}),
        }
    )
    with warnings.catch_warnings(action="ignore", category=dg.PreviewWarning):
        job = dg.Definitions.merge(
            series_definitions(component), OdWarehouse.model_validate({}).build_defs(None)
        ).resolve_job_def(f"{name}_release")
    silent = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    (folder / "home").mkdir()
    with dg.DagsterInstance.local_temp(str(folder / "home")) as instance:
        start = time.perf_counter()
        result = job.execute_in_process(partition_key=PERIOD, instance=instance, run_config=silent)
        seconds = time.perf_counter() - start
        stats = instance.get_run_step_stats(result.run_id)
    steps = {
        s.step_key: s.end_time - s.start_time for s in stats if s.end_time is not None and s.start_time is not None
    }
    return seconds, steps


if __name__ == "__main__":
    main()
