"""The command line: plans, errors of one line, and a release from a new folder."""

from __future__ import annotations

import inspect
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from od_assets.cli.app import COMMANDS, STATED, app
from od_assets.cli.printing import print_frame, print_rows
from od_assets.components import OdRelease
from od_assets.project import CHECKOUT, current_project
from od_assets.runs.period_status import chosen_periods
from od_assets.series.reading import declaration, read_declaration
from od_assets.terminal import PlainConsole
from od_core.errors import OdError
from tests.od_assets.conftest import ATTRIBUTES, DOMAIN, Project
from tests.projects import make_dg_project

ROOT = Path(__file__).resolve().parents[3]


def od_release(*arguments: str, var: Path, project: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OD_VAR": str(var), "OD_PROJECT": str(project)}
    command = [sys.executable, "-m", "od_assets.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_plan_reads_no_record_and_spends_what_its_epsilon_allows(tmp_path: Path) -> None:
    result = od_release("plan", "us_flights", "--json", var=tmp_path)
    assert result.returncode == 0, result.stderr
    plan = json.loads(result.stdout)
    rho = Fraction(plan["rho"])
    assert sum(Fraction(step["rho"]) for step in plan["steps"]) == rho
    assert all(Fraction(step["variance"]) == 1 / Fraction(step["rho"]) for step in plan["steps"])  # trip, bounded
    assert float(rho) == pytest.approx(0.019215, rel=3e-4)  # exact, epsilon 1, delta 1e-8, geography shares
    assert [step.get("area_totals") for step in plan["steps"][8:]] == ["origin", "destination"]
    assert all(Fraction(step["rho"]) == rho / 20 for step in plan["steps"][8:])
    leaf, first = (Fraction(plan["steps"][k]["rho"]) for k in (7, 0))
    assert first / leaf == (1 - Fraction(1, 5)) / Fraction(3, 2)  # the largest number of divisions of a region is 5
    assert not list(tmp_path.iterdir())


def test_a_plan_is_a_verdict_and_its_exact_values_are_asked_for() -> None:
    said, more = (
        " ".join(CliRunner(env={"COLUMNS": "250"}).invoke(app, ["plan", "us_flights", *options]).stdout.split())
        for options in ([], ["--verbose"])
    )
    assert said.startswith(
        "One period of us_flights spends epsilon 0.999951 at delta 1e-8: 19.3 % of the cap of data set 'us_flights'"
    )
    assert re.search(r"state x state │ 2,601 │ 3\d │", said)
    assert "learns almost nothing" not in said
    for further in ("noise of one measurement", "expected error"):
        assert further not in said
        assert further in more
    assert said.count("epsilon 0.999951 ") == 1
    for exact in ("Bun-Steinke", "527.56", "0.0192185"):
        assert exact not in said
        assert exact in more


@pytest.mark.parametrize(("name", "number"), [("us_departures", "46"), ("us_flight_paths", "154")])
def test_a_plan_of_another_kind_says_how_large_the_noise_of_one_number_is(name: str, number: str) -> None:
    """Scales 20 and 66.67: P(|Z| > h) = 2 q^(h + 1) / (1 + q), with q = exp(-1 / scale), is at most 0.1."""
    said = " ".join(CliRunner().invoke(app, ["plan", name]).stdout.split())
    assert f"the noise of one measured number is at most {number}, 9 times in 10." in said


def test_the_version_is_that_of_the_package() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"od-release {version('od-release')}\n")


def test_a_series_none_of_whose_months_has_ended_is_planned(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan reads no record, so that it can be looked at before the first month has ended; a run cannot begin."""
    plan = project.component().checked()
    expected = plan.plan(plan.read_geography(), "2001-01").facts()
    declared = {**ATTRIBUTES, "periods": {"first": "2150-06"}}
    folder = project.defs / "trips"
    folder.mkdir()
    (folder / "defs.yaml").write_text(yaml.dump({"attributes": declared}), encoding="utf-8")
    for chosen in ([], ["--period", "2150-06"]):
        result = CliRunner().invoke(app, ["plan", "trips", "--json", *chosen])
        assert result.exit_code == 0, result.exception
        assert json.loads(result.stdout).items() >= expected.items()
    for refused in (["plan", "trips", "--period", "2150-07"], ["run", "trips"]):
        error = CliRunner().invoke(app, refused).exception
        assert isinstance(error, OdError)
        assert error.code == "OD-PERIOD"
    assert not (project.var / "ledger.sqlite").exists()


@pytest.mark.parametrize("options", [{}, {"estimate": "auto"}, {"leaves": "empirical_bayes"}], ids=str)
def test_a_plan_names_the_estimate_whose_error_it_states(project: Project, options: dict[str, str]) -> None:
    project.component()  # declares the data set
    folder = project.defs / "trips"
    folder.mkdir()
    declared = {**ATTRIBUTES, "mechanism_options": options}
    (folder / "defs.yaml").write_text(yaml.dump({"attributes": declared}), encoding="utf-8")
    result = CliRunner().invoke(app, ["plan", "trips"])
    assert result.exit_code == 0, result.exception
    said = " ".join(result.stdout.split())
    assert ("That is for least squares." in said) == bool(options)
    assert ("consider mechanism_options: {estimate: auto}" in said) == (not options)


def test_a_period_that_has_not_ended_is_said_to_be_that(project: Project) -> None:
    component = project.component(periods={"first": "2001-01"})
    with pytest.raises(OdError, match=r"'2150-06' is not an ended period of trips \(2001-01 to ") as refused:
        chosen_periods(component, "2150-06", every=False)
    assert refused.value.code == "OD-PERIOD"


@pytest.mark.parametrize("command", ["plan", "run", "forecast"])
def test_a_release_is_named(command: str) -> None:
    """No command spends budget, or plans to, on a release that nobody has named."""
    result = CliRunner().invoke(app, [command])
    assert result.exit_code == 2
    assert "Missing argument" in result.output
    assert not current_project().var.exists()


def test_a_mistyped_name_is_refused_before_dagster_is_imported(tmp_path: Path) -> None:
    """It is done in a process of its own, in which nothing is imported before."""
    code = """
import sys
from od_assets.cli.releases import run
from od_core.errors import OdError
try:
    run("us_flihgts")
except OdError as error:
    print(error.code, "us_flights" in error.message, {"dagster", "numba"} & {*sys.modules})
"""
    environment = os.environ | {"OD_VAR": str(tmp_path), "OD_PROJECT": str(ROOT)}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == "OD-RELEASE-UNKNOWN True set()\n"


def test_the_command_line_is_imported_without_large_libraries() -> None:
    """Each command imports them when it runs, so that version, help and completion do not wait for them."""
    code = "import sys, od_assets.cli.app; print({'dagster', 'duckdb', 'numba', 'numpy', 'pandas'} & {*sys.modules})"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "set()\n"


def test_where_nothing_is_waited_for_a_table_has_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    """A column without any value is left out."""
    names = ["a/2001-01/r1", "a/2001-02/r1"]
    waits = pd.DataFrame({"release": names, "waits_for": [None, "a file"], "left": [None, None]})
    print_frame("Releases", waits)
    said = capsys.readouterr().out
    assert "-" in said.splitlines()[-3].split("│")[2]
    assert "None" not in said
    assert "left" not in said


@pytest.mark.parametrize("width", [25, 40, 60, 120])
def test_a_narrow_terminal_breaks_no_word(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("plan", "us_flight"), "OD-RELEASE-UNKNOWN"),
        (("run", "us_flights", "--period", "1999-01"), "OD-PERIOD"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    refused: Callable[..., str], arguments: tuple[str, ...], code: str
) -> None:
    said = refused(*arguments)
    assert said.startswith(code)
    assert said.count("\n") == 1
    assert not current_project().var.exists()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"privacy": {"epsilon": "-1", "delta": "1e-8"}}, "OD-BUDGET-EPSILON"),
        ({"privacy": {"epsilon": ".nan", "delta": "1e-8"}}, "OD-BUDGET-NUMBER"),
        ({"privacy": {"rho": 0, "delta": "1e-8"}}, "OD-BUDGET-RHO"),
        ({"privacy": {"epsilon": 1, "delta": 1}}, "OD-BUDGET-DELTA"),
        ({"privacy": {"epsilon": 1, "delta": -1e-8}}, "OD-BUDGET-DELTA"),
        ({"privacy": {"epsilon": 1, "delta": "1e-8", "shares": ["1/2", "1/4", "1/8", "1/16"]}}, "OD-BUDGET-SHARES"),
        ({"privacy": {"epsilon": 1, "delta": "1e-8", "conversion": "tigth"}}, "tight"),
        ({"mechanism": "inftd"}, "inftda"),
        ({"mechanism_options": {"order": "ascendin"}}, "ascending"),
        ({"noise": "open_dp"}, "opendp"),
        ({"domain": {**DOMAIN, "neighbours": "bound"}}, "bounded"),
        ({"domain": {**DOMAIN, "unit": "user"}}, "OD-UNIT-OPTIONS"),
        ({"domain": {**DOMAIN, "unit": "user", "column": "id"}}, "OD-UNIT-MAX-TRIPS"),
        ({"max_trips": 4}, "OD-UNIT-OPTIONS"),
        ({"domain": {**DOMAIN, "elementary_period": "mnth"}}, "month"),
        ({"domain": {**DOMAIN, "cap": {"reason": "none"}}}, "OD-DOMAIN-CAP"),
        ({"domain": {**DOMAIN, "cap": {"epsilon": "1", "reason": "no delta"}}}, "OD-DOMAIN-CAP"),
        ({"domain": {**DOMAIN, "cap": {"rho": "-1", "reason": "below 0"}}}, "OD-DOMAIN-CAP"),
        ({"domain": {**DOMAIN, "neighbors": "bounded"}}, "neighbors"),
        ({"domain": "trip"}, "trips"),
        ({"revision": 0}, "OD-RELEASE-KEY"),
        ({"trips": {"files": "x.csv", "colums": {}}}, "OD-CONFIG"),
        ({"periods": {"frist": "2001-01"}}, "frist (line 12): Extra inputs are not permitted (did you mean 'first'?)"),
        ({"periods": {"first": "2001-13"}}, "OD-PERIOD"),
        ({"periods": {"first": "2001-03", "last": "2001-02"}}, "OD-PERIOD"),
        ({"name": "Trips"}, "OD-RELEASE-KEY"),
        ({"privacy": {"epsilon": True, "delta": "1e-8"}}, "OD-CONFIG"),
        ({"privacy": {"epsilon": "1e999999999", "delta": "1e-8"}}, "OD-BUDGET-NUMBER"),
        ({"mechanism_options": {"ordr": "ascending"}}, "OD-MECHANISM-OPTIONS"),
        ({"domain": {**DOMAIN, "name": "trips "}}, "OD-CONFIG"),
        ({"trips": {"files": "all.csv"}}, "OD-TRIPS-FILES"),
        ({"trips": {"files": "{month}.csv"}}, "OD-TRIPS-FILES"),
        ({"trips": {"files": "{period:.4}.csv"}}, "OD-TRIPS-FILES"),
        ({"trips": {"files": "all{period:.0}.csv"}}, "OD-TRIPS-FILES"),
        ({"domain": {**DOMAIN, "elementary_period": "year"}}, "OD-DOMAIN-PERIOD"),
    ],
)
def test_every_mistake_in_a_declaration_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], expected: str
) -> None:
    monkeypatch.setenv("OD_PROJECT", str(tmp_path))
    defs = make_dg_project(tmp_path)
    path = defs / "defs.yaml"
    declared = DOMAIN
    if isinstance(change.get("domain"), dict):
        declared, change = change["domain"], {}
    (defs / "domains" / "trips.yaml").write_text(yaml.dump(declared), encoding="utf-8")
    path.write_text(yaml.dump({"type": "x", "attributes": {**ATTRIBUTES, **change}}), encoding="utf-8")

    def use() -> None:
        component = read_declaration(path, OdRelease)
        component.checked().key("2001-01")
        component.periods.definition()

    with pytest.raises(OdError) as caught:
        use()
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_yaml_that_cannot_be_read_is_said_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "defs.yaml").write_text("type: x\nattributes:\n  name: trips\n   domain: trips\n", encoding="utf-8")
    with pytest.raises(OdError, match=r"OD-CONFIG: \S+/defs.yaml is not valid YAML \(line 4\): "):
        read_declaration(tmp_path / "defs.yaml", OdRelease)


US_FLIGHTS = CHECKOUT / "od_assets" / "defs" / "us_flights" / "defs.yaml"


def test_numbers_in_yaml_are_decimal_however_they_are_written(tmp_path: Path) -> None:
    budgets = set()
    for delta in ("1e-8", "1.0e-8", "'1e-8'", "0.00000001"):
        text = US_FLIGHTS.read_text(encoding="utf-8").replace('"1e-8"', delta)
        (tmp_path / "defs.yaml").write_text(text, encoding="utf-8")
        budgets.add(read_declaration(tmp_path / "defs.yaml", OdRelease).checked().privacy.budget)
    assert budgets == {declaration("us_flights").checked().privacy.budget}


def test_every_text_of_an_option_is_of_a_parameter() -> None:
    for names, texts in STATED.items():
        commands = COMMANDS.values() if names == "*" else [COMMANDS[name] for name in names.split(", ")]
        known = {name for command in commands for name in inspect.signature(command).parameters}
        assert texts.keys() <= known, names
