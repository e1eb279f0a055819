"""The small project's month with the canary in it, in a process whose files may not grow beyond a limit."""

import os
import resource
import sys
from pathlib import Path

import dagster as dg
import numpy as np
import pandas as pd

from tests.od_assets.canary import USER, ZONE, of_flows
from tests.od_assets.conftest import ZONES, Project, failure_text


def run(root: Path, limit: int) -> None:
    os.environ |= {"OD_PROJECT": str(root), "OD_VAR": str(root / "var"), "TMPDIR": str(root / "temporary")}
    for name in ("dagster", "temporary"):
        (root / name).mkdir()
    instance = dg.DagsterInstance.local_temp(str(root / "dagster"), overrides={"telemetry": {"enabled": False}})
    project = Project(root, lambda: instance)
    ZONES.to_csv(root / "zones.csv", index=False)
    codes = [f"{ZONE}-{k}" for k in np.random.default_rng(1).integers(10**9, size=300_000)]
    project.write_records(
        pd.DataFrame({"date": "2001-01-15", "origin": codes, "destination": codes, "trips": 1, "user": USER})
    )
    component = of_flows(project)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    print(failure_text(project.run(component)))


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]))
