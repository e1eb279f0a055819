"""Find faults of the installation, the ledger, the declarations and the inputs, for ``od-release doctor``.

Nothing is charged, drawn or stored. The ledger is asked in a transaction that is rolled back, whether it, or what is
stored of earlier releases, would refuse the release of a period.

The confidential records of a period are read and counted as in a release, from a copy that is deleted afterwards. The
findings are about records, so they are written to a file of mode 0600 in the confidential folder. The command shows the
location of that file and the public line with which a release would refuse the input; it holds no value of a record.
"""

import importlib.metadata
import json
import os
import platform
import re
import secrets
import shutil
import stat
import tomllib
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Self

import dagster as dg
import duckdb
import numpy as np
import pyarrow as pa
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from rich.text import Text
from sqlalchemy.exc import DBAPIError

from od_assets.assets.release import load_period
from od_assets.checks.expectations import choose_code_table, list_record_faults, make_code_tables
from od_assets.checks.release_checks import RECORDS_CHECK, RECORDS_REQUIREMENT
from od_assets.code_location import load_definitions, make_unloadable_error
from od_assets.components.project import refuse_broken_declarations, refuse_unloadable
from od_assets.failures import make_storage_error
from od_assets.project import (
    CHECKOUT,
    DAGSTER_SETTINGS,
    ENVIRONMENT,
    IS_CHECKOUT,
    REPLACED,
    find_current_project,
    find_environment_home,
    list_variable_files,
    locate_dagster_home,
    read_variable,
    read_variables,
)
from od_assets.resources.arrivals import check_arrival, hold_to_marker, list_record_files
from od_assets.resources.dead_runs import PATIENCE, find_dead_runs
from od_assets.resources.folders import Folders
from od_assets.resources.release_work import ReleaseWork
from od_assets.resources.warehouse import Warehouse
from od_assets.runs.period_status import choose_period_to_plan, choose_periods
from od_assets.sensors.broken_declarations import BROKEN, BROKEN_ROWS
from od_assets.series.invented import is_invented, list_declared_files
from od_assets.series.reading import list_comparison_names, list_series_names, read_comparison, read_declared_series
from od_assets.series.series import G, P, Series
from od_assets.terminal import WRONG, console, move_detail_to_file
from od_core import Breakdown, OdError, intopt
from od_core.errors import format_one_line, remove_address_secrets
from od_core.files import durable
from od_core.files.duckdb_session import make_parquet_sql, open_scratch_database
from od_core.geography.point_location import PointLocator
from od_core.kernels import make_cache_folder
from od_core.ledger.confidential import IDENTITY, LOCK_NAME, ConfidentialFolder
from od_core.ledger.staged_files import Counted, hold_to_input
from od_core.ledger.user_counters import Allowances, UserCounters
from od_core.noise.backends import BACKENDS, resolve_noise_source
from od_core.periods import Period
from od_core.privacy.accounting import format_rounded_up
from od_core.publication.database import read_every_row
from od_core.publication.read_back import read_certified_entries
from od_core.records.faults import make_zero_padding_sql
from od_core.records.load import refuse_absent_file
from od_core.records.open_file import add_file_to_error
from od_core.records.points import PointPlacer


