"""A bundle as one zip file beside its folder: in the order of names, without a time of its own."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from od_core.archive.files import PUBLIC_FILE_MODE

_NO_TIME = (1980, 1, 1, 0, 0, 0)
"""The first time that a zip file can name."""

_UNIX = 3


def zip_beside(folder: Path) -> Path:
    """The place of a bundle's zip file."""
    return folder.with_name(f"{folder.name}.zip")


def write_zip(folder: Path, release: str, path: Path) -> None:
    """All files of a folder, below one named after the release, as ``us_flights_2001-06_r1``.

    The same bytes for the same files, as long as the compressor is the same one.
    """
    with ZipFile(path, "w") as archive:
        for file in sorted(folder.iterdir()):
            entry = ZipInfo(f"{_top(release)}/{file.name}", _NO_TIME)
            entry.compress_type = ZIP_DEFLATED
            entry.create_system, entry.external_attr = _UNIX, PUBLIC_FILE_MODE << 16
            entry.file_size = file.stat().st_size
            with file.open("rb") as source, archive.open(entry, "w") as target:
                shutil.copyfileobj(source, target)


def zip_faults(folder: Path, release: str, path: Path) -> Iterator[str]:
    """Where a zip file is not the one of a folder; a line each, with the name of the file in it."""
    try:
        with ZipFile(path) as archive:
            held = {entry.filename: entry for entry in archive.infolist()}
            expected = {f"{_top(release)}/{file.name}": file for file in sorted(folder.iterdir())}
            found = [f"it has no {name}" for name in sorted(expected.keys() - held.keys())]
            found += [f"{name} does not belong in it" for name in sorted(held.keys() - expected.keys())]
            found += [
                f"{name} is not that of the folder"
                for name in sorted(held.keys() & expected.keys())
                if archive.read(name) != expected[name].read_bytes()
            ]
            if list(held) != list(expected) or any(entry.date_time != _NO_TIME for entry in held.values()):
                found = found or ["its files have another order, or times of their own"]
    except (OSError, BadZipFile, zlib.error):
        found = ["it is missing, damaged or no zip file"]
    yield from (f"{path.name}: {fault}" for fault in found)


def _top(release: str) -> str:
    return release.replace("/", "_")
