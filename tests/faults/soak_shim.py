"""The library that counts and disturbs file operations (``soak_shim.c``): built, armed, and its log read."""

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("soak_shim.c")
FAULTS = ("none", "kill", "tear", "eio", "dead", "full", "short")
"""What may befall an operation, in the numbers of the library.

``kill``: the process ends before it. ``tear``: some of the first pages of a write are made, how many depends on the
number of the operation, and the process ends. ``eio``:
it fails once with EIO; of ``close``, too. ``dead``: it and all later ones do. ``full``: it and all later ones that need
room fail with ENOSPC. ``short``: half of a write is made, and its length returned.
"""


def compiler() -> str | None:
    """The C compiler; None where there is none, or where the library would not work."""
    return (shutil.which("gcc") or shutil.which("cc")) if sys.platform == "linux" else None


def build(folder: Path) -> Path:
    """Compile the library into a folder."""
    library = folder / "soak_shim.so"
    options = ["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-pthread"]
    subprocess.run([str(compiler()), *options, "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return library


def loaded() -> bool:
    """Whether this process was started with the library before all others."""
    return hasattr(ctypes.CDLL(None), "soak_arm")


def arm(root: Path, log: Path, number: int = 0, fault: str = "none") -> None:
    """Count and log the operations of this process below a folder; the one of that number meets the fault."""
    ctypes.CDLL(None).soak_arm(bytes(root), bytes(log), ctypes.c_long(number), FAULTS.index(fault))


def mark(text: str) -> None:
    """Give a point of the program a number in the order of operations; it can be killed there."""
    ctypes.CDLL(None).soak_mark(text.encode())


@dataclass(frozen=True)
class Operation:
    """One operation that was made, or the fault that one met.

    Attributes:
        number: in the order of operations, from 1.
        kind: as the library names it.
        inode: of the file; 0 where it is named by its path alone.
        offset: of a write; new size, where it is cut.
        path: below the root, as ``releases/r1.zip``; the text of a mark.
        second: new path.
        data: that was written; the kind of operation that met a fault.
    """

    number: int
    kind: str
    inode: int
    offset: int
    path: str
    second: str
    data: bytes


def operations(log: Path, root: Path) -> Iterator[Operation]:
    """The operations in a log, in order."""
    content, place, above = log.read_bytes(), 0, f"{root}/"
    while place < len(content):
        end = content.index(b"\n", place)
        number, kind, inode, offset, size, path, second = content[place:end].decode().split("\t")
        place = end + 1 + int(size)
        names = (name.removeprefix(above) if name != str(root) else "" for name in (path, second))
        yield Operation(int(number), kind, int(inode), int(offset), *names, content[end + 1 : place])
