"""Cities that share their assets, each with files, a data set and a cap of its own."""

import sys
from copy import deepcopy
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from od_assets.code_location import load_definitions
from tests.od_assets.conftest import ATTRIBUTES, DOMAIN, ZONES, Project
from tests.projects import declare, declare_domain, define_all

CITIES, MONTHS = ("bergen", "oslo"), ("2001-01", "2001-02")

SHARED = ATTRIBUTES | {
    "name": "{{ row.city }}",
    "domain": "{{ row.city }}",
    "trips": ATTRIBUTES["trips"] | {"files": "{{ row.city }}/{period}.csv"},
    "geography": ATTRIBUTES["geography"] | {"file": "{{ row.city }}/zones.csv"},
    "privacy": {"epsilon": "{{ row.epsilon }}", "delta": "1e-8"},
    "arrivals": {"settled_seconds": 0},
    "detail": "publication",
}
"""Attributes of all cities, each of which is a data set of its own."""


def add_city(project: Project, city: str, cap: str = "0.1", **domain: Any) -> None:
    """Write the files of a city: its records, of which no other city has as many, its zones and its cap."""
    folder = project.root / city
    folder.mkdir()
    ZONES.assign(zone=ZONES["zone"].str.replace("Z", city[0].upper())).to_csv(folder / "zones.csv", index=False)
    number = 100 * len(city)
    for month in MONTHS:
        ends = {"origin": [f"{city[0].upper()}00"] * number, "destination": [f"{city[0].upper()}21"] * number}
        pd.DataFrame({"date": f"{month}-03", **ends}).to_csv(folder / f"{month}.csv", index=False)
    declare_domain(project.defs, DOMAIN | {"name": city, "cap": {"rho": cap, "reason": "first declaration"}, **domain})


def declare_cities(project: Project, rows: str = "bergen,1\noslo,0.5\n", **changes: Any) -> None:
    """Declare a row for each city."""
    (project.root / "cities.csv").write_text(f"city,epsilon\n{rows}", encoding="utf-8")
    attributes = {"for_each": "cities.csv", "as": "partitions", "series": deepcopy(SHARED) | changes}
    declare(project.defs, "cities", "OdReleases", attributes)
    declare(project.defs, "warehouse", "OdWarehouse", {})


def forget_modules(patch: pytest.MonkeyPatch) -> None:
    """Forget the modules of a project, as a code location does that is reloaded."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "declared"]:
        patch.delitem(sys.modules, name)


def declare_two(project: Project, patch: pytest.MonkeyPatch) -> Project:
    """Return a project with two cities, whose definitions Dagster loads."""
    for city in CITIES:
        add_city(project, city)
    declare_cities(project)
    define_all(project.root)
    forget_modules(patch)
    patch.syspath_prepend(project.root)
    return project


def release(project: Project, city: str, month: str = "2001-01", **options: Any) -> dg.ExecuteInProcessResult:
    """Run the job of all cities for one city and month."""
    job = load_definitions().resolve_job_def("cities_release")
    return project.execute(job, partition=f"{month}|{city}", **options)