@dataclass(frozen=True)
class Finding:
    """The result of one inspection, which holds nothing confidential: a fault in one line and its next step, if any."""

    what: str
    fault: str | None = None
    next_step: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the inspection found no fault."""
        return self.fault is None

    def facts(self) -> dict[str, object]:
        """Return the finding as a JSON-ready dictionary."""
        return {"what": self.what, "ok": self.ok, "fault": self.fault, "next_step": self.next_step}

    @classmethod
    def from_error(cls, what: str, error: OdError) -> Self:
        """Return the finding for an error. Any confidential detail goes to a file that only the owner can read."""
        move_detail_to_file(error)
        return cls(what, f"{error.code}: {error.message}", error.next_step)


def run_inspection(what: str, inspect: Callable[[], object]) -> Finding:
    """Call ``inspect`` and return the finding on ``what``.

    An OdError or OSError that it raises is the fault. A text that it returns is appended to ``what``; any other result
    is ignored.
    """
    try:
        result = inspect()
    except OdError as error:
        return Finding.from_error(what, error)
    except OSError as error:
        return Finding.from_error(what, durable.make_system_error(error))
    return Finding(f"{what}: {result}" if isinstance(result, str) else what)


def print_findings(findings: list[Finding]) -> None:
    """Print one line per finding: its state, the inspected part and, for a fault, the next step; then the counts."""
    for finding in findings:
        if finding.fault is None:
            console.print(f"ok     {finding.what}", soft_wrap=True)
        else:
            line = f" {finding.what}: {finding.fault} [next: {finding.next_step}]"
            console.print(Text("WRONG", style=WRONG), line, soft_wrap=True)
    faults = sum(finding.fault is not None for finding in findings)
    checks = f"{len(findings)} check{'s' * (len(findings) != 1)}"
    count = f"{faults} of {checks} found a fault." if faults else f"{checks}, all fine."
    console.print(count, style=WRONG if faults else "")


def inspect_budget(series: Series[P, G], period: str) -> Finding:
    """Return a finding on the budget of a release: whether the ledger would refuse its charge."""
    warehouse = Warehouse.from_project(series.project)
    work = ReleaseWork(warehouse, series, series.key(period))

    def try_charge() -> str:
        geography = series.read_geography()
        if not warehouse.ledger_chain.exists():
            series.plan(geography, period)
            return "nothing is spent yet"
        plan = work.make_plan(geography)
        in_parts = series.bands is not None  # their files are elsewhere
        lost_steps = [] if in_parts or not work.is_drawn else work.measurements.list_lost_steps(plan.charged_steps)
        with warehouse.ledger.trial():
            warehouse.ledger.declare(series.domain)
            warehouse.ledger.reserve(work.key, series.domain.name, plan)
            for step_number in lost_steps:
                warehouse.ledger.start_draw(work.key, step_number)
        if lost_steps:
            return f"lost draws are charged again, which the cap allows: {len(lost_steps)}"
        return "it is charged already" if warehouse.ledger.list_level_kinds(work.key) else "the cap allows it"

    return run_inspection(f"budget of {work.key}", try_charge)


class InspectedFolder(ConfidentialFolder):
    """The confidential folder as an inspection sees it: a missing key is not made."""

    def read_or_make_key(self) -> bytes:
        """Return the key; if there is none yet, 32 zero bytes. Raises OdError if the key is lost."""
        self.refuse_lost_key()
        return super().read_or_make_key() if (self.path / "hmac.key").exists() else bytes(32)


class InspectedCounters(UserCounters):
    """Confidential: counters of users that an inspection reads once, and does not store."""

    @cached_property
    def _allowed(self) -> Allowances:
        """How many trips of each user may still be counted."""
        return super().compute_allowances()

    def compute_allowances(self) -> Allowances:
        """Return how many trips of each user may still be counted, which is computed once."""
        return self._allowed

    def store_or_compare(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Compare the counters with the stored ones if noise was drawn for the release; otherwise do nothing.

        Raises OdError as the method of the base class does.
        """
        if self.ledger.is_drawn(self.key):
            super().store_or_compare(batches)


LEAST_FREE = 2 << 30
"""Least free disk space in bytes. Records are copied while they are read, and DuckDB writes temporary files there."""

_PIN = re.compile(r"^[^\s#]+==\S+", re.MULTILINE)
"""Pattern of a package and its version in constraints.txt, without the hashes that follow."""

_EXTRAS = ("bundle", "checks", "dagster")
"""Extras that declared releases need."""


def inspect_python_version() -> Finding:
    """Return the finding on whether the project supports this version of Python."""
    version = platform.python_version()
    required, _ = _read_requirements()
    subject = f"Python {version}"
    if required.contains(version, prereleases=True):
        return Finding(subject)
    return Finding(subject, f"the project needs {required}", "install again with a supported Python version")


def inspect_packages() -> list[Finding]:
    """Return findings on the installed packages: that required ones are there and, in a checkout, pinned versions."""
    _, required = _read_requirements()
    findings = [_inspect_versions(f"{len(required)} packages that od-release requires", required)]
    pins = CHECKOUT / "constraints.txt"
    if pins.is_file():
        pinned = [Requirement(pin) for pin in _PIN.findall(pins.read_text(encoding="utf-8"))]
        # Packages for development need not be installed.
        installed = [requirement for requirement in pinned if _find_installed_version(requirement) is not None]
        findings.append(_inspect_versions(f"{len(installed)} packages that constraints.txt pins", installed))
    return findings


