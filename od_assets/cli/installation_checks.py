"""Check that an installation can make releases, without changing a file. Public functions return findings."""

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
from typing import Any

import dagster as dg
import numpy as np
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from sqlalchemy.exc import DBAPIError

from od_assets.cli.findings import Finding, found
from od_assets.code_location import BROKEN, load_definitions, unloadable
from od_assets.components.declarations import refuse_broken_declarations
from od_assets.instance import storage_fault
from od_assets.project import CHECKOUT, DAGSTER_SETTINGS, dagster_home, stated_home
from od_assets.resources.dead_runs import PATIENCE, dead_runs, starting_runs
from od_assets.resources.warehouse import Warehouse
from od_core.errors import OdError
from od_core.files.durable import CONFIDENTIAL_FILE_MODE, CONFIDENTIAL_FOLDER_MODE, may_write, rights
from od_core.flows.projection.chebyshev import intopt
from od_core.ledger.integrity import look_at_ledger
from od_core.ledger.lock import LOCK_NAME
from od_core.noise.sources import BACKENDS, noise_named
from od_core.publication.bundle import ledger_entries

LEAST_FREE = 2 << 30
"""Least free disk space in bytes. Records are copied while they are read, and DuckDB writes temporary files there."""

_PIN = re.compile(r"^[^\s#]+==\S+", re.MULTILINE)
"""Pattern of a package and its version in constraints.txt, without the hashes that follow."""

_EXTRAS = ("bundle", "checks", "dagster")
"""Extras that declared releases need."""

_CELLS = 8
"""Number of noise values in a test draw."""

_MOST_NAMED = 5
"""Maximum number of items named in one line."""


def python_version(checkout: Path = CHECKOUT) -> list[Finding]:
    """Check that the project supports this version of Python."""
    required = SpecifierSet(_project(checkout)["requires-python"])
    this = platform.python_version()
    if required.contains(this, prereleases=True):
        return [Finding(f"Python {this}")]
    return [Finding(f"Python {this}", f"the project needs {required}", "install again with a supported Python version")]


def packages(checkout: Path = CHECKOUT) -> list[Finding]:
    """Check that the installed packages are those that this one requires and, in a checkout, pins."""
    required = [Requirement(line) for line in _project(checkout)["dependencies"]]
    findings = [_versions(f"{len(required)} packages that od-release requires", required)]
    pins = checkout / "constraints.txt"
    if pins.is_file():
        pinned = [Requirement(pin) for pin in _PIN.findall(pins.read_text(encoding="utf-8"))]
        # Packages for development need not be installed.
        installed = [one for one in pinned if _installed(one) is not None]
        findings.append(_versions(f"{len(installed)} packages that constraints.txt pins", installed))
    return findings


def _project(checkout: Path) -> dict[str, Any]:
    """Return the required Python and packages, as a checkout's ``pyproject.toml`` or the installed package states."""
    file = checkout / "pyproject.toml"
    if file.is_file():
        project: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        extras = project.get("optional-dependencies", {})
        needed = [line for extra in _EXTRAS for line in extras.get(extra, ()) if not line.startswith("od-release[")]
        return project | {"dependencies": [*project["dependencies"], *needed]}
    lines = [Requirement(line) for line in importlib.metadata.requires("od-release") or []]
    needed = [
        str(line)
        for line in lines
        if line.name != "od-release"
        and (line.marker is None or any(line.marker.evaluate({"extra": extra}) for extra in _EXTRAS))
    ]
    python = importlib.metadata.metadata("od-release")["Requires-Python"]
    return {"requires-python": python, "dependencies": needed}


def _versions(what: str, required: list[Requirement]) -> Finding:
    others = [
        f"{one.name} {_installed(one) or 'is missing'} (needed: {one.specifier})"
        for one in required
        if not one.specifier.contains(_installed(one) or "", prereleases=True)
    ]
    if not others:
        return Finding(what)
    return Finding(what, _some(others), "install od-release again (in a checkout: remove .venv, then make install)")


