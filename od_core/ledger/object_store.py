"""Store files that several processes write, each file once, in a folder or in a bucket of an object store.

A file is whole or absent, and never changes. If several processes create the same file, the first one wins, and the
others are told. The protocol of :mod:`od_core.flows.parts`, by which each part is drawn once
(``docs/explanation/parts.md``), asks
no more of storage.
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

from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.checked_file import write_checked
from od_core.files.durable import CONFIDENTIAL_FILE_MODE, CONFIDENTIAL_FOLDER_MODE, make_folder, sync
from od_core.parallel import in_order

_CREATE_EXCLUSIVELY = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory")
"""Protocols for which fsspec's file systems create a file in one conditional request. Others check, then write."""


class Store(Protocol):
    """A store of files by name, such as ``claims/level_5.part_3``, that can be sent to another process."""

    def create_if_absent(self, name: str, content: bytes | pa.Buffer, *, durable: bool = True) -> bool:
        """Keep a file unless one of that name exists; return whether it was kept.

        A file that is not ``durable`` may be lost or cut short if the machine fails. Use it only for files that can be
        made again.
        """
        ...

    def read(self, name: str) -> pa.NativeFile:
        """Open a kept file for reading at any position. Raises OdError if there is none."""
        ...

    def has(self, name: str) -> bool:
        """Return whether there is a file of that name."""
        ...

    def list(self, prefix: str) -> list[str]:
        """Return the sorted names that begin with a prefix, but none in a deeper folder than the prefix."""
        ...

    def remove(self, prefix: str) -> None:
        """Remove a folder, whose files can be made again."""
        ...

    def settle(self) -> None:
        """Make all kept files durable, even those of processes that died before they could."""
        ...


def store_at(place: str, options: dict[str, Any] | None = None) -> Store:
    """Return the store at an address such as ``s3://bucket/folder`` (of fsspec), or in a folder of this machine.

    Raises:
        OdError: the storage is not known to create files exclusively.
    """
    if "://" in place:
        return FsspecStore(place.rstrip("/"), dict(options or {}))
    return LocalStore(Path(place).absolute())


def keep_detail(store: Store, text: str) -> None:
    """Confidential: keep the details of an error in the folder ``errors``. A full disk does not let them out."""
    with suppress(Exception):
        store.create_if_absent(f"errors/{secrets.token_hex(6)}.txt", text.encode("utf-8", "backslashreplace"))


@dataclass(frozen=True)
class LocalStore:
    """A store in a folder of mode 0700, on this machine or on storage that all machines share."""

    folder: Path

    def create_if_absent(self, name: str, content: bytes | pa.Buffer, *, durable: bool = True) -> bool:
        """Create as :meth:`Store.create_if_absent`: write the file beside its place, then link it into place."""
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
        """Open as :meth:`Store.read`, mapped into memory."""
        try:
            return pa.memory_map(str(self.folder / name))
        except FileNotFoundError:
            raise _missing(name) from None

    def has(self, name: str) -> bool:
        """Check as :meth:`Store.has`."""
        return (self.folder / name).exists()

    def list(self, prefix: str) -> list[str]:
        """List as :meth:`Store.list`."""
        above, _, begins = prefix.rpartition("/")
        found = (path for path in (self.folder / above).glob("*") if path.is_file() and not path.name.startswith("."))
        return sorted(path.relative_to(self.folder).as_posix() for path in found if path.name.startswith(begins))

    def remove(self, prefix: str) -> None:
        """Remove as :meth:`Store.remove`."""
        shutil.rmtree(self.folder / prefix, ignore_errors=True)

    def settle(self) -> None:
        """Settle as :meth:`Store.settle`: files are durable before they are linked, but their names may not be."""
        if self.folder.is_dir():
            sync(self.folder.parent)
            for folder, _, _ in os.walk(self.folder):
                with suppress(FileNotFoundError):  # removed by a process that was taken for dead
                    sync(Path(folder))


@dataclass(frozen=True)
class FsspecStore:
    """A folder of an object store, whose requests are durable once they are answered.

    Attributes:
        address: address such as ``s3://bucket/folder``.
        options: options of fsspec's file system. Credentials belong in the environment of every process instead.

    Raises:
        OdError: the storage is not known to create files exclusively.
    """

    address: str
    options: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        protocol = self.address.partition("://")[0]
        if protocol not in _CREATE_EXCLUSIVELY:
            raise OdError(
                "OD-STORE-UNSAFE",
                f"storage {protocol!r} may not create files exclusively, so two draws could both be kept",
                next_step=f"use a folder, or one of {', '.join(_CREATE_EXCLUSIVELY)}",
            )

    def create_if_absent(self, name: str, content: bytes | pa.Buffer, *, durable: bool = True) -> bool:
        """Create as :meth:`Store.create_if_absent`; all files are durable."""
        files, folder = self._files()
        try:
            files.pipe_file(f"{folder}/{name}", bytes(content), mode="create")
        except FileExistsError:
            return False
        return True

    def read(self, name: str) -> pa.NativeFile:
        """Open as :meth:`Store.read`."""
        files, folder = self._files()
        try:
            return pa.PythonFile(files.open(f"{folder}/{name}", "rb"), mode="r")
        except FileNotFoundError:
            raise _missing(name) from None

    def has(self, name: str) -> bool:
        """Check as :meth:`Store.has`."""
        files, folder = self._files()
        files.invalidate_cache()
        return bool(files.exists(f"{folder}/{name}"))

    def list(self, prefix: str) -> list[str]:
        """List as :meth:`Store.list`."""
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
        """Remove as :meth:`Store.remove`."""
        files, folder = self._files()
        if files.exists(f"{folder}/{prefix}"):
            files.rm(f"{folder}/{prefix}", recursive=True)

    def settle(self) -> None:
        """Do nothing: all files are durable."""

    def _files(self) -> tuple[Any, str]:
        """Return the file system and the folder in it. The file system is shared within a process by fsspec's cache."""
        import fsspec

        try:
            files, folder = fsspec.url_to_fs(self.address, **self.options)
        except ImportError as error:
            raise OdError(
                "OD-STORE-DRIVER", str(error), next_step="install the fsspec driver for this storage"
            ) from None
        return files, folder


def _missing(name: str) -> OdError:
    return OdError(
        "OD-STORE-MISSING",
        f"{name} is not in the store",
        next_step="restore it from a backup, or run the release again",
        spent=STAYS_CHARGED,
    )


# Files of a level that was measured part by part.


def part_file(level: int, part: int) -> str:
    """Return the file name of a part's measurement of a level."""
    return f"{_begin(level)}{part:05d}.parquet"


def part_files(store: Store, level: int) -> list[str]:
    """Return the names of a level's kept measurements, in the order of the parts."""
    return store.list(_begin(level))


def part_digest(store: Store, name: str) -> str:
    """Return the SHA-256 of a kept file."""
    return hashlib.sha256(store.read(name).read_buffer()).hexdigest()


def level_digest(digests: Sequence[str]) -> str:
    """Return the SHA-256 over the digests of all parts of a level, in order."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def kept_digest(store: Store, level: int) -> str:
    """Return the digest of a level, computed from its files."""
    return level_digest(list(in_order(lambda name: part_digest(store, name), part_files(store, level))))


def _begin(level: int) -> str:
    return f"parts/noisy_measurement_{level}.part_"
