"""Keep the confidential folder: its key, its files and the lock of releases."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from od_core.errors import STAYS_CHARGED, OdError, raise_without_context
from od_core.files.duckdb_session import make_machine_error
from od_core.files.durable import (
    CONFIDENTIAL_FILE_MODE,
    CONFIDENTIAL_FOLDER_MODE,
    lock_file,
    make_folder,
    sync,
    write_durably,
)
from od_core.parallel import map_in_order

LOCK_NAME = "release.lock"
LOCK_SECONDS = 600.0


@contextmanager
def lock_folder(folder: Path, *, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Lock a folder, created if missing, in this context. Raises OdError if it stays locked for ``seconds``."""
    make_folder(folder)
    refusal = OdError(
        "OD-RELEASE-LOCKED",
        f"another release has been running for more than {seconds:.0f} seconds",
        next_step="wait until it ends, then run this one again",
    )
    with lock_file(folder / LOCK_NAME, refusal, seconds=seconds):
        yield


_INTEGERS_PER_BLOCK = 1 << 20  # number of integers that one thread hashes at a time

_KEY_BYTES = 32

IDENTITY = "identity.json"
"""File of the fingerprint of a release's input, in its confidential folder."""


class ConfidentialFolder:
    """A folder of mode 0700 that contains true counts, staged measurements, the key and the details of errors.

    Args:
        path: path of the folder, which is created if it is missing.
        is_drawn: returns whether a draw of any release in the ledger beside the folder has begun. Such a release needs
            the key of this folder.
    """

    def __init__(self, path: Path, is_drawn: Callable[[], bool] = lambda: False) -> None:
        self.path, self._is_drawn, self._key = path, is_drawn, path / "hmac.key"
        if not path.exists():  # this process may lack the right to write an existing folder
            self.make_subfolder(".")

    def make_subfolder(self, name: str | os.PathLike[str]) -> Path:
        """Create a folder below this one, unless it exists, and return its path.

        All rights of other users to this folder, the new one and those between them are removed.
        """
        make_folder(self.path.parent)
        subfolder = self.path / name
        make_folder(subfolder, CONFIDENTIAL_FOLDER_MODE)
        folder = subfolder
        while True:  # from the new folder up to this one
            mode = stat.S_IMODE(folder.stat().st_mode)
            if mode & ~CONFIDENTIAL_FOLDER_MODE:
                folder.chmod(mode & CONFIDENTIAL_FOLDER_MODE)
            if folder.resolve() == self.path.resolve():
                return subfolder
            folder = folder.parent

    def restrict_to_owner(self, folder: Path) -> None:
        """Allow only the owner to access a subfolder and its content, which was written with other modes."""
        for path in (folder, *folder.rglob("*")):
            path.chmod(CONFIDENTIAL_FOLDER_MODE if path.is_dir() else CONFIDENTIAL_FILE_MODE)

    def refuse_lost_key(self) -> None:
        """Raise OdError if the key is damaged, or is missing although a release began with it. No key is made."""
        is_there = self._key.exists()
        if is_there and self._key.stat().st_size == _KEY_BYTES:
            return
        is_needed = self._is_drawn() or any(self.path.glob(f"*/*/*/{IDENTITY}"))
        if not is_there and not is_needed:
            return
        message = f"confidential/hmac.key, the key of all fingerprints, is {'damaged' if is_there else 'missing'}"
        step = "remove it, and a new one is made"
        if is_needed:
            step = "restore it from a backup; if there is none, see Replace a lost key in docs/how-to/operate.md"
        raise OdError("OD-KEY-LOST", message, next_step=step, spent=STAYS_CHARGED)

    def read_or_make_key(self) -> bytes:
        """Return the 32-byte key of all fingerprints, made by the first call. Raises OdError if it is lost."""
        self.refuse_lost_key()
        if not self._key.exists():
            temporary = self._key.with_name(f".hmac.key.{secrets.token_hex(6)}")
            write_durably(temporary, lambda file: file.write_bytes(secrets.token_bytes(_KEY_BYTES)))
            with suppress(FileExistsError):
                self._key.hardlink_to(temporary)  # of two processes that make a key at once, both use the first one
            temporary.unlink()
            sync(self.path)
        return self._key.read_bytes()

    def compute_key_name(self) -> str:
        """Return a public identifier of the key, to tell whether a stored fingerprint was made with this key."""
        return hmac.new(self.read_or_make_key(), b"name of the key", hashlib.sha256).hexdigest()[:16]

    def compute_fingerprint(self, pieces: Iterable[Sequence[NDArray[np.int64]]]) -> str:
        """Return an HMAC-SHA256 of the counted input, as hexadecimal text.

        The fingerprint is confidential, because two equal fingerprints reveal that the input did not change. ``pieces``
        are consecutive blocks of rows, each with one array per column. Where the rows are cut does not change the
        fingerprint. Few blocks are in memory at a time.

        Each column is hashed in blocks of ``_INTEGERS_PER_BLOCK``, several at a time on threads. The fingerprint is the
        hash of the number of values of the first column and of the digests of all blocks, column by column.
        """
        key = self.read_or_make_key()

        def hash_block(block: tuple[int, NDArray[np.int64]]) -> tuple[int, int, bytes]:
            """Return the position of the block's column, the number of its values, and their hash."""
            column, numbers = block
            return column, len(numbers), hmac.new(key, numbers.data, hashlib.sha256).digest()

        digests_of_column: dict[int, list[bytes]] = {}
        rows = 0
        for column, length, digest in map_in_order(hash_block, _iterate_blocks(pieces)):
            digests_of_column.setdefault(column, []).append(digest)
            if column == 0:
                rows += length
        fingerprint = hmac.new(key, rows.to_bytes(8), hashlib.sha256)
        for column in sorted(digests_of_column):
            fingerprint.update(b"".join(digests_of_column[column]))
        return fingerprint.hexdigest()

    @contextmanager
    def keep_errors_confidential(self) -> Iterator[None]:
        """Let only OdErrors without confidential values leave this context.

        Messages of databases and data frames quote the values that caused the error. So the traceback of any other
        exception, and the confidential detail of an OdError, go to a file of mode 0600, which the next step of the
        error names. An OdError of :func:`~od_core.files.duckdb_session.make_machine_error` replaces an exception that
        is a fault of the machine, such as too little memory.
        """
        try:
            yield
        except OdError as error:
            self.move_detail_to_file(error)
            error.__cause__ = error.__context__ = None  # its cause may quote a value
            raise
        except Exception as error:  # noqa: BLE001  # any text may hold a confidential value
            advice = self.write_detail(traceback.format_exc())
            code, message = "OD-CONFIDENTIAL-ERROR", "a step that handles confidential data failed"
            step = f"{advice}, then run the release again"
            machine_error = make_machine_error(error, "the step stopped")
            if machine_error is not None:
                code, message = machine_error.code, machine_error.message
                step = f"{machine_error.next_step}; {advice}"
            raise_without_context(OdError(code, message, next_step=step, spent=STAYS_CHARGED))

    def move_detail_to_file(self, error: OdError) -> None:
        """Write an error's confidential detail, if any, to a file, and name the file in the error's next step."""
        if error.confidential_detail is not None:
            advice = self.write_detail(f"{error}\n{error.confidential_detail}\n")
            error.next_step = f"{error.next_step}; {advice}"

    def write_detail(self, text: str) -> str:
        """Write confidential details to a new file of mode 0600, and return a next step: to read this file.

        If the file cannot be written, for example on a full disk, the details are lost, and the next step says so.
        """
        try:
            path = self.make_subfolder("errors") / f"{secrets.token_hex(6)}.txt"
            write_durably(path, lambda file: file.write_text(text, encoding="utf-8", errors="backslashreplace"))
        except OSError as error:
            return (
                f"free space in the confidential folder, where the details could not be written (error {error.errno})"
            )
        return f"read {path.absolute()}"


def _iterate_blocks(pieces: Iterable[Sequence[NDArray[np.int64]]]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield the position of a column and ``_INTEGERS_PER_BLOCK`` of its values, for all blocks of all columns.

    The blocks of one column are in order, and its last block may be shorter. ``pieces`` are consecutive blocks of rows
    of any length, each with one array per column.
    """
    waiting: dict[int, list[NDArray[np.int64]]] = {}
    for piece in pieces:
        for column, numbers in enumerate(piece):
            waiting.setdefault(column, []).append(numbers)
            if sum(map(len, waiting[column])) >= _INTEGERS_PER_BLOCK:
                joined = _join_arrays(waiting[column])
                end = len(joined) - len(joined) % _INTEGERS_PER_BLOCK
                for start in range(0, end, _INTEGERS_PER_BLOCK):
                    yield column, joined[start : start + _INTEGERS_PER_BLOCK]
                waiting[column] = [joined[end:]]
    for column, arrays in waiting.items():
        last_block = _join_arrays(arrays)
        if len(last_block):
            yield column, last_block


def _join_arrays(arrays: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the joined arrays as little-endian integers in consecutive memory, without a copy where possible."""
    joined = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    return np.ascontiguousarray(joined, dtype="<i8")
