"""A file of a bundle: its name, what it is, and how it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from od_core.publication.columns import Table


@dataclass(frozen=True)
class BundleFile:
    """One file of a bundle.

    Attributes:
        name: of the file.
        description: what it is, in a line.
        write: fills it; the same bytes at every call.
        table: the table that it holds; None where it is no table.
    """

    name: str
    description: str
    write: Callable[[Path], None]
    table: Table | None = None
