"""Checksums of a bundle, as ``sha256sum -c`` reads them, and what they say is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from od_core.archive.files import file_digest

CHECKSUMS = "SHA256SUMS"

_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


def write_checksums(folder: Path, path: Path) -> None:
    """A line for every other file of a folder, in the order of their names."""
    names = sorted(file.name for file in folder.iterdir() if file.name != path.name)
    lines = [f"{file_digest(folder / name)}  {name}\n" for name in names]
    path.write_text("".join(lines), encoding="utf-8")


def faulty_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Files that are missing, too many, or not what their checksums say: their names, and what is wrong with them."""
    try:
        lines = (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        yield CHECKSUMS, "is missing, or cannot be read"
        return
    matches = [_LINE.fullmatch(line) for line in lines]
    stated = {match[2]: match[1] for match in matches if match}
    if len(stated) < len(lines):
        yield CHECKSUMS, "is damaged"
    there = {file.name for file in folder.iterdir()} - {CHECKSUMS}
    for name in sorted({*there, *stated}):
        if name not in there:
            yield name, "is missing"
        elif name not in stated:
            yield name, "does not belong to the bundle"
        elif not (folder / name).is_file() or file_digest(folder / name) != stated[name]:
            yield name, "is not what its checksum says"
