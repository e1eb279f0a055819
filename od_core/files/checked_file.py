"""Write files and verify their content: every step is checked, and the bytes are read back.

Some libraries lose errors. For example, HDF5 may close a file without an error although half of it could not be
written. So libraries do not write published files themselves. They pass their bytes to this module, which computes the
digest of the bytes before it writes them.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.durable import PUBLIC_FILE_MODE, file_digest, make_folder, write_durably


@dataclass(frozen=True)
class Written:
    """The digest and size of the bytes that were written to a file.

    Attributes:
        digest: SHA-256 of the bytes.
        size: number of bytes.
    """

    digest: str
    size: int


def write_checked(path: Path, write: Callable[[BinaryIO], object], *, mode: int, from_disk: bool = False) -> Written:
    """Call ``write`` with a new open file, make the content of the file durable, read it back and compare it.

    Args:
        path: path of the file. An existing file is overwritten. The caller must make the name of the file durable.
        write: function that writes the content to an open file, from beginning to end.
        mode: mode of the file. The umask does not change it.
        from_disk: True to read the file back from the disk instead of the system's cache, which takes longer. Use it
            for published files, so that damage is found before readers find it.

    Returns:
        Digest and size of the bytes that ``write`` wrote.

    Raises:
        OSError: a step failed, even if ``write`` suppressed the error. The file is removed.
        OdError: the file does not contain the bytes that were written. The file is removed.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode)
    try:
        sink = _Sink(descriptor)
        try:
            os.fchmod(descriptor, mode)  # the umask may have reduced the mode
            write(cast("BinaryIO", sink))
            sink.raise_failure()
            os.fsync(descriptor)  # the descriptor that wrote reports every write error
            if from_disk:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
        written = sink.written()
        if file_digest(path) != written.digest:
            raise OdError(
                "OD-DISK-DAMAGED",
                f"{path.name} was written without an error, but reading it back gave different content",
                next_step="check the disk, then run the release again",
                spent=STAYS_CHARGED,
            )
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return written


def write_if_other(path: Path, content: bytes) -> bool:
    """Write a public file and its folder, unless it has this content already. Return whether it was written."""
    if path.is_file() and path.read_bytes() == content:
        return False
    make_folder(path.parent)
    write_durably(
        path,
        lambda place: write_checked(place, lambda file: file.write(content), mode=PUBLIC_FILE_MODE),
        mode=PUBLIC_FILE_MODE,
    )
    return True


class _Sink(io.RawIOBase):
    """A file object for writing only. It writes all bytes or raises, and stores its first error."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._digest = hashlib.sha256()
        self._size = 0
        self._failure: OSError | None = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, content: Any) -> int:
        self.raise_failure()
        rest = memoryview(content).cast("B")
        size = len(rest)
        self._digest.update(rest)
        try:
            while rest:  # one call may write only a part
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as failure:
            self._failure = failure
            raise
        self._size += size
        return size

    def raise_failure(self) -> None:
        """Raise the first error again, if there was one. The writer may have suppressed it."""
        if self._failure is not None:
            raise self._failure

    def written(self) -> Written:
        """Return the digest and size of the bytes written so far."""
        return Written(self._digest.hexdigest(), self._size)
