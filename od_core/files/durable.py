"""Write files that are whole or absent, read their bytes back, and hold locks.

A file is written under a temporary name in the same folder, made durable, and then renamed.

Some libraries lose errors. For example, HDF5 may close a file without an error although half of it could not be
written. So libraries do not write published files themselves. They pass their bytes to :func:`write_checked`, which
computes the digest of the bytes before it writes them, checks every step, and reads the bytes back.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import io
import json
import os
import pwd
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from od_core.errors import STAYS_CHARGED, OdError

CONFIDENTIAL_FOLDER_MODE = 0o700
CONFIDENTIAL_FILE_MODE = 0o600
PUBLIC_FOLDER_MODE = 0o755
PUBLIC_FILE_MODE = 0o644

T = TypeVar("T")

_AT_FDCWD = -100  # constant of Linux: paths are relative to the working directory

_RENAME_EXCHANGE = 2  # constant of Linux: exchange two paths in one step

LOST_STORAGE_ERRNOS = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.ENXIO, errno.ENODEV)
"""Error numbers with which a system reports that a disk or the connection to a file server fails."""

_EXCHANGE_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""Error numbers with which a system reports that it cannot exchange two folders."""


def make_folder(folder: Path, mode: int = PUBLIC_FOLDER_MODE) -> None:
    """Create a folder and its missing parents durably, all with this mode, which the umask does not change.

    Existing folders stay unchanged.
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
    sync(folder.parent)  # the entry of the new folder is in its parent


def write_durably(path: Path, write: Callable[[Path], T], *, mode: int = CONFIDENTIAL_FILE_MODE) -> T:
    """Write a file durably, and return what ``write`` returns. An existing file is replaced in one step.

    ``write`` is called with the path of a temporary file in the same folder. The file is made durable and then renamed
    to ``path``. The umask does not change the mode. Raises OdError if the temporary file is removed meanwhile.
    """
    temporary = path.with_name(f".{path.name[:200]}.{os.getpid()}.tmp")  # file systems allow 255 characters
    descriptor = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode)
    try:
        try:
            written = write(temporary)
            temporary.chmod(mode)
            if os.path.samestat(os.fstat(descriptor), temporary.stat()):
                os.fsync(descriptor)
            else:  # some writers replace the file by a new one
                sync(temporary)
        finally:
            os.close(descriptor)
        temporary.replace(path)
        sync(path.parent)
    except FileNotFoundError:
        if temporary.exists():
            raise
        message = f"{path.name} was removed while it was written, as a second run of the same release does"
        step = "run the release again, on a file system with locks (docs/how-to/deploy.md)"
        raise OdError("OD-LEDGER-STATE", message, next_step=step, spent=STAYS_CHARGED) from None
    finally:
        temporary.unlink(missing_ok=True)
    return written


def replace_folder(folder: Path, by: Path, aside: Path) -> None:
    """Rename the folder ``by`` to ``folder``, and the old ``folder`` to ``aside``. All are on the same file system.

    The two folders are exchanged in one step if the file system can do so. Otherwise, a crash may leave no folder at
    ``folder``, but never one with only a part of its content.
    """
    if _try_exchange_folders(folder, by):
        by.rename(aside)
    else:
        folder.rename(aside)
        by.rename(folder)
    sync(folder.parent)


def _try_exchange_folders(folder: Path, other: Path) -> bool:
    """Exchange two folders in one step; return False if the system cannot, and raise OSError for other faults."""
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if exchange is None:
        return False
    if exchange(_AT_FDCWD, os.fsencode(folder), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _EXCHANGE_UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(folder))


def sync(path: Path) -> None:
    """Force the content of a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def compute_file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes as hexadecimal text."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def compute_facts_digest(facts: Mapping[str, object]) -> str:
    """Return the SHA-256, as hexadecimal text, of JSON-ready facts. The order of their names does not matter."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def read_file_state(path: Path) -> list[int]:
    """Return the size, inode, modification time and change time of a file. Any change of the file changes one of them.

    The times are in nanoseconds.
    """
    status = path.stat()
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


_IMPOSSIBLE_PATHS = {
    r"[A-Za-z][\w+.-]*:": "an address such as s3:// or file:// is no path: name a copy of the file on this machine",
    r"~[\w.-]*": "~ does not stand for the home folder: write the whole path",
    r".*[*?[].*": "wildcards such as * are not replaced: write the name of one file or, in a declaration, of a folder",
}
"""Patterns of a part of a path at which no file can be, and the reason of each."""


def find_file_fault(path: Path) -> str | None:
    """Return the reason why a file cannot be opened, as text for a message, or None if it can be opened."""
    try:
        if path.is_dir():
            return f"{path.name or path} is a folder, not a file"
        if not path.is_file():
            return _find_path_fault(path) or f"there is no file {path.name}"
        path.open("rb").close()
    except PermissionError:
        return f"{path.name} cannot be read: the user of this process lacks permission"
    except OSError as error:  # such as a name that is too long
        return f"{path.name[:40]} cannot be read: {error.strerror}"
    return None


def may_file_appear(path: Path) -> bool:
    """Return whether there is no file or folder at a path, but a file may be put there later."""
    with suppress(OSError):  # the path cannot be looked up, or its name is too long
        return not path.is_dir() and not path.is_file() and _find_path_fault(path) is None
    return False


def _find_path_fault(path: Path) -> str | None:
    """Return the reason why no file can ever be at a path, such as an address; None if there can be one."""
    for pattern, reason in _IMPOSSIBLE_PATHS.items():
        if any(re.fullmatch(pattern, part) for part in path.parts):
            return reason
    return None


def can_write(path: Path) -> bool:
    """Return whether this process may write an existing path. Root may, unless it is mounted read-only."""
    return os.access(path, os.W_OK, effective_ids=True)


def describe_rights(path: Path) -> str:
    """Return, for a message, the owner and mode of a file or folder, and the user of this process.

    If the file does not exist or cannot be seen, the message is about the nearest folder above it.
    """
    for nearest in (path, *path.parents):
        try:
            state = nearest.stat()
        except OSError:
            continue
        return _describe_rights_of_existing(nearest, state)
    return f"{path} cannot be seen"  # a relative path from a folder that is gone


def _describe_rights_of_existing(path: Path, state: os.stat_result) -> str:
    """Return the text of :func:`describe_rights` for an existing path with the result ``state`` of ``stat``."""
    mounted = " on a file system that is mounted read-only" if os.statvfs(path).f_flag & os.ST_RDONLY else ""
    mode = f"{stat.S_IMODE(state.st_mode):04o}"
    owner, process = _find_user_name(state.st_uid), _find_user_name(os.geteuid())
    return f"{path} belongs to {owner} with mode {mode}{mounted}; this process is of {process}"


def choose_writing_advice(path: Path) -> str:
    """Return the next step for a user whose process may not write a file or folder, which need not exist."""
    if "mounted read-only" in describe_rights(path):
        return "mount its file system to be written"
    return "run it as the owner"


def _find_user_name(number: int) -> str:
    """Return the name of the user with this number (uid); ``user`` and the number if the user has no name."""
    with suppress(KeyError):
        return pwd.getpwuid(number).pw_name
    return f"user {number}"


def make_system_error(error: OSError) -> OdError:
    """Return the OdError for an error of the system about a file or folder.

    If this process lacks rights, the message states the owner and the mode (:func:`describe_rights`).
    """
    rights = ""
    step = "check the path, the rights and the space on the disk"
    if error.errno in LOST_STORAGE_ERRNOS:
        step = "check the disk or the connection to the file server, then run it again"
    lacks_rights = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    if lacks_rights and isinstance(error.filename, (str, os.PathLike)):
        path = Path(error.filename)
        rights = f": {describe_rights(path)}"
        step = choose_writing_advice(path)
    message = f"{error.filename or 'the system'}: {error.strerror or type(error).__name__}{rights}"
    return OdError("OD-SYSTEM", message, next_step=step, spent=STAYS_CHARGED)


@dataclass(frozen=True)
class Written:
    """What was written to a file: the SHA-256 of the bytes, as hexadecimal text, and their number."""

    digest: str
    size: int


def write_checked(path: Path, write: Callable[[BinaryIO], object], *, mode: int, from_disk: bool = False) -> Written:
    """Write a file, make its content durable, read it back, and return the digest and size of what was written.

    An existing file is overwritten. The caller must make the name of the file durable.

    Args:
        path: file to write.
        write: is called with an open file for writing only, and writes the content from beginning to end.
        mode: mode of the file, which the umask does not change.
        from_disk: whether to read the file back from the disk instead of the system's cache. This takes longer. Use it
            for published files, so that readers find no damage.

    Raises:
        OSError: a step failed, even if ``write`` suppressed the error. The file is removed.
        OdError: the file does not contain the bytes that were written. The file is removed.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "rb") as file:
            os.fchmod(descriptor, mode)  # the umask may have reduced the mode
            sink = _Sink(descriptor)
            write(cast("BinaryIO", sink))
            sink.raise_failure()
            os.fsync(descriptor)  # the descriptor that wrote reports every write error
            if from_disk:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        written = Written(sink.digest.hexdigest(), sink.tell())
        if digest != written.digest:
            message = f"{path.name} was written without an error, but reading it back gave different content"
            step = "check the disk, then run the release again"
            raise OdError("OD-DISK-DAMAGED", message, next_step=step, spent=STAYS_CHARGED)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return written


