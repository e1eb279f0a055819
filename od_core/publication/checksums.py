"""Checksums of a bundle, as ``sha256sum -c`` reads them, and what they say is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from od_core.archive.files import file_digest

CHECKSUMS = "SHA256SUMS"

_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


def checksum_lines(digests: Mapping[str, str]) -> str:
    """Return a line for every file, in the order of their names.

    Args:
        digests: SHA-256 of each file by its name: of what was meant to be written, not of what a disk gives back.
    """
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))


def stated_digests(folder: Path) -> dict[str, str]:
    """Return the checksum of every file that the checksums of a folder name; none where they cannot be read."""
    try:
        matches = map(_LINE.fullmatch, (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError):
        return {}
    return {match[2]: match[1] for match in matches if match}


def faulty_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Files that are missing, too many, or not what their checksums say: their names, and what is wrong with them."""
    try:
        lines = (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        yield CHECKSUMS, "is missing, or cannot be read"
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
            yield name, "is not what its checksum says"
