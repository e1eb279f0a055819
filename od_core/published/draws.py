"""Write tables that are drawn given a published release: one of them could be the true table. Only bundles are read."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from od_core.errors import OdError
from od_core.files.checked_file import write_checked
from od_core.files.durable import PUBLIC_FILE_MODE, make_folder, sync, write_durably
from od_core.files.parquet import write_batches
from od_core.flows.publishing.omx import write_draws
from od_core.geography.flow_tree import FlowTree, Nodes
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.certificate import certificate_digest
from od_core.published.derived import published_release

MOST_CELLS = 20_000_000
"""Largest number of cells of all matrices together that are written as OpenMatrix."""

MOST_ROWS = 2_000_000_000
"""Largest number of rows of all tables together, which need about 5 GB and half an hour of processor time."""

_TEXT, _MATRICES, _TABLES = "README.md", "draws.omx", "draws.parquet"

_STAGED = ".draws-"
"""Beginning of the name of the folder in which files are written."""


def write_release_draws(releases: Path, key: ReleaseKey, number: int, folder: Path) -> list[str]:
    """Draw tables given a published release, write them, and return the names of the files.

    Files of earlier draws are replaced, and no others. They stay until all new files are whole.

    Args:
        releases: folder of all public bundles.
        key: the release.
        number: number of tables.
        folder: folder of the files.

    Raises:
        OdError: the release is not published, damaged or not of flows; the tables together would have more than
            ``MOST_ROWS`` rows; or as in :meth:`od_core.flows.release.Release.draws`.
    """
    source = published_release(releases, key)
    _refuse_too_many(number, len(source.release.leaves))
    tree, draws = source.release.tree, source.release.drawn_leaves(number)
    make_folder(folder)
    for left_behind in folder.glob(f"{_STAGED}*"):
        shutil.rmtree(left_behind, ignore_errors=True)
    with TemporaryDirectory(prefix=_STAGED, dir=folder) as name:
        staged, files = Path(name), [_TEXT, _TABLES]
        if len(tree.origin.zones) * len(tree.destination.zones) * number <= MOST_CELLS:
            listed = list(draws)
            _write(staged / _MATRICES, lambda file: write_draws(tree, listed, file))
            draws = iter(listed)
            files.insert(1, _MATRICES)
        _write(staged / _TABLES, lambda file: write_batches(file, _schema(), _batches(tree, draws), compression="zstd"))
        about = _text(key, number, certificate_digest(source.certificate))
        _write(staged / _TEXT, lambda file: file.write(about.encode()))
        for old in (_TEXT, _MATRICES):
            (folder / old).unlink(missing_ok=True)
        for new in reversed(files):  # the text is the last, so that it never describes other tables
            (staged / new).replace(folder / new)
    sync(folder)
    return files


def _refuse_too_many(number: int, flows: int) -> None:
    """Raise OdError if so many tables would be too large. Each has about as many flows as the release."""
    if number * flows > MOST_ROWS:
        raise OdError(
            "OD-DRAWS-NUMBER",
            f"{number:,} draws of about {flows:,} flows each have {number * flows:,} rows; at most {MOST_ROWS:,} are"
            " written",
            next_step=f"ask for at most {MOST_ROWS // flows:,} draws; some hundred suffice for a 90 % interval",
        )


def _write(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a public file durably, in one step."""
    write_durably(path, lambda place: write_checked(place, write, mode=PUBLIC_FILE_MODE), mode=PUBLIC_FILE_MODE)


def _schema() -> pa.Schema:
    code = pa.dictionary(pa.int32(), pa.large_string())
    return pa.schema([("draw", pa.int32()), ("origin", code), ("destination", code), ("trips", pa.int64())])


def _batches(tree: FlowTree, draws: Iterable[Nodes]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each draw, numbered from 1."""
    for draw, leaves in enumerate(draws, start=1):
        sides = (tree.origin, leaves.origin), (tree.destination, leaves.destination)
        codes = (pa.DictionaryArray.from_arrays(zones, geography.code_arrays[-1]) for geography, zones in sides)
        number = np.full(len(leaves), draw, dtype=np.int32)
        yield pa.RecordBatch.from_arrays([pa.array(number), *codes, pa.array(leaves.trips)], schema=_schema())


def _text(key: ReleaseKey, number: int, digest: str) -> str:
    """Return the text that describes the files."""
    return f"""# {number} {"draw" if number == 1 else "draws"} given {key}

Each table of flows here could be the true one, given what was published in this release. The tables are random, but
they agree with all noisy measurements as well as the truth does, under the model of od-release. Trips are whole, and at
least 1; pairs of zones without trips are left out. The certificate of the release has the SHA-256
{digest}.

- `draws.parquet`: columns `draw` (from 1), `origin`, `destination` (zone codes) and `trips`, sorted by draw.
- `draws.omx`, unless it would be large: a matrix `draw_1`, `draw_2`, ... for each table.

To find how certain a statistic is, compute it from each table. Its 5 % and 95 % quantiles are a 90 % interval under the
model. It is too narrow for sums of many small flows, such as all trips from a zone. The published intervals of the
release need no model; where both exist, state those.

Nothing was charged: the tables follow from published values alone. Whoever draws tables given this release gets the
same ones.
"""