def _read_requirements() -> tuple[SpecifierSet, list[Requirement]]:
    """Return the required versions of Python, and the required packages with the extras of :data:`_EXTRAS`.

    A checkout states them in ``pyproject.toml``, and an installed package in its metadata.
    """
    if IS_CHECKOUT:
        project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras = project.get("optional-dependencies", {})
        lines = list(project["dependencies"])
        for extra in _EXTRAS:
            lines += extras.get(extra, ())
        python = project["requires-python"]
    else:
        lines = importlib.metadata.requires("od-release") or []
        python = importlib.metadata.metadata("od-release")["Requires-Python"]

    def is_needed(requirement: Requirement) -> bool:
        marker = requirement.marker
        applies = marker is None or any(marker.evaluate({"extra": extra}) for extra in _EXTRAS)
        return applies and requirement.name != "od-release"

    return SpecifierSet(python), list(filter(is_needed, map(Requirement, lines)))


def _inspect_versions(what: str, required: list[Requirement]) -> Finding:
    """Return a finding on packages, which are called ``what``: whether the required versions are installed."""
    unmet = []
    for requirement in required:
        installed = _find_installed_version(requirement)
        if installed is None or not requirement.specifier.contains(installed, prereleases=True):
            unmet.append(f"{requirement.name} {installed or 'is missing'} (needed: {requirement.specifier})")
    if not unmet:
        return Finding(what)
    step = "install od-release again (in a checkout: remove .venv, then make install)"
    return Finding(what, _format_first_five(unmet), step)


def _find_installed_version(requirement: Requirement) -> str | None:
    """Return the installed version of a package; None if it is not installed."""
    try:
        return importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return None


def inspect_kernels(folder: Path | None) -> Finding:
    """Return the finding on compiled kernels: that a folder has some, and that one of them gives the right numbers.

    The folder is None if no folder is writable.
    """
    subject = "compiled kernels"
    if folder is None:
        fault = "there is no folder to keep them, so every process compiles them again"
        return Finding(subject, fault, "make the environment or ~/.cache writable for this user only")
    if not any(folder.rglob("*.nbi")):
        return Finding(subject, "none are compiled yet; the first release compiles them", "python -m od_core.warmup")
    if intopt(np.array([3, -1]), 2).tolist() != [2, 0]:  # 3 - 1 = 2 and max(-1 + 1, 0) = 0: the unique optimum
        return Finding(subject, "their machine code computes wrong numbers", f"remove {folder}, then make install")
    return Finding(subject)


def inspect_noise_backends() -> list[Finding]:
    """Return a finding on each noise backend: that it can draw. The noise is discarded, and nothing is charged."""
    return [run_inspection(f"noise backend {name}", partial(_refuse_broken_backend, name)) for name in BACKENDS]


def _refuse_broken_backend(name: str) -> None:
    """Raise OdError if a noise backend cannot draw eight integers."""
    try:
        noise = resolve_noise_source(name).draw(Fraction(1), 0, 0, 8)
    except Exception as error:  # noqa: BLE001  # any exception of a library; no record is involved
        fault = f"it cannot draw ({type(error).__name__})"
    else:
        if noise.dtype == np.int64 and noise.shape == (8,):
            return
        fault = f"it draws {noise.dtype} of shape {noise.shape}"
    raise OdError("OD-NOISE-BROKEN", fault, next_step="remove .venv, then make install")


def inspect_dagster_home(var: Path) -> Finding:
    """Return the finding on ``DAGSTER_HOME``: that it is the project's home, whose settings are the project's.

    The home of another Dagster project is no fault, because its settings then apply.
    """
    subject = "DAGSTER_HOME"
    home = locate_dagster_home(var)
    stated_folder = os.environ.get("DAGSTER_HOME")
    if find_environment_home() not in (None, home.resolve()):
        return Finding(f"{subject}: {stated_folder}, the home of another Dagster project, whose settings apply")
    if stated_folder and Path(stated_folder).resolve() != home.resolve():
        fault = f"it is {stated_folder}, but the runs of this project are in {home}"
        return Finding(subject, fault, f"export DAGSTER_HOME={home}")
    if not home.exists():
        return Finding(f"{subject}: the first run creates it")
    settings = home / DAGSTER_SETTINGS.name
    if not settings.is_file() or settings.read_bytes() != DAGSTER_SETTINGS.read_bytes():
        fault = f"{settings} differs from the project's settings"
        return Finding(subject, fault, "od-release ui, or a run, writes it again")
    return Finding(subject)


