"""The confidential folder: who may read it, its key, and how errors leave it (spec 6, "Leaks to close")."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from od_core.archive.files import CONFIDENTIAL_FILE_MODE, CONFIDENTIAL_FOLDER_MODE, sync, write_durably
from od_core.errors import OdError
from od_core.pipeline import in_order

_HASHED = 1 << 20
"""Numbers that are hashed at a time, by one thread."""


_KEY_BYTES = 32


class ConfidentialFolder:
    """A folder of mode 0700 for true counts, staged measurements, the key and the details of errors."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.subfolder(".")

    def subfolder(self, name: str | os.PathLike[str]) -> Path:
        """A folder inside, made where it is missing; every folder on the way has mode 0700."""
        self.path.mkdir(parents=True, exist_ok=True)
        folder = self.path / name
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            folder.chmod(CONFIDENTIAL_FOLDER_MODE)
            if folder.resolve() == self.path.resolve():
                return self.path / name
            folder = folder.parent

    def close(self, folder: Path) -> None:
        """Take a folder that a library wrote below this one from everybody but its owner."""
        for path in (folder, *folder.rglob("*")):
            path.chmod(CONFIDENTIAL_FOLDER_MODE if path.is_dir() else CONFIDENTIAL_FILE_MODE)

    def key(self) -> bytes:
        """The key of all fingerprints: 32 bytes from the operating system, made once and kept."""
        path = self.path / "hmac.key"
        if not path.exists():
            mine = path.with_name(f".hmac.key.{secrets.token_hex(6)}")
            write_durably(mine, lambda file: file.write_bytes(secrets.token_bytes(_KEY_BYTES)))
            with suppress(FileExistsError):
                path.hardlink_to(mine)  # of two that make it at once, one wins
            mine.unlink()
            sync(path.parent)
        key = path.read_bytes()
        if len(key) != _KEY_BYTES:
            raise OdError("OD-KEY-LOST", "confidential/hmac.key is damaged", next_step="restore confidential/hmac.key")
        return key

    def key_name(self) -> str:
        """A name of the key that does not reveal it: tells whether a fingerprint was made with this one."""
        return hmac.new(self.key(), b"name of the key", hashlib.sha256).hexdigest()[:16]

    def fingerprint(self, columns: Sequence[NDArray[np.int64]]) -> str:
        """Keyed fingerprint of the counted input; confidential, since equality tells that it did not change."""
        key = self.key()
        pieces = [
            np.ascontiguousarray(array[start : start + _HASHED], dtype="<i8")
            for array in columns
            for start in range(0, len(array), _HASHED)
        ]
        digests = in_order(lambda piece: hmac.new(key, piece.data, hashlib.sha256).digest(), pieces)
        return hmac.new(key, len(columns[0]).to_bytes(8) + b"".join(digests), hashlib.sha256).hexdigest()

    @contextmanager
    def errors_stay_inside(self, spent: str = "nothing was spent") -> Iterator[None]:
        """Turn whatever is raised into an OdError without values; the details go to a file of mode 0600.

        Messages of databases and of data frames quote the values that they stumbled over.
        """
        try:
            yield
        except OdError as error:
            if error.confidential_detail is not None:
                look = self.keep_detail(f"{error}\n{error.confidential_detail}\n")
                error.next_step = f"{error.next_step}; {look}"
            error.__cause__ = error.__context__ = None  # what it was raised from may quote a value
            raise
        except Exception:  # noqa: BLE001  # any text may hold a confidential value, so none leaves
            look = self.keep_detail(traceback.format_exc())
            raise OdError(
                "OD-CONFIDENTIAL-ERROR",
                "a step on the confidential side failed",
                next_step=f"{look}, then run the release again",
                spent=spent,
            ) from None

    def keep_detail(self, text: str) -> str:
        """Write the details down; returns what to do next (a full disk must not let them out either)."""
        name = f"{secrets.token_hex(6)}.txt"
        try:
            path = self.subfolder("errors") / name
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, CONFIDENTIAL_FILE_MODE)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            sync(path.parent)
        except OSError as error:
            return f"make room in the confidential folder, where details could not be kept (error {error.errno})"
        return f"read confidential/errors/{name}"
