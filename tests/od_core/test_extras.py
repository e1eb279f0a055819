"""The library alone: what it needs, what it imports, and what it says of what is not installed."""

import subprocess
import sys
import tomllib
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from od_core.extras import EXTRAS
from tests.wheels import OWN, required

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

RELEASE = """\
import sys

ALLOWED = set(sys.argv[1].split(","))
INSTALLED = set(sys.argv[2].split(","))


class OnlyWhatIsRequired:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        hidden = name.partition(".")[0] in INSTALLED - ALLOWED
        return None if hidden else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)


sys.meta_path[:] = [OnlyWhatIsRequired(finder) for finder in sys.meta_path]
import pandas as pd

from od_core import Budget, Geography, OdError, PrivacyUnit, release_flows

zones = pd.DataFrame({"region": ["R", "R", "S"], "zone": ["A", "B", "C"]})
trips = pd.DataFrame({"origin": ["A", "B", "C"] * 9, "destination": ["B", "C", "A"] * 9})
geography = Geography.from_frame(zones, levels=["region", "zone"])
budget = Budget(epsilon=1, delta="1e-8")
release = release_flows(trips, geography, unit=PrivacyUnit("trip"), budget=budget, noise="table")
assert release.flows["trips"].min() > 0 or release.flows.empty
from od_core.evaluation.comparison import draw_figures
from od_core.spark.session import open_session
from od_assets.cli.__main__ import main

for attempt in (lambda: draw_figures(None, None), lambda: open_session("local[1]", None).__enter__(), main):
    try:
        attempt()
    except OdError as error:
        print(error)
    except SystemExit as ended:
        print(ended.code)
"""


def modules_of(distributions: set[str]) -> set[str]:
    """Names of the top-level modules of distributions."""
    installed = packages_distributions().items()
    return {module for module, names in installed if {name.lower().replace("_", "-") for name in names} & distributions}


def test_the_library_alone_requires_neither_dagster_nor_great_expectations() -> None:
    alone = required(OWN, distribution(OWN))
    assert {"numpy", "pandas", "duckdb", "opendp", "numba"} <= alone
    assert not {name for name in alone if name.startswith(("dagster", "great-expectations", "pyspark", "matplotlib"))}


@pytest.mark.slow
def test_the_library_alone_releases_and_names_the_extra_that_is_missing() -> None:
    """Every installed module is hidden that the library does not require."""
    allowed, installed = modules_of(required(OWN, distribution(OWN))), set(packages_distributions())
    allowed |= {"od_core", "od_assets"}
    command = [sys.executable, "-c", RELEASE, ",".join(allowed), ",".join(installed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    bundle, spark, code = done.stdout.splitlines()
    assert bundle.startswith("OD-EXTRA-ABSENT: openmatrix is not installed")
    assert "od-release[bundle]" in bundle
    assert spark.startswith("OD-EXTRA-ABSENT: pyspark is not installed")
    assert code == "2"
    assert done.stderr.startswith("OD-EXTRA-ABSENT: dagster is not installed")


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_extra_installs_the_modules_that_are_asked_for(extra: str) -> None:
    listed = {Requirement(line).name for line in PROJECT["optional-dependencies"][extra]}
    listed |= {name.removesuffix("-python") for name in listed}  # as openlineage-python
    assert {module.replace("_", "-") for module in EXTRAS[extra]} <= listed
