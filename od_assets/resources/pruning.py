"""Find what may be removed below ``var``: old logs of Dagster, counts of published releases, and what killed runs left.

Ledger, measurements, certificates, bundles, keys and counters are never among it.
"""

import gzip
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TypedDict

import dagster as dg

from od_assets.project import locate_dagster_home
from od_assets.resources.dead_runs import COMPARISON_TAG, RELEASE_TAG, SITE_TAG
from od_assets.resources.folders import Folders
from od_core.files.durable import PUBLIC_FILE_MODE, sync, write_durably

_UNCOMPRESSED_LOGS = 7
"""Number of the newest logs that stay as they are."""

_MAX_BYTES_WITHOUT_EVENTS = 1 << 16
"""Size in bytes that the log of a run exceeds only if it has events."""

_STAGED_PATTERNS = (
    *("trip_counts", "*_trip_counts", "counted_for", "group_sizes.parquet", "points.parquet", "flows.parquet"),
    *("estimate_*.parquet", "refined_*.parquet", "segments_*.parquet", "histograms.parquet", "boxes.parquet"),
)
"""Staged files that a run makes again from the records and the measurements."""

_LEFTOVER_PATTERNS = (
    *("**/.*.tmp", ".*.tmp.*", "releases/*/*/.*.staged", "releases/*/*/.*.replaced"),
    *("confidential/doctor-*", "confidential/*/*/r*/spill", "confidential/*/*/r*/counts-*"),
)
"""Files and folders that processes remove when they end, unless they are killed. A series may have any plain name."""

_PAGE_ASSET_PATTERNS = ("data_docs/*/*/r*/*/static", "confidential/*/*/r*/data_docs/*/static")
"""Fonts and styles of the sites that Great Expectations made for earlier versions of this software."""


def compress_logs(instance: dg.DagsterInstance, var: Path) -> None:
    """Compress Dagster's logs of successful runs of releases, except the newest ones, to a twentieth of their size.

    Dagster keeps the events of each run in a database of half a megabyte. Runs with their tags, materializations and
    results of checks are elsewhere, and stay. ``gunzip -f`` restores a log. A log that cannot be written now, because
    the disk is full or the UI reads it, is left for a later call.
    """
    logs = sorted(_find_logs_with_events(var), key=lambda log: log.stat().st_mtime)[:-_UNCOMPRESSED_LOGS]
    for log in _select_release_logs(instance, var, logs, [dg.DagsterRunStatus.SUCCESS]):
        with suppress(OSError, sqlite3.Error):
            _remove_events(log, kept=True)


def find_removable_paths(folders: Folders, instance: dg.DagsterInstance | None, days: int) -> dict[str, list[Path]]:
    """Return the paths that ``prune`` may remove, by a description of their kind.

    These are logs of finished runs, and what killed runs left, that are at least ``days`` old; counts and estimates of
    releases that were published at least ``days`` ago; and pages of Great Expectations of any age. While runs are
    active, some of them may be in use. Without an instance, no logs are listed.
    """
    var = folders.var
    latest = time.time() - days * 86_400  # seconds of a day
    all_logs = [*_find_logs_with_events(var), *_locate_run_logs(var).glob("*.db.gz")]
    release_logs = _select_release_logs(instance, var, all_logs, _FINISHED)
    confidential_folders = [
        folders.locate_confidential_folder(key)
        for key in folders.list_releases_older_than(days)
        if folders.locate_bundle(key).is_dir()
    ]
    leftovers = _glob_all([var], _LEFTOVER_PATTERNS)
    return {
        "logs of runs": [log for log in release_logs if log.stat().st_mtime <= latest],
        "pages of Great Expectations": [static.parent for static in _glob_all([var], _PAGE_ASSET_PATTERNS)],
        "counts and estimates": _glob_all(confidential_folders, _STAGED_PATTERNS),
        "left by killed runs": [
            path for path in leftovers if path.lstat().st_mtime <= latest and not _may_be_only_copy(path)
        ],
    }


