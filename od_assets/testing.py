"""Test the declarations of a project in its own continuous integration, without records, and with nothing charged."""

import glob
import os
import shutil
import uuid
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import dagster as dg
import pandas as pd

from od_assets.code_location import VALIDATION, load_definitions, make_unloadable_error
from od_assets.components.project import OdWarehouse, refuse_broken_declarations
from od_assets.components.series import build_series_definitions
from od_assets.failures import describe_failures
from od_assets.project import INSTEAD, load_variables
from od_assets.resources.warehouse import Warehouse
from od_assets.runs.jobs import execute_job
from od_assets.series.about import About
from od_assets.series.invented import invent_records, list_declared_files
from od_assets.series.partitions import SINGLE
from od_assets.series.reading import list_series_names, read_declared_series
from od_assets.series.series import G, P, Periods, Series
from od_core import OdError, Plan
from od_core.evaluation.forecast import RepeatableNoise
from od_core.files.durable import make_folder, write_durably
from od_core.noise.backends import BACKENDS, DRY_RUN
from od_core.periods import Period

_TITLE = "Dry run of invented records, without a guarantee"


def check_project(root: Path | None = None) -> dict[str, Plan]:
    """Load all declarations of a project as ``dg check defs`` does, and return the plan of the first period by series.

    Args:
        root: folder of the project; by default, the one on which commands work.

    Raises:
        OdError: a declaration, its upstream asset or a definition of the project is wrong; a public list is missing or
            wrong; or a plan is refused, for example because it exceeds the cap.
    """
    with _change_environment(root, **{VALIDATION: "1"}):
        refuse_broken_declarations()
        definitions = load_definitions()
        try:
            dg.Definitions.validate_loadable(definitions)
        except dg.DagsterError as error:
            raise make_unloadable_error(error) from None
        declared = map(read_declared_series, list_series_names())
        return {series.name: series.plan(series.read_geography(), series.periods.first.text) for series in declared}