def inspect_modes(var: Path) -> Finding:
    """Return the finding on the confidential folder: that only its owner can access the files in it."""
    subject, confidential = "modes of the confidential folder", var / "confidential"
    if not confidential.exists():
        return Finding(f"{subject}: the folder does not exist yet")
    paths = (confidential, *confidential.rglob("*"))
    open_paths = sorted(str(path.relative_to(var)) for path in paths if _is_open_to_others(path))
    if not open_paths:
        return Finding(subject)
    fault = f"other users have access to files that only the operator may use: {_format_first_five(open_paths)}"
    return Finding(subject, fault, f"chmod -R u=rwX,go= {confidential}")


def _is_open_to_others(path: Path) -> bool:
    """Return whether the mode of a file or folder allows more than confidential ones may; False for links."""
    try:
        state = path.lstat()
    except FileNotFoundError:  # removed by a run in the meantime
        return False
    if stat.S_ISLNK(state.st_mode):
        return False
    allowed = durable.CONFIDENTIAL_FOLDER_MODE if stat.S_ISDIR(state.st_mode) else durable.CONFIDENTIAL_FILE_MODE
    return bool(stat.S_IMODE(state.st_mode) & ~allowed)


def report_place_of_releases() -> Finding:
    """Return a finding that states where releases are written, and where variables that decide it are set."""
    project = find_current_project()
    variables_of_file = read_variables(project.folder)
    statements = []
    for name in ("OD_VAR", "OD_LEDGER", ENVIRONMENT):
        if read_variable(name, project.folder):
            source = ".env" if name in variables_of_file else "the environment"
            statements.append(f"{name} is stated in {source}")
    return Finding(f"releases are written to {project.var}: {' and '.join(statements) or 'no variable is stated'}")


def inspect_environment(folders: Folders) -> Finding:
    """Return a finding that states the environment and the ledger; a ledger of another environment is a fault."""
    file, server = folders.ledger_place
    location = file if server is None else remove_address_secrets(server)

    def describe_ledger() -> str:
        folders.hold_to_environment()
        return f"the ledger is {location}"

    return run_inspection(f"environment {folders.environment or 'without a name (OD_ENVIRONMENT)'}", describe_ledger)


def report_variables() -> Finding:
    """Return a finding that states which ``.env`` files were read, and which variables they replace."""
    files = list_variable_files(find_current_project().folder)
    if not files:
        return Finding("variables: there is no .env")
    read = f"variables: read from {' and '.join(map(str, files))}"
    if not REPLACED:
        return Finding(read)
    return Finding(f"{read}. The environment has other values of {', '.join(sorted(REPLACED))}: those of .env are used")


def report_records(series: Series[P, G]) -> Finding:
    """Return a finding that states where a series' records are, how many files are invented, and its automation."""

    def describe_source() -> str:
        source = f"asset {series.trips.asset}, else " if series.trips.asset else ""
        if series.stored_table is not None:
            return f"{source}{series.locate_records_source('')}; automation {series.automation}"
        files = list_declared_files(series)
        invented = sum(map(is_invented, files))
        location = format_one_line(remove_address_secrets(series.trips.files))
        return f"{source}{location}, {len(files)} found, {invented} of them invented; automation {series.automation}"

    return run_inspection(f"records of {series.stated_name}", describe_source)


