"""Files of deployments: their commands, options, variables and paths exist. Nothing is started and nothing is built."""

import ast
import os
import re
import shlex
import shutil
import sqlite3
import stat
import subprocess
import tarfile
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import typer
import yaml
from dagster._cli import create_dagster_cli
from dagster._config import process_config
from dagster._core.instance.config import dagster_instance_config_schema
from dagster._core.workspace.config_schema import process_workspace_config
from dagster._daemon.cli import create_dagster_daemon_cli

from od_assets.cli.app import app

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
ONE_HOST, COMPOSE, HELM = (DEPLOY / name for name in ("one-host", "compose", "helm"))
UNITS = sorted(ONE_HOST.glob("*.service"))
OF_OTHERS = {
    "DAGSTER_PG_PASSWORD",
    "POSTGRES_PASSWORD",
    "PROJECT",
    "RECORDS",
    "OD_OWNER_PASSWORD",
    "OD_WRITER_PASSWORD",
    "PGPASSWORD",
}
"""Variables that the files of deployments define for themselves, for Dagster's settings or for PostgreSQL's image."""

OF_PROCESSES = {"PATH", "PYTHONPATH", "PYTHONUNBUFFERED"}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def unit(path: Path) -> list[tuple[str, str]]:
    """The settings of a unit file, in order; a name may come several times."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(name, value) for name, found, value in (line.partition("=") for line in lines) if found and name[0] != "#"]


def environment_file(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(re.findall(r"^(?:# )?([A-Z_]+)=(.*)$", "\n".join(lines), re.MULTILINE))


def compose() -> dict[str, Any]:
    return read(COMPOSE / "compose.yaml")["services"]


def user_deployment() -> dict[str, Any]:
    return read(HELM / "values.yaml")["dagster-user-deployments"]["deployments"][0]


def commands() -> dict[str, list[str]]:
    """The commands of all deployments, by where they stand."""
    found = {}
    for path in UNITS:
        for name, value in unit(path):
            if name.startswith("Exec"):
                found[f"{path.name} {name}"] = shlex.split(value)
    for name, service in compose().items():
        command = service.get("command", [])
        if command[:2] == ["sh", "-c"]:
            for number, part in enumerate(command[2].split(" && ")):
                found[f"compose {name} {number}"] = shlex.split(part.removeprefix("exec "))
        elif command:
            found[f"compose {name}"] = command
        test = service["healthcheck"]["test"]
        found[f"compose {name} healthcheck"] = test[1:]
    arguments = user_deployment()["dagsterApiGrpcArgs"]
    found["helm"] = ["dagster", "api", "grpc", "--host", "0.0.0.0", "--port", "4000", *arguments]  # noqa: S104
    return found


@cache
def programs() -> dict[str, click.Command]:
    return {
        "dagster": create_dagster_cli(),
        "dagster-daemon": create_dagster_daemon_cli(),
        "od-release": typer.main.get_command(app),
    }


OURS = {where: line for where, line in commands().items() if Path(line[0]).name in programs()}


@pytest.mark.parametrize("where", OURS)
def test_a_command_and_its_options_exist(where):
    """Every option is one of the installed version, and has a value if it needs one."""
    name, *arguments = OURS[where]
    command = programs()[Path(name).name]
    while hasattr(command, "commands"):
        command = command.commands[arguments.pop(0)]
    options = {option: parameter for parameter in command.params for option in parameter.opts}
    while arguments:
        option = options[arguments.pop(0)]
        if not option.is_flag:
            assert not arguments.pop(0).startswith("-")


def variables_read() -> set[str]:
    """Names of the variables that the code reads: literals and constants in capital letters."""
    found = set()
    for package in ("od_core", "od_assets"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if "environ" in text:
                found |= {node.value for node in ast.walk(ast.parse(text)) if is_name(node)}
    return found


def is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(re.fullmatch("[A-Z_]+", node.value))


def test_every_variable_that_is_set_is_read():
    """By the code, by the settings beside it, or by the image of PostgreSQL."""
    stated = environment_file(ONE_HOST / "environment").keys() | user_deployment()["env"].keys()
    dockerfile = (COMPOSE / "Dockerfile").read_text(encoding="utf-8")
    stated |= set(re.findall(r"^(?:ENV| {3}) ([A-Z_]+)=", dockerfile, re.MULTILINE))
    for service in compose().values():
        stated |= service["environment"].keys()
    stated |= {"OD_UI_TOKEN"}  # the guide writes it to web-token
    assert stated - OF_OTHERS - OF_PROCESSES - variables_read() == set()
    assert {"OD_VAR", "OD_PROJECT", "DAGSTER_HOME", "NUMBA_CACHE_DIR", "OD_UI_TOKEN"} <= stated & variables_read()
    needed = set(re.findall(r"\$\{(\w+):\?", (COMPOSE / "compose.yaml").read_text(encoding="utf-8")))
    assert needed == environment_file(COMPOSE / "env.example").keys()
    assert set(re.findall(r"\$([A-Z_]+)", (COMPOSE / "databases.sh").read_text(encoding="utf-8"))) <= needed


@pytest.mark.parametrize("folder", [ONE_HOST, COMPOSE], ids=lambda folder: folder.name)
def test_dagster_accepts_the_settings_and_stores_nothing_that_steps_print(folder, monkeypatch):
    monkeypatch.setenv("DAGSTER_PG_PASSWORD", "secret")
    settings, own = read(folder / "dagster.yaml"), read(ROOT / "od_assets" / "dagster.yaml")
    assert process_config(dagster_instance_config_schema(), settings).success
    kept = {name: value for name, value in settings.items() if name != "storage"}
    assert kept == own
    target = process_workspace_config(read(folder / "workspace.yaml"))
    assert target.success, target.errors


def test_one_release_at_a_time_in_helm_and_nothing_is_stored_that_steps_print():
    values = read(HELM / "values.yaml")
    assert values["dagsterDaemon"]["runCoordinator"]["config"]["queuedRunCoordinator"] == {"maxConcurrentRuns": 1}
    assert values["computeLogManager"] == {"type": "NoOpComputeLogManager"}
    assert values["runLauncher"]["type"] == "K8sRunLauncher"
    claims = {claim["metadata"]["name"] for claim in manifests() if claim["kind"] == "PersistentVolumeClaim"}
    volumes = [one["persistentVolumeClaim"] for one in user_deployment()["volumes"] if "persistentVolumeClaim" in one]
    assert {volume["claimName"] for volume in volumes} == claims
    assert {one["name"] for one in user_deployment()["volumeMounts"]} == {
        one["name"] for one in user_deployment()["volumes"]
    }


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((HELM / "prerequisites.yaml").read_text(encoding="utf-8")))


def test_the_image_copies_what_exists_and_what_its_context_has():
    ignored = (COMPOSE / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    let_in = [line[1:] for line in ignored if line.startswith("!")]
    text = (COMPOSE / "Dockerfile").read_text(encoding="utf-8")
    copied = [
        source for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for source in line.split()[:-1]
    ]
    assert sorted(copied) == sorted(let_in)
    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert "*" in ignored
    assert "USER 10001:10001" in text


def test_what_the_image_adds_is_pinned_and_fits_what_is_pinned_already():
    text = (COMPOSE / "requirements.txt").read_text(encoding="utf-8")
    assert re.fullmatch(r"(?:[a-z0-9-]+==[0-9a-z.]+(?: \\\n {4}--hash=sha256:[0-9a-f]{64})+\n)+", text)
    added = dict(re.findall(r"^(\S+)==(\S+)", text, re.MULTILINE))
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^(\S+)==(\S+)", constraints, re.MULTILINE))
    assert not added.keys() & pinned.keys()
    minor = pinned["dagster"].removeprefix("1.").partition(".")[2]
    assert {added[name] for name in ("dagster-postgres", "dagster-k8s")} == {f"0.29.{minor}"}


def test_containers_have_no_rights_and_only_the_code_location_has_the_records():
    services = compose()
    for name in ("code", "daemon", "web"):
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]
    private = ("var:", "${RECORDS")
    holders = {name for name, service in services.items() for one in service["volumes"] if one.startswith(private)}
    assert holders == {"code"}
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports == ["127.0.0.1:3000:3000"]
    assert read(COMPOSE / "compose.yaml")["networks"]["inside"] == {"internal": True}
    assert {name for name, service in services.items() if service["networks"] != ["inside"]} == {"web"}


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_has_no_rights_and_dumps_no_core(path):
    stated = unit(path)
    for setting in (
        ("User", "od-release"),
        ("EnvironmentFile", "/etc/od-release/environment"),
        ("NoNewPrivileges", "yes"),
        ("CapabilityBoundingSet", ""),
        ("ProtectSystem", "strict"),
        ("LimitCORE", "0"),
        ("UMask", "0077"),
    ):
        assert setting in stated
    if path.stem in ("od-release-daemon", "od-release-web"):
        assert ("InaccessiblePaths", "-/var/lib/od-release/var") in stated


NOT_HERE = re.compile(r"Command /opt/od-release/\S+ is not executable: No such file or directory")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units():
    files = sorted(ONE_HOST.glob("od-release*"))
    assert len(files) == 7
    command = [str(shutil.which("systemd-analyze")), "verify", *map(str, files)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in checked.stderr.splitlines() if not NOT_HERE.search(line)] == []


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="sqlite3 is not installed")
def test_the_backup_has_every_file_and_the_newest_entries(tmp_path):
    """Also those that are in the write-ahead log alone; and only its owner can read it."""
    var, backups = tmp_path / "var", tmp_path / "backups"
    for folder in (var / "confidential", var / "dagster", backups):
        folder.mkdir(parents=True)
    (var / "confidential" / "hmac.key").write_text("a key", encoding="utf-8")
    subprocess.run([str(ONE_HOST / "backup"), str(var), str(backups)], check=True)
    assert not (var / "ledger.sqlite").exists()  # before the first release, none is created
    next(backups.iterdir()).unlink()
    with closing(sqlite3.connect(var / "ledger.sqlite", isolation_level=None)) as ledger:
        ledger.execute("PRAGMA journal_mode = WAL")
        ledger.execute("CREATE TABLE entries AS SELECT 7 AS number")
        subprocess.run([str(ONE_HOST / "backup"), str(var), str(backups)], check=True)
    [archive] = backups.iterdir()
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with tarfile.open(archive) as copy:
        assert {name for name in copy.getnames() if copy.getmember(name).isfile()} == {
            "./confidential/hmac.key",
            "./ledger.sqlite",
        }
        copy.extractall(tmp_path / "restored", filter="data")
    with closing(sqlite3.connect(tmp_path / "restored" / "ledger.sqlite")) as restored:
        assert restored.execute("SELECT * FROM entries").fetchall() == [(7,)]


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="sqlite3 is not installed")
@pytest.mark.parametrize(("status", "is_kept"), [(1, True), (2, False)])
def test_a_file_that_changes_while_it_is_copied_does_not_stop_the_backup(status, is_kept, tmp_path):
    """GNU tar ends with 1 for it, as while a site is written; with 2, the archive is not whole."""
    var, backups, programs = (tmp_path / name for name in ("var", "backups", "programs"))
    for folder in (var, backups, programs):
        folder.mkdir()
    (programs / "tar").write_text(f'#!/bin/sh\n{shutil.which("tar")} "$@" && [ $1 != --create ] || exit {status}\n')
    (programs / "tar").chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    ended = subprocess.run([str(ONE_HOST / "backup"), str(var), str(backups)], env=environment, check=False)
    assert (ended.returncode == 0, len([*backups.glob("*.tar")])) == (is_kept, is_kept)