def dry_run(
    name: str,
    folder: Path,
    period: str | None = None,
    records: pd.DataFrame | Path | None = None,
    root: Path | None = None,
) -> Any:
    """Run a declared series for one period on invented records, and return the release.

    All steps of the release job run with the declared plan, in a Dagster instance in memory, and with public noise: the
    release has no guarantee, and its certificate says so. Of the declaration, only the noise, and where and when
    records arrive, are replaced. Parts on Spark run on threads. The public bundle is in ``folder/dry_run/releases``.
    Ledger and confidential files, which are in a folder of mode 0700 beside it, are removed at the end.

    Args:
        name: name of the series.
        folder: folder of the test, such as ``tmp_path`` of pytest.
        period: period to release, which need not have ended; by default, the first.
        records: a file in the declared format, or a table with the declared columns; by default, a made-up one.
        root: folder of the project, as in :func:`check_project`.

    Raises:
        OdError: the declaration or the period is wrong; a step or a check fails; no records can be made up; or the file
            is one of the declared ones. A copy of a declared file is not recognized.
    """
    var = folder.resolve() / "dry_run"
    with _change_environment(root):
        declared = read_declared_series(name)
        if var == declared.project.var.resolve():
            message = f"{var} is where the project releases"
            raise _make_testing_error(message, "name another folder, such as tmp_path of pytest")
        if isinstance(records, Path) and _list_inodes([records]) & _find_declared_files():
            raise _make_testing_error("the records are those of a declared series", "invent records, or give none")
    make_folder(folder)
    with (
        TemporaryDirectory(prefix=".dry_run-", dir=folder) as work,
        _change_environment(root),
        patch.dict(INSTEAD, OD_VAR=str(Path(work).resolve()), OD_LEDGER=""),  # whatever the project's .env states
        patch.dict(BACKENDS, {DRY_RUN: RepeatableNoise}),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # about beta and preview parts of Dagster
        chosen = Period(period) if period else declared.periods.first
        replace(declared.periods, first=chosen, last=None)  # raises OdError if it is no period of the series
        series = _make_dry_series(declared, chosen, records)
        _run_job(series, chosen)
        bundle = var / "releases" / series.key(chosen.text).folder
        shutil.rmtree(bundle, ignore_errors=True)  # of an earlier dry run
        shutil.copytree(Warehouse().releases, var / "releases", dirs_exist_ok=True)
        return series.kind.open(bundle)


def _write_records(declared: Series[P, G], period: Period, records: pd.DataFrame | None) -> Path:
    """Write records to a confidential file that the declared reader reads, and return its path.

    If ``records`` is None, they are made up. Raises OdError if no such file can be made.
    """
    container = declared.record_format.container
    if container == "lines" or (container == "json" and records is None):
        message = f"no file of reader {declared.trips.reader!r} is made up"
        raise _make_testing_error(message, "give the path of a file")
    table = invent_records(declared, period) if records is None else records
    ending = "csv" if container == "csv" else "parquet"
    file = Warehouse().confidential.make_subfolder("given") / f"{declared.name}-{period}.{ending}"
    write_durably(file, partial(table.to_csv if ending == "csv" else table.to_parquet, index=False))
    return file


def _make_dry_series(declared: Series[P, G], period: Period, records: pd.DataFrame | Path | None) -> Series[P, G]:
    """Return the declared series for one period, with public noise and with records of a dry run.

    Its title says that it is a dry run. Schedules, arrivals, deadlines and Spark are left out. Raises OdError if no
    records can be made up.
    """
    trips: dict[str, object] = {"asset": None, "outside_period": declared.record_format.outside_period}
    if isinstance(records, Path):
        trips["files"] = str(records.resolve())
    else:
        trips["files"] = str(_write_records(declared, period, records))
        trips |= {"delimiter": None, "encoding": None, "table": None}
    about = declared.about or About(title="")
    changes = {
        "trips": declared.trips.model_copy(update=trips),
        "noise": DRY_RUN,
        "about": about.model_copy(update={"title": _TITLE}),
        "stated_periods": Periods(first=period.text, every=SINGLE),  # Dagster refuses a partition that has not ended
        "stated_engine": "threads",
    }
    left_out = dict.fromkeys(("schedule", "arrivals", "freshness", "spark"))
    return declared.model_copy(update=changes | left_out).with_project(declared.project)


def _run_job(series: Series[P, G], period: Period) -> None:
    """Release a period of a series in a Dagster instance in memory. Raises OdError if a step or a check fails."""
    definitions = dg.Definitions.merge(build_series_definitions(series), OdWarehouse().build_defs(None))
    with dg.DagsterInstance.ephemeral() as instance:
        job = definitions.resolve_job_def(f"{series.name}_release")
        result = execute_job(job, instance, str(uuid.uuid4()), period.text)
    if not result.success:
        message = "; ".join(describe_failures(result.all_events))
        raise _make_testing_error(message, "correct the declaration or the records")


def _find_declared_files() -> set[tuple[int, int]]:
    """Return the (device, inode) of each file of records of all declared series, whatever its period."""
    found = set[tuple[int, int]]()
    for name in list_series_names():
        with suppress(OdError):  # check_project reports a broken declaration
            found |= _list_inodes(list_declared_files(read_declared_series(name)))
    return found


def _list_inodes(paths: Iterable[Path]) -> set[tuple[int, int]]:
    """Return the (device, inode) of each file at some places or below them. It is the same for all links to a file."""
    identities = set()
    for path_or_folder in paths:
        below = (path_or_folder / name for name in glob.glob("**/*", root_dir=path_or_folder, recursive=True))  # noqa: PTH207
        for path in (path_or_folder, *below):
            if path.is_file():
                state = path.stat()
                identities.add((state.st_dev, state.st_ino))
    return identities


@contextmanager
def _change_environment(root: Path | None, **changed: str) -> Iterator[None]:
    """Set variables of the environment in this context: the given ones, and those in the project's ``.env``.

    ``root`` is the folder of the project; None for the current one.
    """
    with patch.dict(os.environ, changed if root is None else changed | {"OD_PROJECT": str(root.resolve())}):
        load_variables()
        yield


def _make_testing_error(message: str, step: str) -> OdError:
    """Return the error for a dry run that cannot be made or that failed."""
    return OdError("OD-TESTING", message, next_step=step)