def inspect_free_disk(var: Path) -> Finding:
    """Return the finding on the disk of the ``var`` folder: that :data:`LEAST_FREE` bytes of it are free."""
    existing = next(folder for folder in (var, *var.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    subject = f"free disk: {free / (1 << 30):.1f} GiB"
    if free >= LEAST_FREE:
        return Finding(subject)
    fault = f"a release needs {LEAST_FREE / (1 << 30):.1f} GiB"
    return Finding(subject, fault, f"free space on the disk of {existing}")


def inspect_ledger(warehouse: Warehouse) -> Finding:
    """Return the finding on the ledger: that it is unchanged, and has all entries that other files name.

    These are its head file and the public certificates.
    """
    if warehouse.ledger_chain.exists():
        return run_inspection("ledger", lambda: f"{warehouse.verify_ledger()} entries")
    if warehouse.is_new and not read_certified_entries(warehouse.releases):
        return Finding("ledger: it does not exist yet, because nothing was released here")
    fault = "it is missing, although something was released here"
    return Finding("ledger", fault, "restore ledger.sqlite from its newest backup")


def inspect_fingerprint_key(warehouse: Warehouse) -> Finding:
    """Return the finding on the key of fingerprints: that it is not lost, and how many releases used another key."""

    def count_other_keys() -> str:
        if warehouse.is_new:
            return "nothing was released yet"
        confidential = InspectedFolder(warehouse.confidential.path, warehouse.has_drawn)
        key_name = confidential.compute_key_name()
        identities = confidential.path.glob(f"*/*/*/{IDENTITY}")
        others = sum(json.loads(path.read_bytes()).get("key") != key_name for path in identities)
        return f"releases that began with another one: {others}"

    return run_inspection("key of fingerprints", count_other_keys)


def inspect_release_lock(var: Path) -> Finding:
    """Return the finding on the release lock: that no suspended process has it. Only one run at a time can have it."""
    subject = "release lock"
    lock = var / LOCK_NAME
    refusal = durable.find_suspended_lock_error(lock)
    if refusal is not None:
        return Finding.from_error(subject, refusal)
    return Finding(f"{subject}: a release is running now" if durable.is_locked(lock) else subject)


def inspect_runs(var: Path) -> Finding:
    """Return the finding on Dagster's runs: that each run that is listed as starting or started has a process.

    A run without a process blocks all others, because the queue allows one run at a time.
    """
    subject = "runs of dead processes"
    home = find_environment_home() or locate_dagster_home(var)
    if not (home / DAGSTER_SETTINGS.name).is_file() or not (home / "history" / "runs.db").is_file():
        return Finding(f"{subject}: nothing has run yet")
    if not durable.can_write(home / "history"):  # Dagster writes to its storage whenever it opens it
        return Finding(f"{subject}: not looked for; {durable.describe_rights(home / 'history')}")
    try:
        with dg.DagsterInstance.from_config(str(home)) as instance:
            dead = [run.run_id for run in find_dead_runs(instance)]
            starting = instance.get_runs_count(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTING]))
    except DBAPIError as error:
        return Finding.from_error(subject, make_storage_error(error, home))
    if dead:
        step = "start od-release ui, which clears them within a minute, or run any release"
        return Finding(subject, f"{len(dead)} are listed as started: {_format_first_five(dead)}", step)
    if starting:
        minutes = PATIENCE.total_seconds() / 60
        return Finding(f"{subject}: none; {starting} starting now, taken for dead after {minutes:.0f} minutes")
    return Finding(subject)


def inspect_code_location() -> Finding:
    """Return the finding on the code location: that Dagster loads all declarations, as its UI and its daemon do."""

    def load() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about beta and preview parts of Dagster
            try:
                definitions = load_definitions()
                if any(sensor.name.startswith((BROKEN, BROKEN_ROWS)) for sensor in definitions.sensors or []):
                    refuse_broken_declarations()
                dg.Definitions.validate_loadable(definitions)
            except OdError:
                raise
            except Exception as error:  # noqa: BLE001  # any exception of the project's code; no record is involved
                raise make_unloadable_error(error) from None

    return run_inspection("code location", load)


def _format_first_five(texts: list[str]) -> str:
    """Return up to five texts, separated by commas, and the number of the others."""
    return ", ".join(texts[:5]) + (f" and {len(texts) - 5} more" if len(texts) > 5 else "")


_LOST_ZEROS = "_that_lost_its_zeros"
"""Ending of the name of the fault of codes that lost their leading zeros."""


@dataclass
class _InputFaults:
    """Confidential: what a release would find wrong in an input, in the order in which it would find it.

    Attributes:
        refusals: errors with which the release would refuse the input.
        record_lines: for each kind of faulty record, a line with its number, and lines with the first such records.
    """

    refusals: list[OdError] = field(default_factory=list)
    record_lines: list[str] = field(default_factory=list)


def inspect_records_of_period(series: Series[P, G], period: str) -> list[Finding]:
    """Return findings on the file of a period: whether it exists, is complete, and would be accepted by a release.

    For a unit of a year, the first finding is on the counters of users with which the records would be counted.
    """
    key, warehouse = series.key(period), Warehouse.from_project(series.project)
    work = ReleaseWork(warehouse, series, key)
    subject = f"input of {key}"
    counters = _open_counters(work)
    findings = []
    if counters is not None:
        findings.append(run_inspection(f"counters of users for {key}", counters.compute_allowances))
        if not findings[0].ok:
            counters = None
    waits = check_arrival(series, Period(period)).waits
    if waits is not None:
        return [*findings, run_inspection(subject, partial(_refuse_waiting, series, period, waits))]
    if not series.records_are_here:
        return [*findings, Finding(f"{subject}: only Spark reads it, so it is not checked here")]
    try:
        copy_folder = warehouse.confidential.make_subfolder(f"doctor-{secrets.token_hex(6)}")
    except OSError as error:
        no_copy = Finding.from_error(f"{subject}: no copy of it can be written", durable.make_system_error(error))
        return [*findings, no_copy]
    faults = _find_input_faults(work, counters, copy_folder)
    return [*findings, _make_input_finding(work, subject, faults)]


