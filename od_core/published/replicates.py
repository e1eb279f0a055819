"""Write the replicates of a published release (:mod:`od_core.flows.estimation.replicates`). Only bundles are read."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import pyarrow as pa

from od_core.errors import OdError
from od_core.files.checked_file import write_checked
from od_core.files.durable import PUBLIC_FILE_MODE, make_folder, sync, write_durably
from od_core.files.parquet import write_batches
from od_core.flows.estimation.replicates import Replicates, refuse_no_replicates
from od_core.flows.publishing.omx import write_zone_matrices
from od_core.geography.flow_tree import FlowTree
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.certificate import certificate_digest
from od_core.published.derived import published_release

MOST_CELLS = 20_000_000
"""Largest number of cells of all matrices together that are written as OpenMatrix."""

MOST_COLUMNS = 10_000
"""Largest number of replicates in a file. Parquet files with more columns are slow to open."""

_GROUP_VALUES = 1 << 23
"""Approximate number of values of a row group: 64 MB."""

_COLUMN_BYTES = 1_000
"""Approximate size of a column without its values."""

_TEXT, _MATRICES, _TABLE = "README.md", "replicates.omx", "replicates.parquet"

_STAGED = ".replicates-"
"""Beginning of the name of the folder in which files are written."""


def write_replicates(releases: Path, key: ReleaseKey, number: int, folder: Path) -> list[str]:
    """Write the replicates of a published release, and return the names of the files.

    Files of earlier replicates are replaced, and no others. They stay until all new files are whole.

    Args:
        releases: folder of all public bundles.
        key: the release.
        number: number of replicates.
        folder: folder of the files.

    Raises:
        OdError: the release is not published, damaged or not of flows; the number is not from 1 to ``MOST_COLUMNS``;
            the disk has no room for the files; or as in :attr:`od_core.flows.release.Release.replicated`.
    """
    refuse_no_replicates(number)
    if number > MOST_COLUMNS:
        raise OdError(
            "OD-REPLICATES-NUMBER",
            f"{number:,} replicates are not written to one file",
            next_step=f"ask for at most {MOST_COLUMNS:,}; some hundred suffice for a 90 % interval",
        )
    source = published_release(releases, key)
    tree, replicates = source.release.tree, source.release.replicated
    cells = len(tree.origin.zones) * len(tree.destination.zones)
    has_matrices = cells * (number + 1) <= MOST_CELLS
    _refuse_without_room(folder, number, len(replicates.estimate) + (cells if has_matrices else 0))
    make_folder(folder)
    for left_behind in folder.glob(f"{_STAGED}*"):
        shutil.rmtree(left_behind, ignore_errors=True)
    with TemporaryDirectory(prefix=_STAGED, dir=folder) as name:
        staged, files = Path(name), [_TEXT, _TABLE]
        if has_matrices:
            names = chain(["estimate"], _names(number))
            tables = zip(names, chain([replicates.estimate], replicates.tables(number)), strict=True)
            _write(staged / _MATRICES, lambda file: write_zone_matrices(tree, replicates.ends, tables, file))
            files.insert(1, _MATRICES)
        _write(staged / _TABLE, lambda file: write_table(tree, replicates, number, file))
        about = _text(key, number, replicates.unseen, certificate_digest(source.certificate))
        _write(staged / _TEXT, lambda file: file.write(about.encode()))
        for old in (_TEXT, _MATRICES):
            (folder / old).unlink(missing_ok=True)
        for new in reversed(files):  # the text is the last, so that it never describes other tables
            (staged / new).replace(folder / new)
    sync(folder)
    return files


def _refuse_without_room(folder: Path, number: int, values: int) -> None:
    """Raise OdError if the disk of a folder has no room for so many values of each replicate and of the estimate."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free, each = shutil.disk_usage(there).free, 8 * values + _COLUMN_BYTES
    if each * (number + 1) > free:
        raise OdError(
            "OD-DISK-WRITE",
            f"{number:,} replicates need up to {each * (number + 1) / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free"
            f" for {folder}; nothing was written",
            next_step=f"free space on its disk, or ask for at most {max(free // each - 1, 0):,} replicates",
        )


def _write(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a public file durably, in one step."""
    write_durably(path, lambda place: write_checked(place, write, mode=PUBLIC_FILE_MODE), mode=PUBLIC_FILE_MODE)


def _names(number: int) -> Iterator[str]:
    return (f"replicate_{r}" for r in range(1, number + 1))


def write_table(tree: FlowTree, replicates: Replicates, number: int, file: BinaryIO) -> None:
    """Write the Parquet file, a few leaves in all replicates at a time."""
    code, real = pa.dictionary(pa.int32(), pa.large_string()), pa.float64()
    names = ["estimate", *_names(number)]
    schema = pa.schema([("origin", code), ("destination", code), *((name, real) for name in names)])

    def batches() -> Iterator[pa.RecordBatch]:
        for first, rows in replicates.blocks(number):
            here = slice(first, first + rows.shape[1])
            sides = zip((tree.origin, tree.destination), replicates.ends, strict=True)
            codes = (pa.DictionaryArray.from_arrays(zones[here], side.code_arrays[-1]) for side, zones in sides)
            trips = (pa.array(values) for values in (replicates.estimate[here], *rows))
            yield pa.RecordBatch.from_arrays([*codes, *trips], schema=schema)

    write_batches(
        file,
        schema,
        batches(),
        rows=max(1, _GROUP_VALUES // (number + 1)),
        compression="zstd",
        use_dictionary=["origin", "destination"],
        write_statistics=False,
    )


def _text(key: ReleaseKey, number: int, unseen: int, digest: str) -> str:
    """Return the text that describes the files."""
    less = f"""
Pairs of zones below an area that was not divided were not measured, and are in no replicate. At most {unseen:,} trips
are between them (90 % interval). So sums are too small by the trips of such pairs in them, and no replicate shows it.
"""
    return f"""# {number} {"replicate" if number == 1 else "replicates"} of {key}

The column or matrix `estimate` is the least-squares estimate of the flows between zones, from all noisy measurements of
this release. Each replicate is this estimate minus a simulated error: fresh noise of the same variances, estimated in
the same way. So the replicates spread around the estimate as the estimate spreads around the truth. All are real
numbers and may be negative. The certificate of the release has the SHA-256
{digest}.
{less if unseen else ""}
- `replicates.parquet`: columns `origin`, `destination` (zone codes), `estimate`, `replicate_1`, `replicate_2`, ...; one
  row for each measured pair of zones.
- `replicates.omx`, unless it would be large: the same as matrices.

To find how certain a statistic is, compute it from the estimate and from each replicate. Its standard deviation over
the replicates is its standard error; 1.645 of them to both sides of the estimate are a 90 % interval. Its mean over the
replicates minus its value for the estimate is its bias: state it, and do not use the interval if the bias is not small
against the standard error.

That holds for sums and other linear statistics, and for smooth functions of large sums: ratios, a gravity model that is
fitted to the totals of distance bands, an assignment of all flows to links. It does not hold for the number of pairs
with trips, entropy, maxima or the ranks of small flows. Sum negative values as they are: 0 in their place is biased.

Nothing was charged: the replicates follow from published values alone. Whoever makes replicates of this release gets
the same ones.
"""
