"""Write and check the checksums of a bundle, as ``sha256sum -c`` reads them, and its zip file."""

from __future__ import annotations

import hashlib
import re
import shutil
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from od_core.errors import OdError
from od_core.files.checked_file import write_checked
from od_core.files.durable import PUBLIC_FILE_MODE, file_digest

CERTIFICATE = "certificate.json"
CHECKSUMS = "SHA256SUMS"

_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


def checksum_lines(digests: Mapping[str, str]) -> str:
    """Return the text of ``SHA256SUMS``: one line per file, in the order of the names.

    Args:
        digests: SHA-256 of each file, by name. Compute it from the bytes to write, not from bytes read from the disk.
    """
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))


def stated_digests(folder: Path) -> dict[str, str]:
    """Return the checksums in a folder's ``SHA256SUMS``, by file name; an empty dict if that file cannot be read."""
    try:
        matches = map(_LINE.fullmatch, _lines(folder))
    except (OSError, UnicodeDecodeError):
        return {}
    return {match[2]: match[1] for match in matches if match}


def _lines(folder: Path) -> list[str]:
    """Return the lines of ``SHA256SUMS``; only a line feed ends one, as for ``sha256sum -c``."""
    return (folder / CHECKSUMS).read_text(encoding="utf-8").removesuffix("\n").split("\n")


def faulty_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the fault, in words, of each file that is missing, unexpected or unlike its checksum."""
    try:
        lines = _lines(folder)
    except (OSError, UnicodeDecodeError):
        yield CHECKSUMS, "is missing or cannot be read"
        return
    stated = stated_digests(folder)
    if len(stated) < len(lines):
        yield CHECKSUMS, "is damaged"
    there = {file.name for file in folder.iterdir()} - {CHECKSUMS}
    for name in sorted({*there, *stated}):
        if name not in there:
            yield name, "is missing"
        elif name not in stated:
            yield name, "does not belong to the bundle"
        elif not (folder / name).is_file() or file_digest(folder / name) != stated[name]:
            yield name, "does not match its checksum"


_NO_TIME = (1980, 1, 1, 0, 0, 0)
"""Earliest time that a zip file can state. Every entry has this time, so that it does not change the bytes."""

_UNIX = 3


def zip_beside(folder: Path) -> Path:
    """Return the path of a bundle's zip file, which is beside its folder."""
    return folder.with_name(f"{folder.name}.zip")


def write_zip(folder: Path, release: str, path: Path) -> None:
    """Write all files of a folder to a zip file, and check it.

    In the zip file, they are in a folder named after the release, such as ``us_flights_2001-06_r1``. The entries are in
    the order of names and all have the same time. The same files give the same bytes with the same version of the
    compressor.

    Raises:
        OSError, OdError: as in :func:`od_core.files.checked_file.write_checked`; or the zip file does not match the
            folder.
    """

    def write(target: BinaryIO) -> None:
        with ZipFile(target, "w") as archive:
            for file in sorted(folder.iterdir()):
                entry = ZipInfo(f"{_top(release)}/{file.name}", _NO_TIME)
                entry.compress_type = ZIP_DEFLATED
                entry.create_system, entry.external_attr = _UNIX, PUBLIC_FILE_MODE << 16
                entry.file_size = file.stat().st_size
                with file.open("rb") as source, archive.open(entry, "w") as compressed:
                    shutil.copyfileobj(source, compressed)

    write_checked(path, write, mode=PUBLIC_FILE_MODE, from_disk=True)
    if faults := list(zip_faults(folder, release, path)):
        raise OdError(
            "OD-FILE-DAMAGED",
            f"the zip file was written, but does not match the bundle: {'; '.join(faults)}",
            next_step="check the disk, then run the release again",
            spent="nothing more was spent",
        )


def zip_faults(folder: Path, release: str, path: Path) -> Iterator[str]:
    """Yield one line for each difference between a zip file and a folder; each line begins with the zip file's name.

    Each file in the zip file is compared with its checksum in the folder's ``SHA256SUMS``. A file without a checksum is
    compared with the file in the folder.
    """
    stated = stated_digests(folder)
    try:
        with ZipFile(path) as archive:
            held = {entry.filename: entry for entry in archive.infolist()}
            expected = {f"{_top(release)}/{file.name}": file for file in sorted(folder.iterdir())}
            found = [f"{name} is missing from it" for name in sorted(expected.keys() - held.keys())]
            found += [f"{name} does not belong in it" for name in sorted(held.keys() - expected.keys())]
            found += [
                f"{name} differs from the file in the folder"
                for name in sorted(held.keys() & expected.keys())
                if _digest(archive, name) != (stated.get(expected[name].name) or file_digest(expected[name]))
            ]
            if list(held) != list(expected) or any(entry.date_time != _NO_TIME for entry in held.values()):
                found = found or ["its files have a different order or different times"]
    except _BROKEN:
        found = ["it is missing, damaged or not a zip file"]
    yield from (f"{path.name}: {fault}" for fault in found)


def zip_is_sound(release: str, path: Path) -> bool:
    """Return whether a zip file contains a bundle of a release in which every file matches its checksum."""
    top = f"{_top(release)}/"
    try:
        with ZipFile(path) as archive:
            digests = {name.removeprefix(top): _digest(archive, name) for name in archive.namelist()}
            digests.pop(CHECKSUMS, None)
            return archive.read(f"{top}{CHECKSUMS}") == checksum_lines(digests).encode()
    except _BROKEN:
        return False


_BROKEN = (OSError, BadZipFile, KeyError, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""Exceptions that ``zipfile`` raises for damaged files: wrong sizes, checksums, compressed bytes and flags."""


def _digest(archive: ZipFile, name: str) -> str:
    with archive.open(name) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # readable, as required


def _top(release: str) -> str:
    return release.replace("/", "_")
