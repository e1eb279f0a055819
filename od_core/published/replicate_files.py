"""Write the replicates of a published release (:mod:`od_core.flows.estimation.replicates`). Only bundles are read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import pyarrow as pa

from od_core.errors import OdError
from od_core.files.durable import PUBLIC_FILE_MODE, make_folder, sync, write_checked
from od_core.files.table_writers import write_batches
from od_core.flows.estimation.replicates import Replicates
from od_core.flows.publishing.omx import open_matrices
from od_core.geography.flow_tree import FlowTree
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.templates import render_template
from od_core.published.derived import read_published_release

MAX_CELLS = 20_000_000
"""Largest number of cells of all matrices together that are written as OpenMatrix."""

MAX_COLUMNS = 10_000
"""Largest number of replicates in a file. Parquet files with more columns are slow to open."""

_VALUES_PER_ROW_GROUP = 1 << 23  # approximate number of values of a row group: 64 MB

_COLUMN_BYTES = 1_000  # approximate size of a column without its values

_TEXT, _MATRICES, _TABLE = "README.md", "replicates.omx", "replicates.parquet"

_STAGING_PREFIX = ".replicates-"  # beginning of the name of the folder in which files are written


def write_replicates(releases: Path, key: ReleaseKey, number: int, folder: Path) -> list[str]:
    """Write ``number`` replicates of a published release to a folder, and return the names of the files.

    Only files of earlier replicates are replaced. They stay until all new files are complete. Only one process at a
    time may write to a folder, because each begins by removing what an interrupted one has left there. Matrices are
    written only if all together have at most ``MAX_CELLS`` cells. ``releases`` is the folder of all bundles.

    Raises OdError if the release is not published, damaged or not of flows; the number is not from 1 to
    ``MAX_COLUMNS``, or the disk has no room for it; or as in :attr:`od_core.flows.release.Release.replicated`.
    """
    source = read_published_release(releases, key)
    tree, replicates = source.release.tree, source.release.replicated
    cells = len(tree.origin.zones) * len(tree.destination.zones)
    has_matrices = cells * (number + 1) <= MAX_CELLS
    _refuse_too_many(folder, number, len(replicates.estimate) + (cells if has_matrices else 0))
    make_folder(folder)
    for left_behind in folder.glob(f"{_STAGING_PREFIX}*"):
        shutil.rmtree(left_behind, ignore_errors=True)
    write = partial(write_checked, mode=PUBLIC_FILE_MODE)
    files = [_TEXT, _MATRICES, _TABLE] if has_matrices else [_TEXT, _TABLE]
    with TemporaryDirectory(prefix=_STAGING_PREFIX, dir=folder) as name:
        staged = Path(name)
        if has_matrices:
            write(staged / _MATRICES, lambda file: _write_matrices(tree, replicates, number, file))
        write(staged / _TABLE, lambda file: write_replicate_table(tree, replicates, number, file))
        facts = {"release": key, "certificate": source.certificate, "unseen": replicates.unseen}
        about = render_template("replicates.md", number=number, **facts)
        write(staged / _TEXT, lambda file: file.write(about.encode()))
        for old in (_TEXT, _MATRICES):  # the new files may have no matrices
            (folder / old).unlink(missing_ok=True)
        for new in reversed(files):  # the text is the last, so that it never describes other tables
            (staged / new).replace(folder / new)
    sync(folder)
    return files


def _refuse_too_many(folder: Path, number: int, values: int) -> None:
    """Raise OdError if a file cannot have ``number`` replicates, or the disk has no room for their values.

    ``values`` is the number of values of each replicate in all files. The estimate takes the same room.
    """
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(existing).free
    bytes_of_column = 8 * values + _COLUMN_BYTES
    max_number = min(max(free // bytes_of_column - 1, 0), MAX_COLUMNS)  # beside the estimate
    if not 1 <= number <= max_number:
        raise OdError(
            "OD-REPLICATES-NUMBER",
            f"{number:,} replicates cannot be written: they need up to {bytes_of_column * (number + 1) / 1e9:,.1f} GB,"
            f" {free / 1e9:,.1f} GB are free for {folder}, and a file has at most {MAX_COLUMNS:,}",
            next_step=f"ask for at most {max_number:,}, or free space on the disk",
        )


def _list_column_names(number: int) -> list[str]:
    """Return the names of the columns, or matrices, of the estimate and of some replicates of it."""
    return ["estimate", *(f"replicate_{replicate}" for replicate in range(1, number + 1))]


def _write_matrices(tree: FlowTree, replicates: Replicates, number: int, file: BinaryIO) -> None:
    """Write the OpenMatrix file, with a matrix for the estimate and for each of ``number`` replicates."""
    tables = chain([replicates.estimate], replicates.tables(number))
    with open_matrices(tree, (tree.origin.depth, tree.destination.depth), file) as add:
        for name, trips in zip(_list_column_names(number), tables, strict=True):
            add(name, replicates.ends, trips)


def write_replicate_table(tree: FlowTree, replicates: Replicates, number: int, file: BinaryIO) -> None:
    """Write the Parquet file with the estimate and ``number`` replicates, one row per leaf pair.

    Only a block of leaf pairs is in memory at a time, with all of its replicates.
    """
    code_type = pa.dictionary(pa.int32(), pa.large_string())
    trip_columns = [(name, pa.float64()) for name in _list_column_names(number)]
    schema = pa.schema([("origin", code_type), ("destination", code_type), *trip_columns])

    def iterate_batches() -> Iterator[pa.RecordBatch]:
        """Yield the rows of each block of leaf pairs."""
        for first, rows in replicates.blocks(number):
            leaves = slice(first, first + rows.shape[1])
            origins, destinations = replicates.ends
            yield pa.RecordBatch.from_arrays(
                [
                    pa.DictionaryArray.from_arrays(origins[leaves], tree.origin.code_arrays[-1]),
                    pa.DictionaryArray.from_arrays(destinations[leaves], tree.destination.code_arrays[-1]),
                    pa.array(replicates.estimate[leaves]),
                    *(pa.array(values) for values in rows),
                ],
                schema=schema,
            )

    write_batches(
        file,
        schema,
        iterate_batches(),
        rows=max(1, _VALUES_PER_ROW_GROUP // (number + 1)),
        compression="zstd",
        use_dictionary=["origin", "destination"],
        write_statistics=False,
    )
