"""The files of a level that was measured part by part: their names, in order, and one digest of all."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from od_core.archive.store import Store
from od_core.pipeline import in_order


def part_file(level: int, part: int) -> str:
    """Name of the measurement of a level of a part."""
    return f"{_begin(level)}{part:05d}.parquet"


def part_files(store: Store, level: int) -> list[str]:
    """Names of the measurements of a level that are kept, in the order of its parts."""
    return store.list(_begin(level))


def part_digest(store: Store, name: str) -> str:
    """SHA-256 of a kept file."""
    return hashlib.sha256(store.read(name).read_buffer()).hexdigest()


def level_digest(digests: Sequence[str]) -> str:
    """SHA-256 over the digests of all parts of a level, in order."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def kept_digest(store: Store, level: int) -> str:
    """The digest of a level, from its files."""
    return level_digest(list(in_order(lambda name: part_digest(store, name), part_files(store, level))))


def _begin(level: int) -> str:
    return f"parts/noisy_measurement_{level}.part_"
