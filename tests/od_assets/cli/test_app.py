"""The command line: plans, errors of one line, and a release from a new folder."""

import inspect
import io
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from od_assets.cli.app import COMMANDS, STATED
from od_assets.cli.printing import print_rows
from od_assets.components import OdRelease
from od_assets.project import CHECKOUT
from od_assets.series.reading import read_declaration, read_declared_series
from od_assets.terminal import PlainConsole
from tests.od_assets.cli.commands import refusal, stated
from tests.od_assets.conftest import ATTRIBUTES

ROOT = Path(__file__).resolve().parents[3]


def test_plan_reads_no_record_and_spends_what_its_epsilon_allows(tmp_path):
    plan = stated("plan", "us_flights")
    rho = Fraction(plan["rho"])
    assert sum(Fraction(step["rho"]) for step in plan["steps"]) == rho
    assert all(Fraction(step["variance"]) == 1 / Fraction(step["rho"]) for step in plan["steps"])  # trip, bounded
    assert float(rho) == pytest.approx(0.019215, rel=3e-4)  # exact, epsilon 1, delta 1e-8, geography shares
    assert [step.get("area_totals") for step in plan["steps"][8:]] == ["origin", "destination"]
    assert all(Fraction(step["rho"]) == rho / 20 for step in plan["steps"][8:])
    leaf, first = (Fraction(plan["steps"][k]["rho"]) for k in (7, 0))
    assert first / leaf == (1 - Fraction(1, 5)) / Fraction(3, 2)  # the largest number of divisions of a region is 5
    assert not list(tmp_path.iterdir())


def test_a_series_none_of_whose_months_has_ended_is_planned(project, monkeypatch):
    """A plan reads no record, so that it can be looked at before the first month has ended; a run cannot begin."""
    plan = project.component().require_valid()
    expected = plan.plan(plan.read_geography(), "2001-01").facts()
    project.declare(ATTRIBUTES | {"periods": {"first": "2150-06"}})
    for chosen in ([], ["--period", "2150-06"]):
        assert stated("plan", "trips", *chosen).items() >= expected.items()
    for refused in (["plan", "trips", "--period", "2150-07"], ["run", "trips"]):
        assert refusal(*refused).code == "OD-PERIOD"
    assert not (project.var / "ledger.sqlite").exists()


def test_the_command_line_is_imported_without_large_libraries():
    """Each command imports them when it runs, so that version, help and completion do not wait for them."""
    code = "import sys, od_assets.cli.app; print({'dagster', 'duckdb', 'numba', 'numpy', 'pandas'} & {*sys.modules})"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "set()\n"


@pytest.mark.parametrize("width", [25, 40, 60, 120])
def test_a_narrow_terminal_breaks_no_word(width, monkeypatch):
    """A table that does not fit becomes a line for each row."""
    names = ("us_flights/2001-05/r1", "us_flights/2001-06/r1")
    rows = [{"release": name, "measured levels": "8 of 8", "trips": 1234567} for name in names]
    console = PlainConsole(width=width, file=io.StringIO())
    monkeypatch.setattr("od_assets.cli.printing.console", console)
    print_rows("Releases", rows)
    said = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert ("┃" in said) == (width >= 60)
    for word in (*names, "measured", "levels", "1,234,567"):
        assert word in said, said
    assert all(len(line) <= width for line in said.splitlines())


US_FLIGHTS = CHECKOUT / "od_assets" / "defs" / "us_flights" / "defs.yaml"


def test_numbers_in_yaml_are_decimal_however_they_are_written(tmp_path):
    budgets = set()
    for delta in ("1e-8", "1.0e-8", "'1e-8'", "0.00000001"):
        text = US_FLIGHTS.read_text(encoding="utf-8").replace('"1e-8"', delta)
        (tmp_path / "defs.yaml").write_text(text, encoding="utf-8")
        budgets.add(read_declaration(tmp_path / "defs.yaml", OdRelease).require_valid().privacy.budget)
    assert budgets == {read_declared_series("us_flights").require_valid().privacy.budget}


def test_every_text_of_an_option_is_of_a_parameter():
    for names, texts in STATED.items():
        commands = COMMANDS.values() if names == "*" else [COMMANDS[name] for name in names.split(", ")]
        known = {name for command in commands for name in inspect.signature(command).parameters}
        assert texts.keys() <= known, names