def write_if_changed(path: Path, content: bytes) -> bool:
    """Write a public file and its folder, unless it has this content; return whether it was written."""
    if path.is_file() and path.read_bytes() == content:
        return False
    make_folder(path.parent)
    write_durably(
        path,
        lambda temporary: write_checked(temporary, lambda file: file.write(content), mode=PUBLIC_FILE_MODE),
        mode=PUBLIC_FILE_MODE,
    )
    return True


class _Sink(io.RawIOBase):
    """A file object for writing only. It writes all bytes or raises, and stores its first error."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.digest = hashlib.sha256()
        self._size = 0
        self._failure: OSError | None = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, content: Any) -> int:
        """Write all bytes, and return their number. Later calls repeat a failure."""
        self.raise_failure()
        remaining = memoryview(content).cast("B")
        size = len(remaining)
        self.digest.update(remaining)
        try:
            while remaining:  # one call may write only a part
                remaining = remaining[os.write(self._descriptor, remaining) :]
        except OSError as failure:
            self._failure = failure
            raise
        self._size += size
        return size

    def raise_failure(self) -> None:
        """Raise the first error again, if there was one. The writer may have suppressed it."""
        if self._failure is not None:
            raise self._failure


def is_locked(file: Path) -> bool:
    """Return whether a process has locked a file with :func:`lock_file`; also True if it cannot be opened."""
    try:
        lock = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


_SUSPENSION_CHECK_SECONDS = 5.0
"""Seconds to wait for a lock before checking whether its process is suspended."""


def find_suspended_lock_error(file: Path) -> OdError | None:
    """Return the OdError for a lock of a file that a suspended process holds; None if there is no such process.

    The system releases the lock when its process ends, so only a suspended process can block others for ever.
    """
    with suppress(OSError):
        locks = Path("/proc/locks").read_text(encoding="utf-8")
        inode = file.stat().st_ino
        for process, locked_inode in re.findall(r": FLOCK .* (\d+) [0-9a-f]+:[0-9a-f]+:(\d+) ", locks):
            status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
            _, _, after_name = status.rpartition(")")  # the name of the program is in brackets, and may have blanks
            state, *_ = after_name.split()
            if int(locked_inode) == inode and state in ("T", "t"):  # stopped, by a signal or a debugger
                message = f"{file}: process {process} holds it but is suspended, so no other release can begin"
                step = f"resume the process (kill -CONT {process}), or end it; then run this again"
                return OdError("OD-RELEASE-SUSPENDED", message, next_step=step)
    return None


@contextmanager
def lock_file(file: Path, refusal: OdError, *, seconds: float) -> Iterator[None]:
    """Lock a file, which has no content and is never removed, while this context lasts. Its folder must exist.

    If another process, or another context of this process, has the lock, wait up to ``seconds``, and then raise
    ``refusal``. If the process with the lock is suspended, raise the error of :func:`find_suspended_lock_error` sooner.
    """
    start = time.monotonic()
    lock = os.open(file, os.O_CREAT | os.O_WRONLY, CONFIDENTIAL_FILE_MODE)
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waited = time.monotonic() - start
                is_check_due = waited > min(seconds, _SUSPENSION_CHECK_SECONDS)
                suspended = find_suspended_lock_error(file) if is_check_due else None
                if suspended is not None:
                    raise suspended from None
                if waited > seconds:
                    raise refusal from None
                time.sleep(0.05)
        yield
    finally:
        os.close(lock)
