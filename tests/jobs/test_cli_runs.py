"""The command line runs whole releases in a new folder: published, read back, refused."""

import json
import math
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from od_assets.runs import jobs
from od_assets.series.reading import read_declared_series
from od_core.ledger import measurements
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.accounting import compute_tight_epsilon, format_rounded_up
from tests.od_assets.cli.commands import command
from tests.od_assets.conftest import ATTRIBUTES
from tests.projects import make_dg_project

ROOT = Path(__file__).resolve().parents[2]


def od_release(*arguments: str, var: Path, project: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OD_VAR": str(var), "OD_PROJECT": str(project)}
    command = [sys.executable, "-m", "od_assets.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_run_publishes_reads_back_and_status_tells(tmp_path):
    first = od_release("run", "us_flights", "--period", "2001-02", "--json", var=tmp_path)
    assert first.returncode == 0, first.stderr
    facts = json.loads(first.stdout)[0]
    assert facts["drawn"] == 10
    assert all(check["passed"] for check in facts["checks"])
    assert facts["flows_by_level"][0]["flows"] == 1
    assert Path(facts["bundle"]).is_dir()
    again = od_release("run", "us_flights", "--period", "2001-02", var=tmp_path)
    assert again.returncode == 0, again.stderr
    assert not re.search("Warning|leaked", first.stderr + again.stderr)
    said = " ".join(again.stdout.split())
    assert "Measurements drawn: 0 of 10 (the others were read back)." in said
    flows = facts["flows_by_level"][8]["flows"]
    assert f"in {flows:,} flows above 0, some of which are noise alone, from airport to airport." in said
    assert "Spent: epsilon 0.999951 at delta 1e-8." in said
    equally = "was replaced by another and, if both cases are equally likely"
    guess = re.search(equally + r", guess right more than (\d+) times in 100", said)
    assert guess is not None
    most = 100 * math.e / (1 + math.e)  # epsilon 1: even odds become at most e to 1
    assert 50 < int(guess[1]) <= math.ceil(most)
    assert again.stdout.splitlines()[-1] == f"Report: {facts['bundle']}/report.html"
    assert len(again.stdout.splitlines()) <= 10
    whole = od_release("run", "us_flights", "--period", "2001-02", "--explain", var=tmp_path)
    parts = ("Protected: ", "Not protected: ", "Flows by level", "children_sum_to_parents", "Report: ", "Database: ")
    assert sorted(parts, key=whole.stdout.index) == list(parts)
    rows = json.loads(od_release("status", "--json", var=tmp_path).stdout)
    states = {row["release"]: row for row in rows}
    published, before = states["us_flights/2001-02/r1"], states["us_flights/2001-01/r1"]
    assert (published["state"], before["state"]) == ("published", "not begun")
    assert published["rho_spent"] == pytest.approx(float(Fraction(facts["spent"]["rho_exact"])), rel=1e-12)
    assert published["data_set_rho_left"] == pytest.approx(facts["left_rho"], rel=1e-12)
    assert before["rho_spent"] == 0
    assert (published["settings_changed"], before["settings_changed"]) == ([], None)

    make_dg_project(tmp_path / "elsewhere")
    rows = json.loads(od_release("status", "--json", var=tmp_path, project=tmp_path / "elsewhere").stdout)
    assert rows == [
        published | {"data_set_rho_left": None, "settings_changed": None}
    ]  # no longer declared, and still listed


def test_a_run_says_which_draws_were_lost_and_what_is_charged_and_not_published(project, monkeypatch):
    """A draw ends before it is stored, and a revision is charged and never drawn."""
    monkeypatch.setattr(jobs, "load_definitions", lambda: project.definitions(read_declared_series("trips")))
    project.component()  # writes the domain
    project.declare(ATTRIBUTES | {"privacy": {"rho": "0.01", "delta": "1e-8"}})
    write = measurements._write_draw

    def dies(draw, path):
        if path.name.startswith(".noisy_measurement_2."):
            raise MemoryError
        return write(draw, path)

    def ran():
        return " ".join(command("run", "trips", "--period", "2001-01").stdout.split())

    with monkeypatch.context() as patch:
        patch.setattr(measurements, "_write_draw", dies)
        assert "trips/2001-01/r1 is not published." in ran()
    settings, ledger = read_declared_series("trips").require_valid(), Ledger(project.var / "ledger.sqlite")
    plan = settings.plan(settings.read_geography(), "2001-01")
    ledger.reserve(ReleaseKey("trips", "2001-01", 2), "trips", plan)
    said = ran()
    assert "trips/2001-01/r2 is charged to the same cap, but not published: its rho 0.01 stays spent." in said
    lost = next(step.charge.rho for step in plan.steps if step.level == 2)
    spent = format_rounded_up(compute_tight_epsilon(Fraction(1, 100) + lost, Fraction(1, 10**8)))
    assert (
        "Lost draws of earlier runs, which ended before the noisy values were stored: level 2. Their rho"
        f" {format_rounded_up(lost)} stays spent, so the release spent epsilon {spent} at delta 1e-8 instead of epsilon"
        f" {format_rounded_up(plan.spent.epsilon)}."
    ) in said
