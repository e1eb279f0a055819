"""What an installation needs to release anything, looked at without making or changing a file."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import stat
import tomllib
import warnings
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

import dagster as dg
import numpy as np
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from od_assets.cli.findings import Finding, found
from od_assets.project import DAGSTER_SETTINGS, dagster_home
from od_assets.resources.dead_runs import PATIENCE, dead_runs, starting_runs
from od_assets.resources.warehouse import Warehouse
from od_core.errors import OdError
from od_core.files.durable import CONFIDENTIAL_FILE_MODE, CONFIDENTIAL_FOLDER_MODE
from od_core.flows.projection.chebyshev import intopt
from od_core.ledger.ledger import look_at_ledger
from od_core.ledger.lock import LOCK_NAME
from od_core.noise.sources import BACKENDS, noise_named
from od_core.publication.bundle import ledger_entries

CHECKOUT = Path(__file__).resolve().parents[2]
"""Where pyproject.toml and constraints.txt are: the project is installed from its checkout."""

LEAST_FREE = 2 << 30
"""Bytes: records are kept once more while they are read, and DuckDB spills beside them."""

_PIN = re.compile(r"^[^\s#]+==\S+", re.MULTILINE)
"""A package and its version; the hashes of its files follow."""

_CELLS = 8
"""Of noise that is drawn to see whether it can be."""

_MOST_NAMED = 5
"""So many of a kind are named in a line at most."""


def python_version(checkout: Path = CHECKOUT) -> list[Finding]:
    """Whether this Python is one that the project is for."""
    required = SpecifierSet(_project(checkout)["requires-python"])
    this = platform.python_version()
    if required.contains(this, prereleases=True):
        return [Finding(f"Python {this}")]
    return [Finding(f"Python {this}", f"the project needs {required}", "install again with such a Python")]


def packages(checkout: Path = CHECKOUT) -> list[Finding]:
    """Whether the installed packages are those that pyproject.toml requires and constraints.txt pins."""
    required = [Requirement(line) for line in _project(checkout)["dependencies"]]
    pinned = [Requirement(pin) for pin in _PIN.findall((checkout / "constraints.txt").read_text(encoding="utf-8"))]
    # Of packages for development, some may be left out.
    installed = [one for one in pinned if _installed(one) is not None]
    return [
        _versions(f"{len(required)} packages that pyproject.toml requires", required),
        _versions(f"{len(installed)} packages as constraints.txt pins them", installed),
    ]


def _project(checkout: Path) -> dict[str, str]:
    with (checkout / "pyproject.toml").open("rb") as file:
        project: dict[str, str] = tomllib.load(file)["project"]
    return project


def _versions(what: str, required: list[Requirement]) -> Finding:
    others = [
        f"{one.name} {_installed(one) or 'is missing'} (needed: {one.specifier})"
        for one in required
        if not one.specifier.contains(_installed(one) or "", prereleases=True)
    ]
    if not others:
        return Finding(what)
    return Finding(what, _some(others), "remove .venv, then make install")


def _installed(requirement: Requirement) -> str | None:
    try:
        return importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return None


def compiled_kernels(folder: Path | None) -> list[Finding]:
    """Whether machine code of the kernels is kept in a folder, and gives what it should.

    Args:
        folder: of the present sources; None where no folder can be written.
    """
    what = "compiled kernels"
    if folder is None:
        return [
            Finding(
                what,
                "no folder can keep them: every process compiles them anew",
                "make the environment or ~/.cache writable for this user, and for nobody else",
            )
        ]
    if not any(folder.rglob("*.nbi")):
        return [Finding(what, "none are kept: the first release compiles them", "python -m od_core.warmup")]
    if intopt(np.array([3, -1]), 2).tolist() != [2, 0]:  # 3 - 1 = 2 and max(-1 + 1, 0) = 0 is the one best answer
        return [Finding(what, "their machine code gives wrong numbers", f"remove {folder}, then make install")]
    return [Finding(what)]


def noise_backends() -> list[Finding]:
    """Whether every noise backend can draw: noise that is added to nothing, and charged to nothing."""
    return [found(f"noise backend {name}", partial(_draw, name)) for name in BACKENDS]


def _draw(name: str) -> None:
    try:
        noise = noise_named(name).draw(Fraction(1), 0, 0, _CELLS)
    except Exception as error:  # noqa: BLE001  # whatever a library raises; there is no record here
        fault = f"it cannot draw: {type(error).__name__}: {error}"
    else:
        if noise.dtype == np.int64 and noise.shape == (_CELLS,):
            return
        fault = f"it draws {noise.dtype} of shape {noise.shape}"
    raise OdError("OD-NOISE-BROKEN", fault, next_step="remove .venv, then make install")


def home_of_dagster(var: Path) -> list[Finding]:
    """Whether all of Dagster's commands find the project's own home, with its settings."""
    what, home, stated = "DAGSTER_HOME", dagster_home(var), os.environ.get("DAGSTER_HOME")
    if stated and Path(stated).resolve() != home.resolve():
        return [Finding(what, f"it is {stated}; the runs of this project are in {home}", f"export DAGSTER_HOME={home}")]
    if not home.exists():
        return [Finding(f"{what}: the first run makes it")]
    settings = home / DAGSTER_SETTINGS.name
    if not settings.is_file() or settings.read_bytes() != DAGSTER_SETTINGS.read_bytes():
        return [Finding(what, f"{settings} is not what the project sets", "od-release ui, or a run, writes it anew")]
    return [Finding(what)]


def modes(var: Path) -> list[Finding]:
    """Whether the confidential folder is closed to everybody but its owner."""
    what, confidential = "modes of the confidential folder", var / "confidential"
    if not confidential.exists():
        return [Finding(f"{what}: there is none yet")]
    open_ones = [str(path.relative_to(var)) for path in (confidential, *confidential.rglob("*")) if _is_open(path)]
    if not open_ones:
        return [Finding(what)]
    return [
        Finding(
            what,
            f"others may use what is the operator's alone: {_some(sorted(open_ones))}",
            f"chmod -R u=rwX,go= {confidential}",
        )
    ]


def _is_open(path: Path) -> bool:
    try:
        state = path.lstat()
    except FileNotFoundError:  # a run that ends now
        return False
    if stat.S_ISLNK(state.st_mode):
        return False
    allowed = CONFIDENTIAL_FOLDER_MODE if stat.S_ISDIR(state.st_mode) else CONFIDENTIAL_FILE_MODE
    return bool(stat.S_IMODE(state.st_mode) & ~allowed)


def free_disk(var: Path, least: int = LEAST_FREE) -> list[Finding]:
    """Whether the disk of the project's folder has room."""
    there = next(folder for folder in (var, *var.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    what = f"free disk: {free / (1 << 30):.1f} GiB"
    if free >= least:
        return [Finding(what)]
    return [Finding(what, f"a release needs {least / (1 << 30):.1f} GiB", f"make room on the disk of {there}")]


def ledger(warehouse: Warehouse) -> list[Finding]:
    """Whether the ledger is whole, and no older than its head and the public certificates."""
    path, witnesses = warehouse.var / "ledger.sqlite", ledger_entries(warehouse.releases)
    if path.exists():
        return [found("ledger", lambda: f"{look_at_ledger(path, witnesses)} entries")]
    if not witnesses and not (warehouse.var / "confidential" / "ledger.head").exists():
        return [Finding("ledger: there is none yet, nothing was ever released here")]
    return [
        Finding(
            "ledger", "it is missing, and something was released here", "restore ledger.sqlite from its newest copy"
        )
    ]


def release_lock(var: Path, locks: Path = Path("/proc/locks")) -> list[Finding]:
    """Whether the lock that keeps runs apart is held by a process that does not go on.

    The lock goes with its process, so only one that is stopped holds it for nothing.
    """
    what = "release lock"
    for process in _holders(var / LOCK_NAME, locks):
        if _state(process) in "Tt":
            fault = f"process {process}, which holds it, is stopped: no other release begins"
            return [Finding(what, fault, f"let it go on (kill -CONT {process}), or end it")]
        return [Finding(f"{what}: a release is running now")]
    return [Finding(what)]


def _holders(lock: Path, locks: Path) -> Iterator[int]:
    """Processes that hold the lock on a file, as Linux lists them."""
    if not lock.exists() or not locks.exists():
        return
    inode = lock.stat().st_ino
    for line in locks.read_text(encoding="utf-8").splitlines():
        held = re.search(r": FLOCK .* (\d+) [0-9a-f]+:[0-9a-f]+:(\d+) ", line)
        if held and int(held[2]) == inode:
            yield int(held[1])


def _state(process: int) -> str:
    """How a process is: one letter of Linux; ? where it is gone, or of somebody else's."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except OSError:
        return "?"


def runs(var: Path) -> list[Finding]:
    """Whether Dagster takes runs for started, or starting, that no process is behind: they fill the queue of one."""
    what, home = "runs of dead processes", dagster_home(var)
    if not (home / DAGSTER_SETTINGS.name).is_file() or not (home / "history" / "runs.db").is_file():
        return [Finding(f"{what}: nothing was ever run")]
    with dg.DagsterInstance.from_config(str(home)) as instance:
        dead, starting = [run.run_id for run in dead_runs(instance)], starting_runs(instance)
    if dead:
        step = "od-release ui clears them away within a minute, and so does any run of a release"
        return [Finding(what, f"{len(dead)} are taken for started: {_some(dead)}", step)]
    if starting:
        minutes = PATIENCE.total_seconds() / 60
        return [Finding(f"{what}: none; {starting} starting now, and dead if for {minutes:.0f} minutes")]
    return [Finding(what)]


def code_location() -> list[Finding]:
    """Whether Dagster loads all that is declared, as its UI and its daemon do."""

    def load() -> None:
        from od_assets.definitions import defs

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of young parts of Dagster
            try:
                dg.Definitions.validate_loadable(defs())
            except OdError:
                raise
            except Exception as error:  # noqa: BLE001  # whatever code or YAML below defs raises; it sees no record
                raise OdError(
                    "OD-CODE-LOCATION",
                    f"{type(error).__name__}: {error}",
                    next_step="correct what stands below od_assets/defs; dg check defs shows all of it",
                ) from None

    return [found("code location", load)]


def _some(texts: list[str]) -> str:
    more = f" and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
    return ", ".join(texts[:_MOST_NAMED]) + more