def _installed(requirement: Requirement) -> str | None:
    try:
        return importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return None


def compiled_kernels(folder: Path | None) -> list[Finding]:
    """Check that compiled kernels are cached, and that one kernel gives the right numbers.

    Args:
        folder: cache folder of the current source files; None if no folder is writable.
    """
    what = "compiled kernels"
    if folder is None:
        return [
            Finding(
                what,
                "there is no folder to keep them, so every process compiles them again",
                "make the environment or ~/.cache writable for this user only",
            )
        ]
    if not any(folder.rglob("*.nbi")):
        return [Finding(what, "none are compiled yet; the first release compiles them", "python -m od_core.warmup")]
    if intopt(np.array([3, -1]), 2).tolist() != [2, 0]:  # 3 - 1 = 2 and max(-1 + 1, 0) = 0: the unique optimum
        return [Finding(what, "their machine code computes wrong numbers", f"remove {folder}, then make install")]
    return [Finding(what)]


def noise_backends() -> list[Finding]:
    """Check that every noise backend can draw. The noise is discarded, and nothing is charged."""
    return [found(f"noise backend {name}", partial(_draw, name)) for name in BACKENDS]


def _draw(name: str) -> None:
    try:
        noise = noise_named(name).draw(Fraction(1), 0, 0, _CELLS)
    except Exception as error:  # noqa: BLE001  # any exception of a library; no record is involved
        fault = f"it cannot draw ({type(error).__name__})"
    else:
        if noise.dtype == np.int64 and noise.shape == (_CELLS,):
            return
        fault = f"it draws {noise.dtype} of shape {noise.shape}"
    raise OdError("OD-NOISE-BROKEN", fault, next_step="remove .venv, then make install")


def home_of_dagster(var: Path) -> list[Finding]:
    """Check that ``DAGSTER_HOME`` is the project's Dagster home, and that this folder has the project's settings."""
    what, home, stated = "DAGSTER_HOME", dagster_home(var), os.environ.get("DAGSTER_HOME")
    if stated_home() not in (None, home.resolve()):
        return [Finding(f"{what}: {stated}, the home of another Dagster project, whose settings apply")]
    if stated and Path(stated).resolve() != home.resolve():
        return [
            Finding(what, f"it is {stated}, but the runs of this project are in {home}", f"export DAGSTER_HOME={home}")
        ]
    if not home.exists():
        return [Finding(f"{what}: the first run creates it")]
    settings = home / DAGSTER_SETTINGS.name
    if not settings.is_file() or settings.read_bytes() != DAGSTER_SETTINGS.read_bytes():
        return [
            Finding(what, f"{settings} differs from the project's settings", "od-release ui, or a run, writes it again")
        ]
    return [Finding(what)]


def modes(var: Path) -> list[Finding]:
    """Check that only the owner can access the confidential folder."""
    what, confidential = "modes of the confidential folder", var / "confidential"
    if not confidential.exists():
        return [Finding(f"{what}: the folder does not exist yet")]
    open_ones = [str(path.relative_to(var)) for path in (confidential, *confidential.rglob("*")) if _is_open(path)]
    if not open_ones:
        return [Finding(what)]
    return [
        Finding(
            what,
            f"other users have access to files that only the operator may use: {_some(sorted(open_ones))}",
            f"chmod -R u=rwX,go= {confidential}",
        )
    ]


def _is_open(path: Path) -> bool:
    try:
        state = path.lstat()
    except FileNotFoundError:  # removed by a run in the meantime
        return False
    if stat.S_ISLNK(state.st_mode):
        return False
    allowed = CONFIDENTIAL_FOLDER_MODE if stat.S_ISDIR(state.st_mode) else CONFIDENTIAL_FILE_MODE
    return bool(stat.S_IMODE(state.st_mode) & ~allowed)


