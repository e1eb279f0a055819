"""Name the files of a bundle, and find those that are damaged, by its checksums and in its zip file."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, BinaryIO
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from od_core.errors import OdError
from od_core.files.durable import PUBLIC_FILE_MODE, compute_file_digest, write_checked
from od_core.publication.certificate import read_certificate
from od_core.publication.file_formats import is_readable

CERTIFICATE, CHECKSUMS = "certificate.json", "SHA256SUMS"
SCHEMA = "certificate.schema.json"
REPORT, ATLAS = "report.html", "atlas.html"
PACKAGE = "datapackage.json"
PARQUET = {
    "areas": "areas.parquet",
    "flows": "flows.parquet",
    "measurements": "noisy_measurements.parquet",
    "known_totals": "known_totals.parquet",
    "segment_flows": "segments.parquet",
    "segment_measurements": "segment_measurements.parquet",
}
"""Files of a bundle from which a release of flows can be read again, by the names of their tables in the database.

Those of segments are there only with breakdowns, and known totals only if there are some."""

BOUNDARIES = "boundaries.parquet"

TABLES = "tables"
"""Folder of a bundle with its tables as Parquet and CSV. Files of other formats are in the folder of their format."""

NOTICE = ".withdrawn.json"
"""End of the name of the file that stands in place of a withdrawn bundle and its zip file."""

WITHDRAWN_COPIES = PurePath("confidential", "withdrawn")
"""Place below the folder of all output with copies of withdrawn bundles, which only the owner can read."""

_CHECKSUM_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


def list_bundle_contents(folder: Path) -> dict[str, Path]:
    """Return the paths of a bundle's files and empty folders, by their names below its folder, in that order."""
    contents = {}
    for path in folder.rglob("*"):
        is_filled_folder = path.is_dir() and not path.is_symlink() and any(path.iterdir())
        if not is_filled_folder:
            contents[path.relative_to(folder).as_posix()] = path
    return dict(sorted(contents.items()))


def locate_table(bundle: Path, name: str) -> Path:
    """Return the path of a Parquet or CSV table of a bundle of any format; ``name`` is that of its file.

    It is in the folder of tables or, in bundles of the first formats, in the bundle's own folder.
    """
    path, path_without_folder = bundle / TABLES / name, bundle / name
    return path if path.exists() or not path_without_folder.exists() else path_without_folder


def find_json_object(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file as a dict; None if the file cannot be read or contains something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def read_release_name(bundle: Path) -> str:
    """Return the name of the release in a bundle's certificate, such as ``us_flights/2001-06/r1``."""
    return read_certificate(bundle / CERTIFICATE)["release"]


def format_checksums(digests: Mapping[str, str]) -> str:
    """Return the text of ``SHA256SUMS``, in the order of the names, given the SHA-256 of each file by its name."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))


def read_checksums(folder: Path) -> dict[str, str]:
    """Return the checksums in a folder's ``SHA256SUMS``, by file name; an empty dict if that file cannot be read."""
    checksums = {}
    for line in _read_checksum_lines(folder) or ():
        match = _CHECKSUM_LINE.fullmatch(line)
        if match:
            digest, name = match.groups()
            checksums[name] = digest
    return checksums


def _read_checksum_lines(folder: Path) -> list[str] | None:
    """Return the lines of ``SHA256SUMS``; None if it cannot be read. Only line feeds end lines (``sha256sum -c``)."""
    try:
        return (folder / CHECKSUMS).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError):
        return None


