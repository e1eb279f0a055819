"""Where files are kept that several processes write, each file once: a folder, or a bucket of an object store.

A file is whole or absent, and never changed: of several that create one, the first wins, and the others are told. That
is all that the exactly-once protocol of :mod:`od_core.flows.parts` asks of storage (spec 8, section 3).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from od_core.errors import OdError
from od_core.files.checked_file import write_checked
from od_core.files.durable import CONFIDENTIAL_FILE_MODE, CONFIDENTIAL_FOLDER_MODE, make_folder, sync
from od_core.parallel import in_order

_CREATE_EXCLUSIVELY = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory")
"""Protocols whose fsspec file systems create a file in one conditional request; others look first and then write."""


class Store(Protocol):
    """Files by name, as ``claims/level_5.part_3``; it can be sent to another process."""

    def create_if_absent(self, name: str, content: bytes | pa.Buffer, *, durable: bool = True) -> bool:
        """Keep a file, unless there is one of that name; whether it was kept.

        One that is not ``durable`` may be lost with the machine, or be found cut short: it can be made again.
        """
        ...

    def read(self, name: str) -> pa.NativeFile:
        """A kept file, to be read at any place. Raises OdError where there is none."""
        ...

    def has(self, name: str) -> bool:
        """Whether there is a file of that name."""
        ...

    def list(self, prefix: str) -> list[str]:
        """Names of the files of a folder that begin so, sorted; ``claims/level_5`` finds none in a folder below."""
        ...

    def remove(self, prefix: str) -> None:
        """Remove a folder of files that can be made again."""
        ...

    def settle(self) -> None:
        """Make durable what processes have kept, even those that died before they could."""
        ...


def store_at(place: str, options: dict[str, Any] | None = None) -> Store:
    """The store at an address of fsspec (``s3://bucket/folder``), or in a folder of this machine.

    Raises:
        OdError: the storage does not create files exclusively, or its driver is not installed.
    """
    if "://" in place:
        return FsspecStore(place.rstrip("/"), dict(options or {}))
    return LocalStore(Path(place).absolute())


def keep_detail(store: Store, text: str) -> None:
    """Confidential: keep what may be told nowhere else, in the folder ``errors``; a full disk does not let it out."""
    with suppress(Exception):
        store.create_if_absent(f"errors/{secrets.token_hex(6)}.txt", text.encode("utf-8", "backslashreplace"))


@dataclass(frozen=True)
class LocalStore:
    """A folder of mode 0700, of this machine or of one that all machines share."""

    folder: Path

    def create_if_absent(self, name: str, content: bytes | pa.Buffer, *, durable: bool = True) -> bool:
        """As :meth:`Store.create_if_absent`: written beside its place, then linked into it."""
        path = self.folder / name
        if path.exists():
            return False
        make_folder(self.folder.parent)
        make_folder(path.parent, CONFIDENTIAL_FOLDER_MODE)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        try:
            if durable:
                write_checked(temporary, lambda file: file.write(content), mode=CONFIDENTIAL_FILE_MODE)
            else:
                descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, CONFIDENTIAL_FILE_MODE)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
            try:
                path.hardlink_to(temporary)
            except FileExistsError:
                return False
            if durable:
                sync(path.parent)
            return True
        finally:
            temporary.unlink(missing_ok=True)

    def read(self, name: str) -> pa.NativeFile:
        """As :meth:`Store.read`, mapped into memory."""
        try:
            return pa.memory_map(str(self.folder / name))
        except FileNotFoundError:
            raise _missing(name) from None

    def has(self, name: str) -> bool:
        """As :meth:`Store.has`."""
        return (self.folder / name).exists()

    def list(self, prefix: str) -> list[str]:
        """As :meth:`Store.list`."""
        above, _, begins = prefix.rpartition("/")
        found = (path for path in (self.folder / above).glob("*") if path.is_file() and not path.name.startswith("."))
        return sorted(path.relative_to(self.folder).as_posix() for path in found if path.name.startswith(begins))

    def remove(self, prefix: str) -> None:
        """As :meth:`Store.remove`."""
        shutil.rmtree(self.folder / prefix, ignore_errors=True)

    def settle(self) -> None:
        """As :meth:`Store.settle`: files were made durable before they were linked, their names may not be."""
        if self.folder.is_dir():
            sync(self.folder.parent)
            for folder, _, _ in os.walk(self.folder):
                with suppress(FileNotFoundError):  # a process that was taken for dead has removed it
                    sync(Path(folder))


@dataclass(frozen=True)
class FsspecStore:
    """A folder of an object store, whose requests are durable once they are answered.

    Attributes:
        address: as ``s3://bucket/folder``.
        options: of fsspec's file system. Credentials belong into the environment of every process instead.
    """

    address: str
    options: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        protocol = self.address.partition("://")[0]
        if protocol not in _CREATE_EXCLUSIVELY:
            raise OdError(
                "OD-STORE-UNSAFE",
                f"storage {protocol!r} is not known to create files exclusively, so that two draws could be kept",
                next_step=f"use a folder, or one of {', '.join(_CREATE_EXCLUSIVELY)}",
            )

    def create_if_absent(self, name: str, content: bytes | pa.Buffer, *, durable: bool = True) -> bool:
        """As :meth:`Store.create_if_absent`; all are durable."""
        files, folder = self._files()
        try:
            files.pipe_file(f"{folder}/{name}", bytes(content), mode="create")
        except FileExistsError:
            return False
        return True

    def read(self, name: str) -> pa.NativeFile:
        """As :meth:`Store.read`."""
        files, folder = self._files()
        try:
            return pa.PythonFile(files.open(f"{folder}/{name}", "rb"), mode="r")
        except FileNotFoundError:
            raise _missing(name) from None

    def has(self, name: str) -> bool:
        """As :meth:`Store.has`."""
        files, folder = self._files()
        files.invalidate_cache()
        return bool(files.exists(f"{folder}/{name}"))

    def list(self, prefix: str) -> list[str]:
        """As :meth:`Store.list`."""
        files, folder = self._files()
        above = f"{folder}/{prefix}".rpartition("/")[0]
        files.invalidate_cache()
        try:
            found = files.ls(above, detail=True)
        except FileNotFoundError:
            return []
        names = (file["name"].removeprefix(f"{folder}/") for file in found if file["type"] == "file")
        return sorted(name for name in names if name.startswith(prefix))

    def remove(self, prefix: str) -> None:
        """As :meth:`Store.remove`."""
        files, folder = self._files()
        if files.exists(f"{folder}/{prefix}"):
            files.rm(f"{folder}/{prefix}", recursive=True)

    def settle(self) -> None:
        """As :meth:`Store.settle`; all is durable."""

    def _files(self) -> tuple[Any, str]:
        """The file system, and the folder in it; fsspec keeps one of each kind a process."""
        import fsspec

        try:
            files, folder = fsspec.url_to_fs(self.address, **self.options)
        except ImportError as error:
            raise OdError("OD-STORE-DRIVER", str(error), next_step="install fsspec's driver of this storage") from None
        return files, folder


def _missing(name: str) -> OdError:
    return OdError(
        "OD-STORE-MISSING",
        f"{name} is not in the store",
        next_step="restore it from a backup, or run the release again",
        spent="what was set aside before stays charged",
    )


# The files of a level that was measured part by part: their names, in order, and one digest of all.


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
