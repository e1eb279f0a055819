"""Files that are whole or absent: written beside their place, made durable, then renamed into it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

CONFIDENTIAL_FOLDER_MODE = 0o700
CONFIDENTIAL_FILE_MODE = 0o600
PUBLIC_FILE_MODE = 0o644


def make_confidential_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, all for their owner alone: ``Path.mkdir`` closes the last one.

    Folders that are there keep their modes.
    """
    if not folder.is_dir():
        make_confidential_folder(folder.parent)
        folder.mkdir(mode=CONFIDENTIAL_FOLDER_MODE, exist_ok=True)


def write_durably(
    path: Path, write: Callable[[Path], object], *, mode: int = CONFIDENTIAL_FILE_MODE, sync_name: bool = True
) -> None:
    """Let ``write`` fill a temporary file, then make it and its name durable; an old file is replaced.

    Without ``sync_name`` a crash of the machine may bring the old file back, whole.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode))
        write(temporary)
        temporary.chmod(mode)  # some writers put a file of their own in its place
        sync(temporary)
        temporary.replace(path)
        if sync_name:
            sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
