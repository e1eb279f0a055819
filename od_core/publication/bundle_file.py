"""A file of a bundle: its name, what it is, and how it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from od_core.publication.columns import Table


@dataclass(frozen=True)
class BundleFile:
    """One file of a bundle.

    Attributes:
        name: of the file.
        description: what it is, in a line.
        write: writes its content to an open file, from the beginning to the end; the same bytes at every call.
        table: the table that it holds; None where it is no table.
    """

    name: str
    description: str
    write: Callable[[BinaryIO], object]
    table: Table | None = None
