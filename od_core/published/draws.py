"""Write tables that are drawn given a published release: one of them could be the true table. Only bundles are read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from od_core.files.checked_file import write_checked
from od_core.files.durable import make_folder, replace_folder, sync
from od_core.files.parquet import write_batches
from od_core.flows.publishing.derived_sources import published_source
from od_core.flows.publishing.omx import write_draws
from od_core.geography.flow_tree import FlowTree, Nodes
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.certificate import certificate_digest

MOST_CELLS = 20_000_000
"""Largest number of cells of all matrices together that are written as OpenMatrix."""

_FILE_MODE = 0o644


@dataclass(frozen=True)
class WrittenDraws:
    """Tables that were drawn and written.

    Attributes:
        key: the release.
        folder: folder of the files.
        files: names of the files.
    """

    key: ReleaseKey
    folder: Path
    files: tuple[str, ...]


def write_release_draws(releases: Path, key: ReleaseKey, number: int, folder: Path) -> WrittenDraws:
    """Draw tables given a published release, and write them. A folder of earlier draws is replaced.

    Args:
        releases: folder of all public bundles.
        key: the release.
        number: number of tables.
        folder: folder to write.

    Raises:
        OdError: the release is not published, damaged or not of flows; or as in
            :meth:`od_core.flows.release.Release.draws`.
    """
    source = published_source(releases, key)
    tree = source.release.tree
    draws: Iterable[Nodes] = source.release.drawn_leaves(number)
    make_folder(folder.parent)
    made, aside = (folder.with_name(f".{folder.name}.{os.getpid()}.{end}") for end in ("new", "old"))
    made.mkdir()
    try:
        if tree.origin.size(tree.origin.depth) * tree.destination.size(tree.destination.depth) * number <= MOST_CELLS:
            draws = list(draws)
            matrices = draws
            write_checked(made / "draws.omx", lambda file: write_draws(tree, matrices, file), mode=_FILE_MODE)
        batches = _batches(tree, draws)
        write_checked(
            made / "draws.parquet",
            lambda file: write_batches(file, _schema(), batches, compression="zstd"),
            mode=_FILE_MODE,
        )
        text = _text(key, number, certificate_digest(source.certificate))
        write_checked(made / "README.md", lambda file: file.write(text.encode()), mode=_FILE_MODE)
        if folder.exists():
            replace_folder(folder, made, aside)
        else:
            made.rename(folder)
            sync(folder.parent)
    finally:
        for left in (made, aside):
            shutil.rmtree(left, ignore_errors=True)
    return WrittenDraws(key, folder, tuple(sorted(file.name for file in folder.iterdir())))


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
    return f"""# {number} draws given {key}

Each of these {number} tables of flows could be the true one, given what was published in release {key}
(SHA-256 of its certificate: {digest}). The tables are random, but they agree with all noisy measurements as well as the
truth does, under the model of od-release. Trips are whole, and at least 1; pairs of zones without trips are left out.

- `draws.parquet`: columns `draw` (from 1), `origin`, `destination` (zone codes) and `trips`, sorted by draw.
- `draws.omx`, unless it would be large: a matrix `draw_1`, `draw_2`, ... for each table.

To find how certain a statistic is, compute it from each table. Its 5 % and 95 % quantiles are a 90 % interval under the
model. The published intervals of the release need no model; where both exist, state those.

Nothing was charged: the tables follow from published values alone. Whoever draws tables given this release gets the
same ones.
"""
