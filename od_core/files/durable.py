"""Write files that are either whole or absent, and make and replace folders durably.

A file is written under a temporary name in the same folder, made durable, and then renamed.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import pwd
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from od_core.errors import STAYS_CHARGED, OdError

CONFIDENTIAL_FOLDER_MODE = 0o700
CONFIDENTIAL_FILE_MODE = 0o600
PUBLIC_FOLDER_MODE = 0o755
PUBLIC_FILE_MODE = 0o644

T = TypeVar("T")

_HERE = -100
"""``AT_FDCWD`` of Linux: paths are relative to the working directory."""

_EXCHANGE = 2
"""``RENAME_EXCHANGE`` of Linux: exchange two paths in one step."""

_NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""Error numbers with which a system reports that it cannot exchange two folders."""


def make_folder(folder: Path, mode: int = PUBLIC_FOLDER_MODE) -> None:
    """Create a folder and its missing parents durably.

    A new folder is durable when the folder that contains it is synced, so this function syncs the parent of each new
    folder. Existing folders stay unchanged.

    Args:
        folder: path of the folder.
        mode: mode of all new folders. The umask does not change it.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    try:
        folder.mkdir(mode)
        folder.chmod(mode)  # the umask may have reduced the mode
    except FileExistsError:
        if not folder.is_dir():
            raise
    sync(folder.parent)


def write_durably(path: Path, write: Callable[[Path], T], *, mode: int = CONFIDENTIAL_FILE_MODE) -> T:
    """Write a file durably. An existing file is replaced in one step.

    Args:
        path: path of the file.
        write: function that writes the content to the path of a temporary file, which is then renamed.
        mode: mode of the file. The umask does not change it.

    Returns:
        The return value of ``write``.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode))
        written = write(temporary)
        temporary.chmod(mode)  # some writers replace the file by a new one
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
    return written


def replace_folder(folder: Path, by: Path, aside: Path) -> None:
    """Rename the folder ``by`` to ``folder``, and the old ``folder`` to ``aside``.

    All three paths must be on the same file system. The two folders are exchanged in one step if the file system can do
    so. Otherwise, the old folder is renamed first. A crash may then leave no folder at ``folder``, but never one with
    only a part of its content.
    """
    if _exchanged(folder, by):
        by.rename(aside)
    else:
        folder.rename(aside)
        by.rename(folder)
    sync(folder.parent)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two folders in one step, and return True. Return False if the system or the file system cannot do so."""
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if exchange is None:
        return False
    if exchange(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    if (number := ctypes.get_errno()) not in _NO_EXCHANGE:
        raise OSError(number, os.strerror(number), str(one))
    return False


def sync(path: Path) -> None:
    """Force the content of a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def absence(path: Path) -> str | None:
    """Return the reason why a file cannot be opened, as text for a message, or None if it can be opened."""
    try:
        if path.is_dir():
            return f"{path.name or path} is a folder, not a file"
        if not path.is_file():
            return f"there is no file {path.name}"
        path.open("rb").close()
    except PermissionError:
        return f"{path.name} cannot be read: the user of this process lacks permission"
    except OSError as error:  # such as a name that is too long
        return f"{path.name[:40]} cannot be read: {error.strerror}"
    return None


def may_write(path: Path) -> bool:
    """Return whether this process may write a file or folder that exists. Root may, unless it is mounted read-only."""
    return os.access(path, os.W_OK, effective_ids=True)


def rights(path: Path) -> str:
    """Return who owns a file, its mode, and as whom this process runs, for a message.

    If the file does not exist or cannot be seen, these are those of the nearest folder above it.
    """
    place, state = path, None
    for place in (path, *path.parents):
        with suppress(OSError):
            state = place.stat()
            break
    if state is None:  # a relative path from a folder that is gone
        return f"{path} cannot be seen"
    mounted = " on a file system that is mounted read-only" if os.statvfs(place).f_flag & os.ST_RDONLY else ""
    mode = f"{stat.S_IMODE(state.st_mode):04o}"
    return (
        f"{place} belongs to {_user(state.st_uid)} with mode {mode}{mounted}; this process is of {_user(os.geteuid())}"
    )


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def of_system(error: OSError) -> OdError:
    """Return the OdError for a file or folder that the system refuses, with owner and mode if rights are lacking."""
    refused = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and isinstance(error.filename, (str, os.PathLike))
    lacks = f": {rights(Path(error.filename))}" if refused else ""
    return OdError(
        "OD-SYSTEM",
        f"{error.filename or 'the system'}: {error.strerror or type(error).__name__}{lacks}",
        next_step="run it as the owner" if refused else "check the path, the rights and the space on the disk",
        spent=STAYS_CHARGED,
    )
