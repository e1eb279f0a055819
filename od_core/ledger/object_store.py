"""Store files that several processes write, each file once, in a folder or in a bucket of an object store.

A file is whole or absent, and never changes. If several processes create a file of the same name, only the first one
succeeds, and the others get the result False. The protocol of :mod:`od_core.flows.parts`, which ensures that each part
is drawn once, needs no other property of the storage (``docs/explanation/parts.md``).
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.durable import CONFIDENTIAL_FILE_MODE, CONFIDENTIAL_FOLDER_MODE, make_folder, sync, write_checked
from od_core.parallel import map_in_order

_EXCLUSIVE_PROTOCOLS = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory")
"""Protocols for which fsspec creates a file in one conditional request. For others, it checks first and then writes."""

_PASSWORD_OR_QUERY = re.compile(r"://[^/]*:.*@|[?]")
"""Pattern of the parts of an address that may hold a password."""

_ERROR_FOLDER = "errors"  # name of the folder of details of errors


def store_at(address: str) -> Store:
    """Return the store at an fsspec address such as ``s3://bucket/folder``, or at the path of a folder.

    Raises OdError if the storage is not known to create files exclusively, or the address may hold a password.
    """
    if "://" in address:
        return FsspecStore(address.rstrip("/"))
    return LocalStore(Path(address).absolute())


def store_error_detail(store: Store, text: str) -> None:
    """Confidential: write the details of an error to the folder ``errors``. Do nothing if they cannot be stored."""
    with suppress(Exception):
        store.create_if_absent(f"{_ERROR_FOLDER}/{secrets.token_hex(6)}.txt", text.encode("utf-8", "backslashreplace"))


def advise_to_read_details(store: Store) -> str:
    """Return the next step that names the folder of details of errors, which :func:`store_error_detail` wrote."""
    return f"read the newest files in {store.place}/{_ERROR_FOLDER}"


@dataclass(frozen=True)
class LocalStore:
    """A store of files by name, such as ``claims/level_5.part_3``, in a folder.

    The folder gets mode 0700, and is on this machine or on storage that all machines share. The object has only the
    path, so it can be sent to another process.
    """

    folder: Path

    @property
    def place(self) -> str:
        """Full path of the folder."""
        return str(self.folder.absolute())

    def create_if_absent(self, name: str, content: bytes | pa.Buffer, *, durable: bool = True) -> bool:
        """Store a file unless one of that name exists, and return whether this call stored it.

        The file is written under a temporary name, then linked. If ``durable`` is False, the file may be lost or cut
        short when the machine fails; use this for files that can be made again.
        """
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
        """Open a stored file for reading at any position, mapped into memory. Raises OdError if there is none."""
        try:
            return pa.memory_map(str(self.folder / name))
        except FileNotFoundError:
            raise _make_missing_error(name) from None

    def has(self, name: str) -> bool:
        """Return whether there is a file of that name."""
        return (self.folder / name).exists()

    def list(self, prefix: str) -> list[str]:
        """Return the names of the files that begin with a prefix and have no further ``/`` after it, sorted."""
        subfolder, _, beginning = prefix.rpartition("/")
        names = []
        for path in (self.folder / subfolder).glob("*"):
            is_temporary = path.name.startswith(".")
            if path.name.startswith(beginning) and not is_temporary and path.is_file():
                names.append(path.relative_to(self.folder).as_posix())
        return sorted(names)

    def remove(self, prefix: str) -> None:
        """Remove the folder ``prefix`` and its files. Use this only for files that can be made again."""
        shutil.rmtree(self.folder / prefix, ignore_errors=True)

    def make_files_durable(self) -> None:
        """Make all stored files durable, including files of processes that were killed before they could do so.

        The content of a file is already durable before its name exists.
        """
        if self.folder.is_dir():
            sync(self.folder.parent)
            for folder, _, _ in os.walk(self.folder):
                with suppress(FileNotFoundError):  # removed meanwhile by a process that was believed to have ended
                    sync(Path(folder))


@dataclass(frozen=True)
class FsspecStore:
    """A store like :class:`LocalStore` in a folder of an object store.

    A file is durable as soon as the request that creates it is answered.

    Raises OdError if the storage is not known to create files exclusively, or the address may hold a password.

    Attributes:
        place: address such as ``s3://bucket/folder``. Credentials belong in the environment of every process.
    """

    place: str

    def __post_init__(self) -> None:
        protocol = self.place.partition("://")[0]
        if protocol not in _EXCLUSIVE_PROTOCOLS:
            message = f"storage {protocol!r} may not create files exclusively, so two draws could both be kept"
            step = f"use a folder, or one of {', '.join(_EXCLUSIVE_PROTOCOLS)}"
            raise OdError("OD-STORE-UNSAFE", message, next_step=step)
        if _PASSWORD_OR_QUERY.search(self.place):
            message = "the address of the store holds a user and a password, or a query, which messages would show"
            step = "give them to the driver of this storage in the environment of every process"
            raise OdError("OD-STORE-ADDRESS", message, next_step=step)

    def create_if_absent(self, name: str, content: bytes | pa.Buffer, *, durable: bool = True) -> bool:
        """Store a file unless one of that name exists, and return whether this call stored it.

        The file is durable, whatever the value of ``durable``.
        """
        try:
            self._open_file_system().pipe_file(name, bytes(content), mode="create")
        except FileExistsError:
            return False
        return True

    def read(self, name: str) -> pa.NativeFile:
        """Open a stored file for reading at any position. Raises OdError if there is none."""
        try:
            return pa.PythonFile(self._open_file_system().open(name, "rb"), mode="r")
        except FileNotFoundError:
            raise _make_missing_error(name) from None

    def has(self, name: str) -> bool:
        """Return whether there is a file of that name."""
        return bool(self._open_file_system(afresh=True).exists(name))

    def list(self, prefix: str) -> list[str]:
        """Return the names of the files that begin with a prefix and have no further ``/`` after it, sorted."""
        try:
            entries = self._open_file_system(afresh=True).ls(prefix.rpartition("/")[0], detail=True)
        except FileNotFoundError:
            return []
        names = (file["name"] for file in entries if file["type"] == "file")
        return sorted(name for name in names if name.startswith(prefix))

    def remove(self, prefix: str) -> None:
        """Remove the folder ``prefix`` and its files. Use this only for files that can be made again."""
        with suppress(FileNotFoundError):
            self._open_file_system().rm(prefix, recursive=True)

    def make_files_durable(self) -> None:
        """Do nothing, because all files are durable."""

    def _open_file_system(self, *, afresh: bool = False) -> Any:
        """Return fsspec's file system of the folder; with ``afresh``, its cache of listings is emptied first.

        Raises OdError if the package of the storage is not installed.
        """
        import fsspec
        from fsspec.implementations.dirfs import DirFileSystem
        from fsspec.registry import known_implementations

        try:
            files, folder = fsspec.url_to_fs(self.place)
        except ImportError:
            storage = self.place.partition("://")[0]
            package = known_implementations[storage]["class"].partition(".")[0]
            message = f"the package of storage {storage!r} is not installed"
            raise OdError("OD-STORE-DRIVER", message, next_step=f"install {package}") from None
        if afresh:
            files.invalidate_cache()
        return DirFileSystem(folder, files)


Store = LocalStore | FsspecStore


def _make_missing_error(name: str) -> OdError:
    """Return the OdError for a file that the store lacks."""
    step = "restore it from a backup, or run the release again"
    return OdError("OD-STORE-MISSING", f"{name} is not in the store", next_step=step, spent=STAYS_CHARGED)


# Files of a level that was measured in parts.


def name_part_file(level: int, part: int) -> str:
    """Return the file name of the measurement of one part of a level."""
    return f"{_make_part_prefix(level)}{part:05d}.parquet"


def list_part_files(store: Store, level: int) -> list[str]:
    """Return the names of the stored measurement files of a level, in the order of its parts."""
    return store.list(_make_part_prefix(level))


def compute_part_digest(store: Store, name: str) -> str:
    """Return the SHA-256 of a stored file, as hexadecimal text."""
    return hashlib.sha256(store.read(name).read_buffer()).hexdigest()


def compute_level_digest(store: Store, level: int) -> str:
    """Return the SHA-256, as hexadecimal text, of the joined digests of a level's part files, in their order."""
    digests = map_in_order(lambda name: compute_part_digest(store, name), list_part_files(store, level))
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _make_part_prefix(level: int) -> str:
    """Return the beginning of the names of the measurement files of a level's parts."""
    return f"parts/noisy_measurement_{level}.part_"