def _glob_all(folders: Iterable[Path], patterns: Iterable[str]) -> list[Path]:
    """Return the paths in several folders that match any of some patterns."""
    return [path for folder in folders for pattern in patterns for path in folder.glob(pattern)]


class SizeOfKind(TypedDict):
    """The number and the bytes of the files and folders of one kind in a folder."""

    what: str
    folder: str
    number: int
    bytes: int


def sum_sizes_by_folder(found: Mapping[str, list[Path]], var: Path) -> list[SizeOfKind]:
    """Return one JSON-ready row for each kind of files and folder below ``var``: their number, and their bytes."""
    rows = dict[tuple[str, str], SizeOfKind]()
    for what, paths in found.items():
        for path in paths:
            folder = path.relative_to(var).parts[0] if path.parent != var else "."
            row = rows.setdefault((what, folder), {"what": what, "folder": folder, "number": 0, "bytes": 0})
            row["number"] += 1
            row["bytes"] += sum(file.lstat().st_size for file in (path, *path.rglob("*")) if not file.is_dir())
    return [*rows.values()]


def remove_path(path: Path) -> None:
    """Remove a file or folder of :func:`find_removable_paths` durably.

    Of an uncompressed log (``.db``), only the events are removed, because the UI may have opened it.
    """
    if path.suffix == ".db":
        _remove_events(path)
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    sync(path.parent)


_FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


def _locate_run_logs(var: Path) -> Path:
    """Return the folder of the logs of runs in Dagster's home below ``var``. Other logs are the team's own."""
    return locate_dagster_home(var) / "history" / "runs"


def _find_logs_with_events(var: Path) -> Iterator[Path]:
    """Return an iterator over the logs of runs that have events. Other runs have a database without events."""
    logs = (log for log in _locate_run_logs(var).glob("*.db") if log.stem != "index")
    return (log for log in logs if log.stat().st_size > _MAX_BYTES_WITHOUT_EVENTS)


def _select_release_logs(
    instance: dg.DagsterInstance | None, var: Path, logs: list[Path], statuses: list[dg.DagsterRunStatus]
) -> list[Path]:
    """Return the logs of runs of a release, a comparison or the site that have one of the given statuses.

    Return none without an instance, or if its home is not the one below ``var``, since the logs are not its own. A run
    has two logs if a compressed one was restored.
    """
    if instance is None or not logs or Path(instance.root_directory).resolve() != locate_dagster_home(var).resolve():
        return []
    logs_by_run: dict[str, list[Path]] = {}
    for log in logs:
        logs_by_run.setdefault(log.name.partition(".")[0], []).append(log)
    runs = instance.get_runs(dg.RunsFilter(run_ids=[*logs_by_run], statuses=statuses))
    release_runs = [run.run_id for run in runs if {RELEASE_TAG, COMPARISON_TAG, SITE_TAG} & run.tags.keys()]
    return [log for run in release_runs for log in logs_by_run[run]]


def _remove_events(log: Path, *, kept: bool = False) -> None:
    """Remove the events from a log, of which 20 KB remain; first write them to a compressed file if they are ``kept``.

    Without the file, a UI that has opened the log before would show an error.
    """
    with closing(sqlite3.connect(log, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # the whole log is in one file now
        if kept:
            content = gzip.compress(log.read_bytes(), mtime=0)
            write_durably(log.with_suffix(".db.gz"), lambda file: file.write_bytes(content), mode=PUBLIC_FILE_MODE)
        connection.execute("PRAGMA page_size = 512")
        connection.execute("DELETE FROM event_logs")
        connection.execute("VACUUM")
        connection.execute("PRAGMA journal_mode = WAL")


def _may_be_only_copy(path: Path) -> bool:
    """Return whether a path may be the only copy of a bundle: a folder such as ``.r1.staged`` without an ``r1``."""
    bundle = path.with_name(path.stem.removeprefix("."))
    return path.suffix in (".staged", ".replaced") and not bundle.exists()