def _open_counters(work: ReleaseWork[P, G]) -> InspectedCounters | None:
    """Confidential: return counters of users that store nothing; None without a ledger or for other units."""
    if not work.warehouse.ledger_chain.exists() or work.counters is None:
        return None
    folder = InspectedFolder(work.warehouse.confidential.path)
    return InspectedCounters(**{**vars(work.counters), "confidential": folder})


def _make_input_finding(work: ReleaseWork[P, G], subject: str, faults: _InputFaults) -> Finding:
    """Return the public finding on an input, after its faults are written to a file that only the owner can read."""
    refusals = faults.refusals
    file = work.series.locate_records_file(work.key.period)
    details = [f"{work.key}, {file}: would {'' if refusals else 'not '}be refused"]
    for error in refusals:
        details += [text for text in (str(error), error.confidential_detail) if text]
    location = work.warehouse.confidential.write_detail(
        "\n".join([*dict.fromkeys(details), "", *faults.record_lines, ""])
    )
    if not refusals:
        return Finding(f"{subject}: the input would not be refused ({location})")
    first = refusals[0]
    fault = f"the input would be refused. {first.code}: {first.message}"
    return Finding(subject, fault, f"{first.next_step}; {location}")


def _refuse_waiting(series: Series[P, G], period: str, waits: str) -> None:
    """Raise OdError for a file that has not arrived: the error of a run if a run would refuse it, or else ``waits``."""
    source = series.locate_records_file(period)
    for part in list_record_files(source):
        refuse_absent_file(part)
        hold_to_marker(part, series.locate_marker_file(period))
    raise OdError("OD-FILE-INCOMPLETE", waits, next_step="wait until the file is complete")


def _find_input_faults(work: ReleaseWork[P, G], counters: InspectedCounters | None, copy_folder: Path) -> _InputFaults:
    """Confidential: return the faults that a release would find in an input.

    The first error of reading or counting ends the search, as it ends a release. The input is copied to
    ``copy_folder``, which is then removed.
    """
    faults = _InputFaults()
    try:
        _check_input(work, counters, copy_folder / "records.parquet", faults)
    except OdError as error:
        faults.refusals.append(error)
    except Exception:  # noqa: BLE001  # any text may hold a confidential value, so none may leave
        message, detail = "the input cannot be read or counted", traceback.format_exc()
        step = "correct the input"
        faults.refusals.append(OdError("OD-CONFIDENTIAL-ERROR", message, next_step=step, confidential_detail=detail))
    finally:
        shutil.rmtree(copy_folder, ignore_errors=True)
    return faults


def _check_input(
    work: ReleaseWork[P, G], counters: InspectedCounters | None, records: Path, faults: _InputFaults
) -> None:
    """Copy, check and count an input as a release does. Add faulty records to ``faults``; raise all other errors.

    ``records`` is the path of the copy.
    """
    series = work.series
    period = work.key.period
    has_ledger = work.warehouse.ledger_chain.exists()
    is_drawn = has_ledger and work.is_drawn  # without a ledger, the second property would create one
    if is_drawn:
        work.hold_to_reading()
    geography = series.read_geography()
    files = list_record_files(series.locate_records_file(period))
    load_period(series, period, records, geography, [(file, None) for file in files])
    _check_records(series, geography, records, faults)
    try:
        counted = _count_records(work, geography, counters, records)
    except OdError as error:
        raise add_file_to_error(error, series.locate_records_file(period).name, series.columns) from None
    if is_drawn and counters is not None:
        counters.hold_to_input(counted)
    elif is_drawn and work.counters is None:
        hold_to_input(InspectedFolder(work.warehouse.confidential.path), work.key, counted, drawn=True)
    elif has_ledger and not is_drawn:
        work.warehouse.refuse_renamed(series, work.key, counted)


