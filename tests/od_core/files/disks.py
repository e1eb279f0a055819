"""Disks that are full or lie, and systems that leave new files open to everybody, for as long as a block lasts."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file grows beyond this size, as where a disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def keep_other_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file that is made durable holds another first byte from then on, and nothing tells of it."""
    fsync = os.fsync

    def flipped(descriptor: int) -> None:
        fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_file():
            with path.open("r+b") as file:
                byte = file.read(1)
                file.seek(0)
                file.write(bytes([byte[0] ^ 1]))

    monkeypatch.setattr(os, "fsync", flipped)
