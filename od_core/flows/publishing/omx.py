"""Write OpenMatrix files (OMX 0.2, HDF5): the flows of one pair of levels as full matrices, for transport models."""

from __future__ import annotations

import re
import secrets
from typing import BinaryIO

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.publishing.flow_tables import LevelPair
from od_core.geography.flow_tree import FlowTree
from od_core.publication.columns import MOST_LISTED

MOST_CELLS = MOST_LISTED
"""Cells of the largest matrix that is written. Up to this number, every pair has its interval."""

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
"""Level names that are valid in a file name on every system."""

SIDES = ("origin", "destination")

_IN_MEMORY = {"driver": "H5FD_CORE", "driver_core_backing_store": 0}
"""HDF5 reads and writes no file on the disk. PyTables needs a different name for each file that is open."""


def cells(tree: FlowTree, origin_level: int, destination_level: int) -> int:
    """Return the number of cells of the matrix of a pair of levels."""
    return tree.origin.size(origin_level) * tree.destination.size(destination_level)


def matrix_names(tree: FlowTree) -> dict[tuple[int, int], str]:
    """Return the file name of each pair of levels, such as ``flows_state_state.omx``.

    If a name is not plain, or two files would have the same name, all names use the numbers of the levels, such as
    ``flows_3_3.omx``.
    """
    origins, destinations = tree.origin.level_names, tree.destination.level_names
    names = {
        (o_level, d_level): f"flows_{origin}_{destination}.omx"
        for o_level, origin in enumerate(origins)
        for d_level, destination in enumerate(destinations)
    }
    plain = all(_PLAIN.fullmatch(name) for name in (*origins, *destinations))
    if plain and len({name.casefold() for name in names.values()}) == len(names):
        return names
    return {pair: f"flows_{pair[0]}_{pair[1]}.omx" for pair in names}


def write_matrices(tree: FlowTree, pair: LevelPair, target: BinaryIO) -> None:
    """Write int64 matrices ``trips`` and, with intervals, ``lower`` and ``upper``; the same bytes at every call.

    Rows are origins and columns are destinations, in tree order. The lookups ``origin`` (attribute ``dim`` 0) and
    ``destination`` (``dim`` 1) hold the area codes as bytes of one width, in UTF-8.

    HDF5 makes the file in memory, because it closes a file on disk without an error even if the disk refused part of
    it. This takes the memory of one matrix and twice that of the compressed file.

    Raises:
        OdError: If the matrix has more than :data:`MOST_CELLS` cells.
    """
    if cells(tree, pair.origin_level, pair.destination_level) > MOST_CELLS:
        raise OdError(
            "OD-OMX-TOO-LARGE",
            f"the matrix of {tree.origin.level_names[pair.origin_level]} by"
            f" {tree.destination.level_names[pair.destination_level]} has more than {MOST_CELLS:,} cells",
            next_step="read the flows of this pair of levels from flows.parquet",
        )
    import openmatrix  # takes a fifth of a second, with PyTables

    sides = (tree.origin.codes[pair.origin_level], tree.destination.codes[pair.destination_level])
    row, column = (_numbers(codes, pair.flows[side]) for side, codes in zip(SIDES, sides, strict=True))
    with openmatrix.open_file(secrets.token_hex(8), "w", **_IN_MEMORY) as file:
        file.root._v_attrs["SHAPE"] = np.array([len(codes) for codes in sides], dtype=np.int32)
        for name in pair.flows.columns[2:]:
            matrix = np.zeros([len(codes) for codes in sides], dtype=np.int64)
            matrix[row, column] = pair.flows[name]
            file.create_carray(file.root.data, name, obj=matrix, track_times=False)
        for dimension, (side, codes) in enumerate(zip(SIDES, sides, strict=True)):
            entries = np.array([code.encode() for code in codes], dtype=np.bytes_)
            lookup = file.create_array(file.root.lookup, side, obj=entries, track_times=False)
            lookup.attrs["dim"] = np.int32(dimension)
        target.write(file.get_file_image())


def _numbers(codes: tuple[str, ...], named: pd.Series) -> NDArray[np.intp]:
    """Return the number of the area of each code."""
    return pd.Index(list(codes), dtype=object).get_indexer(pd.Index(named.astype(object)))
