"""Write OpenMatrix files (OMX 0.2, HDF5): the flows of one pair of levels as full matrices, for transport models."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import EllipsisType
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.extras import require
from od_core.flows.publishing.flow_tables import LevelPair
from od_core.geography.codes import MAX_CODE_LENGTH, find_positions
from od_core.geography.flow_tree import FlowTree
from od_core.geography.places import compute_level_distances
from od_core.publication.columns import DISTANCE, MOST_LISTED
from od_core.records.segments import Breakdown

MAX_MATRIX_CELLS = MOST_LISTED
"""Largest number of cells of a matrix that a bundle has. Up to this number, every cell has an interval."""

SIDES = ("origin", "destination")

Cells = tuple[NDArray[np.int32], NDArray[np.int32]]
"""Rows and columns of cells of a matrix; shape (cells,) each."""

_MAX_ZONE_NUMBER = np.iinfo(np.int32).max
"""Largest number of a zone, which programs for transport models hold in 32 bits."""

_IN_MEMORY = {"driver": "H5FD_CORE", "driver_core_backing_store": 0}
"""Options with which HDF5 creates a file in memory only. PyTables still needs a different name for each open file."""


def list_category_pairs(pair: LevelPair) -> list[tuple[Breakdown, LevelPair]]:
    """Return each breakdown that has matrices in the file of a pair of levels, with the flows by its categories.

    These are the breakdowns whose matrices together have at most :data:`MAX_MATRIX_CELLS` cells.
    """
    pairs = []
    for breakdown in pair.tables.breakdowns:
        (by_category,) = (other for other in pair.tables.segments[breakdown.name] if other.levels == pair.levels)
        if by_category.cells <= MAX_MATRIX_CELLS:
            pairs.append((breakdown, by_category))
    return pairs


def name_matrix(breakdown: Breakdown, position: int) -> str:
    """Return the name of the matrix of a category by its position, such as ``mode_1`` for the first one of ``mode``.

    A category can be any text. Readers accept the name of a breakdown and a number, and no other matrix has this name.
    """
    return f"{breakdown.name}_{position + 1}"


def write_matrices(pair: LevelPair, target: BinaryIO) -> None:
    """Write the flows at a pair of levels to ``target`` as an OpenMatrix file. Every call writes the same bytes.

    There is a matrix of trips, matrices of the ends of intervals and of distances if the flows have them, and for each
    of :func:`list_category_pairs` a matrix of the trips in each category.

    The file is created in memory, because HDF5 reports no error if a file on disk could not be written completely. This
    requires memory for one matrix and for two copies of the file.
    """
    tree = pair.tables.tree
    cells = _find_matrix_cells(pair, pair.flows)
    with open_matrices(tree, pair.levels, target, for_tools=pair.tables.for_tools) as add:
        number_columns = pair.flows.columns.drop([*SIDES, DISTANCE.name], errors="ignore")
        for name in number_columns:
            add(name, cells, pair.flows[name])
        if DISTANCE.name in pair.flows:  # also of pairs that are not listed
            origin, destination = (numbers.ravel() for numbers in np.indices(pair.shape, dtype=np.int32))
            add(DISTANCE.name, ..., compute_level_distances(tree, pair.levels, origin, destination).reshape(pair.shape))
        for breakdown, by_category in list_category_pairs(pair):
            for position, category in enumerate(breakdown.categories):
                flows = by_category.flows[by_category.flows[breakdown.name] == category]
                matrix = add(name_matrix(breakdown, position), _find_matrix_cells(pair, flows), flows["trips"])
                matrix.attrs["breakdown"], matrix.attrs["category"] = breakdown.name, category


@contextmanager
def open_matrices(
    tree: FlowTree, levels: tuple[int, int], target: BinaryIO, *, for_tools: bool = True
) -> Iterator[Callable[..., Any]]:
    """Yield a function that adds a matrix to a new OpenMatrix file; at the end of the context, write the file.

    The function takes the name of the matrix, its cells (or ``...`` for all) and their values, and returns the array in
    the file. Other cells are 0. Every call writes the same bytes.

    Args:
        tree: flow tree whose areas are the rows and columns.
        levels: numbers of the levels of the rows (origins) and of the columns (destinations).
        target: file that is written.
        for_tools: whether to add what other tools look for: the attributes ``DIM`` and ``NA``, and the numbers of
            zones. Bundles before :data:`od_core.flows.publishing.flow_tables.FIRST_FOR_TOOLS` have none of these.

    Raises:
        OdError: if the packages of the extra ``bundle`` are not installed.
    """
    require("bundle")
    import openmatrix  # the import takes a fifth of a second

    sides = [(tree.origin, levels[0]), (tree.destination, levels[1])]
    shape = [geography.size(level) for geography, level in sides]
    with openmatrix.open_file(secrets.token_hex(8), "w", **_IN_MEMORY) as file:
        file.root._v_attrs["SHAPE"] = np.array(shape, dtype=np.int32)

        def add_matrix(name: str, cells: Cells | EllipsisType, values: pd.Series | NDArray[np.number]) -> Any:
            """Add a matrix with these values in these cells and 0 elsewhere, and return its array in the file."""
            matrix = np.zeros(shape, dtype=np.asarray(values).dtype)
            matrix[cells] = values
            node = file.create_carray(file.root.data, name, obj=matrix, track_times=False)
            if for_tools:  # NA must be a value that no cell has
                is_real = matrix.dtype.kind == "f"
                node.attrs["NA"] = np.float64(np.nan) if is_real else np.int64(matrix.min(initial=0) - 1)
            return node

        yield add_matrix
        for dimension, (side, (geography, level)) in enumerate(zip(SIDES, sides, strict=True)):
            lookups: dict[str, NDArray[np.generic]] = {side: _encode_utf8(geography.codes[level])}
            if geography.names is not None and any(geography.names[level]):
                lookups[f"{side}_name"] = _encode_utf8(geography.names[level])
            numbers = _parse_zone_numbers(geography.codes[level]) if for_tools else None
            if numbers is not None:
                lookups[f"{side}_number"] = numbers
            for name, entries in lookups.items():
                lookup = file.create_array(file.root.lookup, name, obj=entries, track_times=False)
                for attribute in ("dim", "DIM") if for_tools else ("dim",):
                    lookup.attrs[attribute] = np.int32(dimension)
        target.write(file.get_file_image())


def _encode_utf8(texts: Sequence[str]) -> NDArray[np.bytes_]:
    """Return texts as an array of UTF-8 bytes."""
    return np.array([text.encode() for text in texts], dtype=np.bytes_)


def _parse_zone_numbers(codes: Sequence[str]) -> NDArray[np.int32] | None:
    """Return codes as numbers; None unless all are different whole numbers of at most ``_MAX_ZONE_NUMBER``."""
    if not all(code.isascii() and code.isdigit() and len(code) <= MAX_CODE_LENGTH for code in codes):
        return None
    numbers = [*map(int, codes)]
    if len({*numbers}) < len(codes) or max(numbers) > _MAX_ZONE_NUMBER:
        return None
    return np.array(numbers, np.int32)


def _find_matrix_cells(pair: LevelPair, flows: pd.DataFrame) -> Cells:
    """Return the row and the column of each flow in the matrix of a pair of levels."""
    tree, (origin_level, destination_level) = pair.tables.tree, pair.levels
    rows = find_positions(flows["origin"], tree.origin.codes[origin_level])
    columns = find_positions(flows["destination"], tree.destination.codes[destination_level])
    return rows, columns
