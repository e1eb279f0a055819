"""Files that are known to hold what was written: every step is checked, and the bytes are read back.

Some libraries lose errors: HDF5 closes a file without a word when the disk refused half of it. So a library never
opens a file that is published. It hands its bytes over, and their digest is taken before they go to the disk.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from od_core.errors import OdError
from od_core.files.durable import file_digest


@dataclass(frozen=True)
class Written:
    """What was written into a file.

    Attributes:
        digest: SHA-256 of the bytes that were handed over to be written.
        size: how many they are.
    """

    digest: str
    size: int


def write_checked(path: Path, write: Callable[[BinaryIO], object], *, mode: int, from_disk: bool = False) -> Written:
    """Let ``write`` fill a new file, make its content durable, and read it back.

    Args:
        path: of the file; one that is there is overwritten. Its name is not made durable here.
        write: writes to an open file, from its beginning to its end.
        mode: of the file, whatever the umask says.
        from_disk: whether it is read back from the disk, and not from what the system still holds of it. That takes as
            long as the disk does, and is for files that are published, whose readers may be the first to notice.

    Returns:
        What was handed over. Memory is that of ``write``.

    Raises:
        OSError: a step failed, whether ``write`` passed the error on or not; the file is removed.
        OdError: the file does not hold what was handed over; it is removed.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode)
    try:
        sink = _Sink(descriptor)
        try:
            os.fchmod(descriptor, mode)  # the umask took from the mode that it was made with
            write(cast("BinaryIO", sink))
            sink.raise_failure()
            os.fsync(descriptor)  # of the descriptor that wrote: it is told of every error since
            if from_disk:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
        written = sink.written()
        if file_digest(path) != written.digest:
            raise OdError(
                "OD-DISK-DAMAGED",
                f"{path.name} was written without an error, but the disk holds something else",
                next_step="see to the disk, then run the release again",
                spent="what was set aside before stays charged",
            )
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return written


class _Sink(io.RawIOBase):
    """An open file that takes bytes in order, all of them or an error, and remembers the first error for ever."""

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
            while rest:  # a file may take a part of what it is given
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as failure:
            self._failure = failure
            raise
        self._size += size
        return size

    def raise_failure(self) -> None:
        """Raise the first error that there was. Whoever writes may have caught it."""
        if self._failure is not None:
            raise self._failure

    def written(self) -> Written:
        """What was taken so far."""
        return Written(self._digest.hexdigest(), self._size)
