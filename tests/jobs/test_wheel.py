"""The wheel alone and with each extra, in an environment that has only what its metadata require."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from od_core.extras import EXTRAS
from tests.wheels import ROOT, Environment

LIBRARY = """\
import importlib.util
from pathlib import Path

import pandas as pd

import od_core
from od_core import Budget, Geography, Ledger, PrivacyDomain, PrivacyUnit, OdError, release_flows
from od_core.extras import EXTRAS, require

for name in od_core.__all__:
    getattr(od_core, name)
assert importlib.util.find_spec("tests") is None
zones = pd.DataFrame({"region": ["R", "R", "S"], "zone": ["A", "B", "C"]})
trips = pd.DataFrame({"origin": ["A", "B", "C"] * 9, "destination": ["B", "C", "A"] * 9})
geography = Geography.from_frame(zones, levels=["region", "zone"])
for noise in ("table", "opendp"):
    release = release_flows(
        trips, geography, unit=PrivacyUnit("trip"), budget=Budget(epsilon=1, delta="1e-8"), noise=noise
    )
    assert release.flows["trips"].min() > 0 or release.flows.empty
    assert release.spent.rho > 0

from od_assets.checks.expectations import check_flow_expectations
from od_assets.cli.__main__ import main
from od_core.evaluation.comparison import draw_figures
from od_core.spark.session import open_session

uses = {
    "bundle": lambda: draw_figures(None, None),
    "checks": lambda: check_flow_expectations(release.flows, [], [], Path("docs")),
    "dagster": main,
    "spark": lambda: open_session("local[1]", None).__enter__(),
}
for extra in EXTRAS:
    try:
        uses.get(extra, lambda: require(extra))()
    except OdError as error:
        print(error)
    except SystemExit as ended:
        print(ended.code)
"""

BUNDLE = """\
from pathlib import Path

import pandas as pd

from od_core import open_release
from od_core.evaluation.comparison import draw_figures
from tests.od_core.publication.examples import facts, release, staged_bundle

made = release("other destinations")
with staged_bundle(made, facts(made), Path("bundle")):
    pass
assert Path("bundle/tables/flows.parquet").is_file() and Path("bundle/certificate.json").is_file()
print(len(list(Path("bundle").rglob("*.omx"))))
assert open_release("bundle").flows.equals(made.flows)
table = pd.read_parquet("comparison.parquet")
print(len(draw_figures(table[table["data_set"] == table["data_set"].iloc[0]], Path("figures"))))
"""

CHECKS = """\
from pathlib import Path

import pandas as pd

from od_assets.checks.expectations import check_flow_expectations

flows = pd.DataFrame({"origin": ["A", "B"], "destination": ["B", "B"], "trips": [3, 1]})
assert all(check_flow_expectations(flows, ["A", "B"], ["B"], Path("docs").absolute()).values())
found = check_flow_expectations(flows, ["A", "B"], ["A"], Path("docs").absolute())
print(*(name for name, met in found.items() if not met), sep=chr(10))
"""


@pytest.fixture
def environments(installed, tmp_path):
    """Make an environment with some extras."""
    return lambda *extras: Environment(tmp_path / "environment", installed, extras)


def said(environment: Environment, program: str, folder: Path) -> list[str]:
    done = environment.run("-c", program, folder=folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


def has_tests(environment: Environment) -> None:
    """Let the programs of the environment import examples of the tests, but no package of the checkout."""
    (environment.packages / "tests").symlink_to(ROOT / "tests")


def test_the_wheel_has_what_it_should(wheel):
    """No series of this repository, no file twice, the type information, and metadata that a registry accepts."""
    subprocess.run([sys.executable, "-m", "check_wheel_contents", str(wheel)], check=True, cwd=ROOT)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [metadata] = [archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA")]
    assert {"od_core/py.typed", "od_core/__init__.pyi", "od_assets/py.typed"} <= names
    assert not {name for name in names if name.startswith(("od_assets/defs", "tests", "benchmarks"))}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    sources = {
        path.relative_to(ROOT).as_posix()
        for package in ("od_core", "od_assets")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and not {"__pycache__", "defs"} & {*path.parts}
    }
    assert sources <= names
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "\nClassifier: Typing :: Typed\n" in metadata


def test_the_library_alone_releases_and_names_each_extra_that_is_missing(environments, tmp_path):
    """What the library does not require is not in its environment: no Dagster, no Great Expectations."""
    alone = environments()
    assert not {name for name in alone.names if name.startswith(("dagster", "great-expectations", "pyspark"))}
    done = alone.run("-c", LIBRARY, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    messages = done.stdout.splitlines() + done.stderr.splitlines()
    modules = {"boundaries": "pyogrio", "bundle": "openmatrix", "checks": "great_expectations", "spark": "pyspark"}
    for extra, module in modules.items():
        assert any(line.startswith(f"OD-EXTRA-ABSENT: {module} is not") and f"[{extra}]" in line for line in messages)
    assert "OD-EXTRA-ABSENT: dagster is not installed" in done.stderr
    assert sum("OD-EXTRA-ABSENT" in line for line in messages) == len(EXTRAS)
    assert "2" in messages


def test_the_extra_bundle_alone_writes_and_reads_a_bundle_and_draws_figures(environments, tmp_path):
    environment = environments("bundle")
    has_tests(environment)
    (tmp_path / "comparison.parquet").symlink_to(ROOT / "docs" / "reference" / "tables" / "comparison.parquet")
    matrices, figures = map(int, said(environment, BUNDLE, tmp_path))
    assert matrices > 0
    assert figures > 0
    assert "dagster" not in environment.names


def test_the_extra_checks_alone_checks_flows(environments, tmp_path):
    environment = environments("checks")
    assert said(environment, CHECKS, tmp_path) == ["expect_column_values_to_be_in_set: destination_is_listed"]
    assert "dagster" not in environment.names
