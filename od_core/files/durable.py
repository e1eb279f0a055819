"""Files that are whole or absent: written beside their place, made durable, then renamed into it; and their folders."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

CONFIDENTIAL_FOLDER_MODE = 0o700
CONFIDENTIAL_FILE_MODE = 0o600
PUBLIC_FOLDER_MODE = 0o755
PUBLIC_FILE_MODE = 0o644

T = TypeVar("T")

_HERE = -100
"""``AT_FDCWD`` of Linux: names are relative to the working folder."""

_EXCHANGE = 2
"""``RENAME_EXCHANGE`` of Linux."""

_NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""How file systems say that they cannot exchange two folders."""


def make_folder(folder: Path, mode: int = PUBLIC_FOLDER_MODE) -> None:
    """Make a folder, and those above it that are missing, with this mode whatever the umask says, durably.

    A new name is durable once the folder that it is in was synced, so each parent of a new folder is. Folders that
    are there already stay as they are.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    try:
        folder.mkdir(mode)
        folder.chmod(mode)  # the umask took from the mode that it was made with
    except FileExistsError:
        if not folder.is_dir():
            raise
    sync(folder.parent)


def write_durably(
    path: Path, write: Callable[[Path], T], *, mode: int = CONFIDENTIAL_FILE_MODE, sync_name: bool = True
) -> T:
    """Let ``write`` fill a temporary file, then make it and its name durable; an old file is replaced.

    Without ``sync_name`` a crash of the machine may bring the old file back, whole.

    Returns:
        What ``write`` returns.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode))
        written = write(temporary)
        temporary.chmod(mode)  # some writers put a file of their own in its place
        sync(temporary)
        temporary.replace(path)
        if sync_name:
            sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
    return written


def replace_folder(folder: Path, by: Path, aside: Path) -> None:
    """Put the folder ``by`` in the place of another of the same file system, in one step where that can do it.

    Where it cannot, the other one is put ``aside`` first: a crash may leave the place empty, but never half filled.
    """
    if _exchanged(folder, by):
        by.rename(aside)
    else:
        folder.rename(aside)
        by.rename(folder)
    sync(folder.parent)


def _exchanged(one: Path, other: Path) -> bool:
    """Let two folders change places; False where the system or the file system cannot."""
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if exchange is None:
        return False
    if exchange(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    if (number := ctypes.get_errno()) not in _NO_EXCHANGE:
        raise OSError(number, os.strerror(number), str(one))
    return False


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
