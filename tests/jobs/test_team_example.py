"""The example of a team with many cities, in a project that create-dagster makes, with the wheel."""

import json
import re
import shutil

import pytest

from tests.jobs.test_environments import Host
from tests.wheels import ROOT

EXAMPLE = ROOT / "examples" / "team"


@pytest.mark.timeout(900)  # some ten commands, each of which loads the project in a process of its own
def test_two_cities_share_assets_and_checks_and_are_verified_by_one_job(installed, tmp_path):
    host = Host(tmp_path / "team", installed)
    shutil.copytree(EXAMPLE / "defs", host.defs, dirs_exist_ok=True)
    shutil.copy(EXAMPLE / "team_checks.py", host.defs.parent)
    shutil.copytree(EXAMPLE / "data", host.folder / "data")
    program = host.environment.python.with_name("dg")
    program.write_text(
        f"#!/bin/sh\nexec '{host.environment.python}' -c 'import sys; from dagster_dg_cli.cli import main;"
        ' sys.argv[0] = "dg"; main()\' "$@"\n'
    )
    program.chmod(0o755)
    shutil.copy(EXAMPLE / "try_faults.py", host.folder)
    home = "export DAGSTER_HOME=$PWD/home\n"
    said = host.shell(home + (EXAMPLE / "try.sh").read_text(encoding="utf-8"))
    assert re.search(r"OD-RELEASE-LOCKED.*Nothing was drawn in this run, which is tried again in 30 s \(1 of 3\)", said)
    assert "Published oslo/2026-02/r1" in said
    assert "environment development" in said
    for city in ("oslo", "bergen"):
        bundle = host.folder / "var" / "releases" / city / "2026-01" / "r1"
        certificate = json.loads((bundle / "certificate.json").read_text(encoding="utf-8"))
        own = {check["check"]: check["severity"] for check in certificate["checks"] if "severity" in check}
        assert own == {"totals_move_little": "warn", "every_district_has_trips": "block"}
        assert certificate["data_set"] == city
    assert not (host.folder / "var" / "releases" / "tromso").exists()