def _check_records(series: Series[P, G], geography: G, records: Path, faults: _InputFaults) -> None:
    """Confidential: add to ``faults`` each kind of faulty record, with an error if such records are too frequent."""
    code_tables = make_code_tables(*series.list_allowed_codes(geography), series.breakdowns)
    with open_scratch_database(records.parent, records) as connection:
        for name, codes in code_tables.items():
            connection.register(name, pa.table({"code": pa.array(codes, pa.string())}))
        file = make_parquet_sql(records, numbered=True)
        rows = connection.sql(f"SELECT file_row_number + 1 AS row, * EXCLUDE (file_row_number) FROM {file}")  # noqa: S608  # checked name
        for name, condition, faulty, among in _count_faults(rows, code_tables, series.breakdowns):
            faults.record_lines.append(f"{name}: {faulty} of {among} records ({faulty / among if among else 0:.4%})")
            if faulty:
                examples = rows.filter(condition).order("row").limit(5).df()
                faults.record_lines += [f"  {line}" for line in examples.to_csv(index=False).splitlines()]
            # The threshold of flows is of trips, not of records. Codes with lost zeros are among the unlisted ones.
            has_threshold = "trips" not in rows.columns and not name.endswith(_LOST_ZEROS)
            if has_threshold and faulty > series.fault_threshold * among:
                share = float(series.fault_threshold)
                above = f"{name}: {faulty} of {among} records, above the threshold {share:.3%}"
                required = RECORDS_REQUIREMENT.removesuffix(".")
                message = f"{series.name}/raw_trips: check {RECORDS_CHECK} failed. It requires: {required}"
                step = "correct the input or the declaration"
                error = OdError("OD-CHECK-FAILED", message, next_step=step, confidential_detail=above)  # as a run does
                faults.refusals.append(error)


def _count_faults(
    rows: duckdb.DuckDBPyRelation, listed: Mapping[str, Sequence[str]], breakdowns: Sequence[Breakdown]
) -> Iterator[tuple[str, str, int, int]]:
    """Confidential: count the records with each kind of fault, including codes that lost their leading zeros.

    Yield for each kind its name, the SQL condition of a faulty record, the number of faulty records, and the number of
    records that could be faulty. The first column of the rows is their number. ``listed`` has the allowed codes by the
    name of their SQL table.
    """
    for name, fault in list_record_faults(rows.columns[1:], breakdowns).items():
        faulty, among = rows.aggregate(f"count(*) FILTER (WHERE {fault.is_faulty}), count({fault.among})").fetchall()[0]
        yield name, fault.is_faulty, faulty, among
        if name.endswith("_unlisted") and faulty:
            table = choose_code_table(fault.column)
            lost_zeros = f"{fault.is_faulty} AND {make_zero_padding_sql(fault.column, listed[table])} IN (FROM {table})"
            ((without_zeros,),) = rows.aggregate(f"count(*) FILTER (WHERE {lost_zeros})").fetchall()
            yield f"{fault.column}{_LOST_ZEROS}", lost_zeros, without_zeros, faulty


def _count_records(work: ReleaseWork[P, G], geography: G, counters: UserCounters | None, records: Path) -> Counted:
    """Return the counts of a file of records, counted as a release would. Raises OdError for unacceptable records."""
    series, period = work.series, work.key.period
    confidential = InspectedFolder(work.warehouse.confidential.path)
    counted: Counted = series.count(records, geography, period, confidential, counters)
    series.acceptance.refuse_empty(counted.total, series.unit)
    return counted


def inspect_project(name: str | None = None, period: str | None = None) -> list[Finding]:
    """Return the findings on the installation, on one or all declarations, and on what a run of a period would meet.

    Raises OdError if there is no such declaration, or it has no such period.
    """
    series_names, comparisons = list_series_names(), list_comparison_names()
    if name in comparisons:
        series_names, comparisons = (), (name,)
    elif name is not None:
        if name not in series_names:
            read_declared_series(name)  # raises an error that lists the known names
        series_names, comparisons = (name,), ()

    findings, code_location = inspect_installation(), inspect_code_location()
    for series_name in series_names:
        findings += inspect_declaration(series_name, is_loaded=code_location.ok)
    for comparison in comparisons:
        findings.append(run_inspection(f"comparison {comparison}", partial(read_comparison, comparison)))
    findings.append(code_location)
    if period is not None:
        findings += _inspect_inputs(series_names, period)
    return findings


