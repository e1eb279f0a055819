"""The guide on environments, command by command, in a project that create-dagster makes, with the wheel."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from od_core import open_release
from tests.jobs.test_foreign_project import INIT, RECORDS, Team
from tests.wheels import ROOT

PAGE = (ROOT / "docs" / "how-to" / "environments.md").read_text(encoding="utf-8")
ZONES = "region,zone\nnorth,N1\nnorth,N2\nsouth,S1\nsouth,S2\n"


def blocks(heading: str, language: str) -> list[str]:
    """The code in a language below a heading of the guide."""
    [section] = re.findall(rf"\n## {heading}\n(.*?)(?=\n## |\Z)", PAGE, re.DOTALL)
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


class Host(Team):
    """A host with a checkout of the project, and a shell in which od-release is a command."""

    def __init__(self, folder: Path, installed: Path) -> None:
        super().__init__(folder, installed)
        program = self.environment.python.with_name("od-release")
        program.write_text(f'#!/bin/sh\nexec "{self.environment.python}" -m od_assets.cli "$@"\n')
        program.chmod(0o755)

    def shell(self, text: str) -> str:
        """What the commands of a console print, each of which must succeed."""
        done = self.tried(text)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr[:1000]}"
        return done.stdout

    def tried(self, text: str) -> subprocess.CompletedProcess[str]:
        script = "import subprocess, sys; sys.exit(subprocess.run(['bash', '-e', '-c', sys.argv[1]]).returncode)"
        text = re.sub(r"^\$ ", "", text, flags=re.M)
        return self.environment.run("-c", script, f"unset DAGSTER_HOME\n{text}", folder=self.folder)

    def state(self, heading: str, **changes: str) -> None:
        """Write the ``.env`` of a section of the guide, with other values for some variables."""
        [text] = blocks(heading, "ini")
        for name, value in changes.items():
            text, replaced = re.subn(rf"^{name}=.*$", f"{name}={value}", text, flags=re.M)
            assert replaced == 1
        (self.folder / ".env").write_text(text)


@pytest.mark.timeout(1_800)  # some fifteen commands, each of which loads the project in a process of its own
def test_the_guide_works_as_written(installed, tmp_path):
    host = Host(tmp_path / "team", installed)
    data = host.folder / "data" / "my_city"
    data.mkdir(parents=True)
    (data / "zones.csv").write_text(ZONES)
    host.run("-m", "od_assets.cli", *INIT)
    declaration = host.defs / "my_city" / "defs.yaml"
    declared = yaml.safe_load(declaration.read_text())
    [changed] = blocks("Declare what differs", "yaml")
    for name, value in yaml.safe_load(changed).items():
        section = declared["attributes"].get(name)
        declared["attributes"][name] = section | value if isinstance(section, dict) else value
    declaration.write_text(yaml.safe_dump(declared))

    host.state("Work in development")
    said = host.shell(blocks("Work in development", "console")[0])
    assert f"environment development: the ledger is {host.folder}/var/ledger.sqlite" in said
    assert "data/invented/my_city/{period}.csv, 1 found, 1 of them invented; automation stopped" in said
    assert f"variables: read from {host.folder}/.env" in said
    certificate = host.folder / "var/releases/my_city/2026-01/r1/certificate.json"
    assert "Invented trips of my city" in certificate.read_text()
    host.dg("check", "defs")

    host.state("Rehearse in staging")
    assert "OD-INVENT" in host.tried("od-release invent my_city --period 2026-01").stderr  # that of development
    (host.folder / "data/invented/my_city/2026-01.csv").unlink()
    host.shell(blocks("Rehearse in staging", "console")[0])

    real = tmp_path / "records"
    (real / "my_city").mkdir(parents=True)
    RECORDS.to_csv(real / "my_city" / "2026-01.csv", index=False)
    host.state("Run production", RECORDS=str(real))
    said = host.shell(blocks("Run production", "console")[0])
    assert "environment production" in said
    assert "1 found, 0 of them invented; automation running" in said
    refused = host.tried("od-release invent my_city --period 2026-02")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "OD-INVENT: this is the environment production" in refused.stderr

    said = host.shell(blocks("Promote a release", "console")[0])
    assert "my_city" in said
    copy = open_release(host.folder / "published/my_city/2026-01/r1.zip")
    made = open_release(host.folder / "var/production/releases/my_city/2026-01/r1")
    assert copy.flows.equals(made.flows)
    assert copy.flows_at("region", "region")["trips"].sum() < 1000  # of 120 real trips, not of 20,000 invented ones

    host.state("Rehearse in staging", OD_VAR="var/production")
    for command in ("doctor my_city", "plan my_city", "run my_city --period 2026-01"):
        refused = host.tried(f"od-release {command}")
        assert refused.returncode == (2 if command.startswith("plan") else 1), refused.stderr
        assert (
            "OD-LEDGER-ENVIRONMENT: the ledger is that of environment 'production'" in refused.stdout + refused.stderr
        )
    refused = host.tried("OD_ENVIRONMENT=production od-release plan my_city")
    assert "OD-PROJECT-ENV: OD_ENVIRONMENT in the environment differs" in refused.stderr
    host.state("Work in development")
    with (host.folder / ".env").open("a") as file:
        file.write("RECORDS=data/invented\n")
    said = host.shell("RECORDS=/srv/elsewhere od-release doctor my_city")
    assert "The environment has other values of RECORDS: those of .env are used" in said
    host.state("Branch deployments")
    assert f"{host.folder}/var/fix-1" in host.shell("BRANCH=fix-1 od-release doctor my_city")