def free_disk(var: Path, least: int = LEAST_FREE) -> list[Finding]:
    """Check that the disk of the ``var`` folder has at least ``least`` bytes of free space."""
    there = next(folder for folder in (var, *var.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    what = f"free disk: {free / (1 << 30):.1f} GiB"
    if free >= least:
        return [Finding(what)]
    return [Finding(what, f"a release needs {least / (1 << 30):.1f} GiB", f"free space on the disk of {there}")]


def ledger(warehouse: Warehouse) -> list[Finding]:
    """Check that the ledger is unchanged, and has all entries that its head file and the public certificates name."""
    path, server = warehouse.ledger_place
    witnesses = ledger_entries(warehouse.releases)
    if server or path.exists():
        return [found("ledger", lambda: f"{look_at_ledger(path, witnesses, server)} entries")]
    if not witnesses and not (warehouse.var / "confidential" / "ledger.head").exists():
        return [Finding("ledger: it does not exist yet, because nothing was released here")]
    return [
        Finding(
            "ledger",
            "it is missing, although something was released here",
            "restore ledger.sqlite from its newest backup",
        )
    ]


def release_lock(var: Path, locks: Path = Path("/proc/locks")) -> list[Finding]:
    """Check that no suspended process has the lock that only one run at a time can have.

    The system releases the lock when its process ends, so only a suspended process can block other runs for ever.
    """
    what = "release lock"
    for process in _holders(var / LOCK_NAME, locks):
        if _state(process) in "Tt":
            fault = f"process {process} holds it but is suspended, so no other release can begin"
            return [Finding(what, fault, f"resume the process (kill -CONT {process}), or end it")]
        return [Finding(f"{what}: a release is running now")]
    return [Finding(what)]


def _holders(lock: Path, locks: Path) -> Iterator[int]:
    """Yield the ids of the processes that have locked a file, from the list of locks of Linux."""
    if not lock.exists() or not locks.exists():
        return
    inode = lock.stat().st_ino
    for line in locks.read_text(encoding="utf-8").splitlines():
        held = re.search(r": FLOCK .* (\d+) [0-9a-f]+:[0-9a-f]+:(\d+) ", line)
        if held and int(held[2]) == inode:
            yield int(held[1])


def _state(process: int) -> str:
    """Return the state of a process as the letter that Linux uses; ``?`` if the state cannot be read."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except OSError:
        return "?"


def runs(var: Path) -> list[Finding]:
    """Check that every run that Dagster lists as starting or started has a process.

    A run without a process blocks all others, because the queue allows one run at a time.
    """
    what, home = "runs of dead processes", stated_home() or dagster_home(var)
    if not (home / DAGSTER_SETTINGS.name).is_file() or not (home / "history" / "runs.db").is_file():
        return [Finding(f"{what}: nothing has run yet")]
    if not may_write(home / "history"):  # Dagster writes to its storage whenever it opens it
        return [Finding(f"{what}: not looked for; {rights(home / 'history')}")]
    try:
        with dg.DagsterInstance.from_config(str(home)) as instance:
            dead, starting = [run.run_id for run in dead_runs(instance)], starting_runs(instance)
    except DBAPIError as error:
        return [Finding.of_error(what, storage_fault(error, home))]
    if dead:
        step = "start od-release ui, which clears them within a minute, or run any release"
        return [Finding(what, f"{len(dead)} are listed as started: {_some(dead)}", step)]
    if starting:
        minutes = PATIENCE.total_seconds() / 60
        return [Finding(f"{what}: none; {starting} starting now, taken for dead after {minutes:.0f} minutes")]
    return [Finding(what)]


def code_location() -> list[Finding]:
    """Check that Dagster loads all declarations, as its UI and its daemon do."""

    def load() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about beta and preview parts of Dagster
            try:
                definitions = load_definitions()
                if any(sensor.name == BROKEN for sensor in definitions.sensors or []):
                    refuse_broken_declarations()
                dg.Definitions.validate_loadable(definitions)
            except OdError:
                raise
            except Exception as error:  # noqa: BLE001  # any exception of the project's code; no record is involved
                raise unloadable(error) from None

    return [found("code location", load)]


def _some(texts: list[str]) -> str:
    more = f" and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
    return ", ".join(texts[:_MOST_NAMED]) + more