def inspect_installation() -> list[Finding]:
    """Return the findings that do not depend on a declaration."""
    var = find_current_project().var
    return [
        report_place_of_releases(),
        inspect_environment(Warehouse()),
        report_variables(),
        inspect_python_version(),
        *inspect_packages(),
        inspect_kernels(make_cache_folder()),
        *inspect_noise_backends(),
        inspect_dagster_home(var),
        inspect_modes(var),
        inspect_free_disk(var),
        inspect_ledger(Warehouse()),
        inspect_fingerprint_key(Warehouse()),
        inspect_release_lock(var),
        run_inspection("release database", partial(read_every_row, Warehouse().database)),
        inspect_runs(var),
    ]


def inspect_declaration(name: str, *, is_loaded: bool = False) -> list[Finding]:
    """Return the findings of a declaration, from its YAML to its Dagster definitions.

    If the YAML or the geography has a fault, the parts that depend on it are not inspected. The definitions are not
    built again if ``is_loaded`` says that Dagster has loaded those of all declarations.
    """
    try:
        series = read_declared_series(name)
    except OdError as error:
        return [Finding.from_error(f"declaration {name}", error)]
    declared = Finding(f"declaration {name}, data set {series.domain.name}: {series.columns.row}")
    findings = [declared, report_records(series)]
    try:
        geography = series.read_geography()
    except OdError as error:
        findings.append(Finding.from_error(f"geography of {name}", error))
    else:
        counts = ", ".join(f"{number} {level}" for level, number in geography.area_counts.items())
        plan = run_inspection(f"plan of {name}", partial(_refuse_or_describe_charge, series, geography))
        findings += [Finding(f"geography of {name}: {counts}"), plan]
        if series.columns.has_points:
            findings.append(run_inspection(f"boundaries of {name}", partial(_describe_boundaries, series, geography)))
    definitions = f"assets and schedules of {name}"
    loaded = Finding(definitions) if is_loaded else run_inspection(definitions, partial(refuse_unloadable, series))
    return [*findings, loaded]


def _describe_boundaries(series: Series[P, G], geography: G) -> str:
    """Return a sentence on the gaps between zones, which may be lakes. Cells of a grid have none, and are not searched.

    Raises OdError if the boundaries cannot be used to locate points.
    """
    placer = PointPlacer(series.columns, (), *series.split_sides(geography))
    return "; ".join(
        _describe_gaps(locator) if isinstance(locator, PointLocator) else "cells of a grid, without gaps"
        for locator in dict.fromkeys(placer.locators.values())
    )


def _describe_gaps(locator: PointLocator) -> str:
    """Return the zones without a boundary, and the gaps between the others, in words."""
    without = _format_first_five(list(map(repr, locator.codes_without_boundary)))
    exceptions = f"zones without a boundary, and so without points: {without}; " if without else ""
    gaps = locator.find_gaps()
    if not gaps.number:
        return f"{exceptions}no gaps between zones"
    beside = _format_first_five(list(map(repr, gaps.beside_largest)))
    numbers = f"{gaps.number}, of which slivers: {gaps.slivers}, together {gaps.share:.2g} of the zones' area"
    return f"{exceptions}gaps between zones: {numbers}; the largest is beside {beside}"


def _refuse_or_describe_charge(series: Series[P, G], geography: G) -> str:
    """Return the planned charge and the cap in words. Raises OdError if the plan or the ledger would refuse a run."""
    plan = series.plan(geography, choose_period_to_plan(series, None))
    Warehouse.from_project(series.project).hold_to_declared(series.domain)
    usage = series.domain.cap.compute_usage(plan.charges)
    return f"{usage.measure} {format_rounded_up(usage.used)} of a cap of {format_rounded_up(usage.cap)}"


def _inspect_inputs(names: tuple[str, ...], period: str) -> list[Finding]:
    """Return findings on budgets and inputs of a period. Raises OdError if none of the named series has the period."""
    inputs: list[Finding] = []
    absent: OdError | None = None
    for name in names:
        try:
            series = read_declared_series(name)
        except OdError:
            continue  # another finding reports the fault of its declaration
        try:
            choose_periods(series, period, every=False)
        except OdError as error:
            absent = error
            continue
        inputs += [inspect_budget(series, period), *inspect_records_of_period(series, period)]
    if not inputs and absent is not None:
        raise absent
    return inputs