def check_checksums(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the fault, in words, of each file that is missing, unexpected or unlike its checksum."""
    lines = _read_checksum_lines(folder)
    if lines is None:
        yield CHECKSUMS, "is missing or cannot be read"
        return
    digests = read_checksums(folder)
    if len(digests) < len(lines):  # a line is not a checksum, or names the file of another one
        yield CHECKSUMS, "is damaged"
    present = list_bundle_contents(folder).keys() - {CHECKSUMS}
    for name in sorted(present | digests.keys()):
        if name not in present:
            yield name, "is missing"
        elif name not in digests:
            yield name, "does not belong to the bundle"
        elif not (folder / name).is_file() or compute_file_digest(folder / name) != digests[name]:
            yield name, "does not match its checksum"


def check_bundle(folder: Path) -> Iterator[str]:
    """Yield one line per fault of a bundle's files and its zip file, which begins with the file's name."""
    faults = dict(check_checksums(folder))
    yield from (f"{name} {fault}" for name, fault in faults.items())
    for name, file in list_bundle_contents(folder).items():
        if name not in faults and not is_readable(file):
            yield f"{name} cannot be read, although it matches its checksum"
    if find_json_object(folder / CERTIFICATE) is not None:
        yield from check_zip(folder, read_release_name(folder), locate_zip(folder))


_EARLIEST_TIME = (1980, 1, 1, 0, 0, 0)
"""Earliest time that a zip file can state. Every entry has this time, so that it does not change the bytes."""

_UNIX_SYSTEM = 3
"""Number that marks the file mode of a zip file's entry as one of Unix."""

_COMPRESSION_LEVEL = 5
"""Level of compression. For bundles of text, level 6 takes twice the time of level 5 to make files 2 % smaller."""

_LARGE_FILE_BYTES = 2**30
"""Sizes above this, in bytes, get the fields that files above 2 GiB need."""

_ZIP_DAMAGE = (OSError, BadZipFile, KeyError, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""Exceptions that ``zipfile`` raises for damaged files: wrong sizes, checksums, compressed bytes and flags."""


def locate_zip(folder: Path) -> Path:
    """Return the path of a bundle's zip file, which is beside its folder."""
    return folder.with_name(f"{folder.name}.zip")


def name_top_folder(release: str) -> str:
    """Return the name of the one folder in a release's zip file, such as ``us_flights_2001-06_r1``."""
    return release.replace("/", "_")


def write_zip(folder: Path, release: str, path: Path) -> None:
    """Write all files of a folder to a zip file, and check it.

    In the zip file, the files are in a folder that is named after the release (:func:`name_top_folder`). The entries
    are in the order of their names, and all state the same time. The same files give the same bytes with the same
    compressor.

    Raises:
        OSError, OdError: as in :func:`od_core.files.durable.write_checked`; or the zip file does not match the folder.
    """

    def write(target: BinaryIO) -> None:
        """Write the zip file to an open file."""
        with ZipFile(target, "w", ZIP_DEFLATED, compresslevel=_COMPRESSION_LEVEL) as archive:
            for inner_name, file in list_bundle_contents(folder).items():
                name = f"{name_top_folder(release)}/{inner_name}"
                is_large = file.stat().st_size > _LARGE_FILE_BYTES
                with file.open("rb") as source, archive.open(name, "w", force_zip64=is_large) as compressed:
                    shutil.copyfileobj(source, compressed)
                entry = archive.getinfo(name)
                entry.create_system, entry.external_attr = _UNIX_SYSTEM, PUBLIC_FILE_MODE << 16

    write_checked(path, write, mode=PUBLIC_FILE_MODE, from_disk=True)
    faults = list(check_zip(folder, release, path))
    if faults:
        raise OdError(
            "OD-FILE-DAMAGED",
            f"the zip file was written, but does not match the bundle: {'; '.join(faults)}",
            next_step="check the disk, then run the release again",
            spent="nothing more was spent",
        )


def check_zip(folder: Path, release: str, path: Path) -> Iterator[str]:
    """Yield one line for each difference between a zip file and a folder; each line begins with the zip file's name.

    A file is compared with its checksum in the folder's ``SHA256SUMS`` or, without one, with the file in the folder.
    """
    try:
        with ZipFile(path) as archive:
            faults = _list_zip_faults(archive, folder, name_top_folder(release))
    except _ZIP_DAMAGE:
        faults = ["it is missing, damaged or not a zip file"]
    yield from (f"{path.name}: {fault}" for fault in faults)


def _list_zip_faults(archive: ZipFile, folder: Path, top_folder: str) -> list[str]:
    """Return the differences between an open zip file and a bundle's folder, in words.

    ``top_folder`` is the name of the one folder in the zip file. Raises one of :data:`_ZIP_DAMAGE` for a damaged one.
    """
    digests = read_checksums(folder)
    entries = {entry.filename: entry for entry in archive.infolist()}
    expected = {f"{top_folder}/{inner_name}": inner_name for inner_name in list_bundle_contents(folder)}
    faults = [f"{name} is missing from it" for name in sorted(expected.keys() - entries.keys())]
    faults += [f"{name} does not belong in it" for name in sorted(entries.keys() - expected.keys())]
    for name in sorted(entries.keys() & expected.keys()):
        inner_name = expected[name]
        digest = digests.get(inner_name) or compute_file_digest(folder / inner_name)
        if _compute_entry_digest(archive, name) != digest:
            faults.append(f"{name} differs from the file in the folder")
    has_other_times = any(entry.date_time != _EARLIEST_TIME for entry in entries.values())
    if not faults and (list(entries) != list(expected) or has_other_times):
        faults.append("its files have a different order or different times")
    return faults


def is_zip_sound(release: str, path: Path) -> bool:
    """Return whether a zip file contains a bundle of a release in which every file matches its checksum."""
    top_folder = f"{name_top_folder(release)}/"
    try:
        with ZipFile(path) as archive:
            names = {name.removeprefix(top_folder): name for name in archive.namelist()}
            names.pop(CHECKSUMS, None)
            digests = {inner_name: _compute_entry_digest(archive, name) for inner_name, name in names.items()}
            return archive.read(f"{top_folder}{CHECKSUMS}") == format_checksums(digests).encode()
    except _ZIP_DAMAGE:
        return False


def _compute_entry_digest(archive: ZipFile, name: str) -> str:
    """Return the SHA-256 of the uncompressed bytes of a zip file's entry."""
    with archive.open(name) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # readable, as required
