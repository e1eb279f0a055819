"""What a power cut may leave of a folder, by the operations that were made in it: an ordered and a strict model.

Both keep what was synced. ``ordered`` is a journalling file system: names change in the order in which they were
changed, up to the cut or to some point after the last sync; data that was not synced is there, partly there, missing,
or zeros where the file has grown. ``strict`` is what POSIX promises and no more: every name and every page of data that
was not synced is there or not, each by itself; a name is synced with its folder, not with its file.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.soak_shim import Operation

MODELS = ("ordered", "strict")
PAGE = 4096


@dataclass(eq=False)
class File:
    """Bytes, those that are safe, and what happened to them since.

    Attributes:
        content: as a running system sees it.
        durable: at the last sync.
        pending: writes (offset and data) and cuts (new size and None) since then.
    """

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def change(self, offset: int, data: bytes | None) -> None:
        _change(self.content, offset, data)
        self.pending.append((offset, data))

    def sync(self) -> None:
        self.durable, self.pending = bytes(self.content), []


@dataclass(eq=False)
class Folder:
    """Names, and of each that changed since the last sync all that it stood for, from then on."""

    names: dict[str, File | Folder] = field(default_factory=dict)
    pending: dict[str, list[File | Folder | None]] = field(default_factory=dict)

    def bind(self, name: str, node: File | Folder | None) -> None:
        self.pending.setdefault(name, [self.names.get(name)]).append(node)
        if node is None:
            self.names.pop(name, None)
        else:
            self.names[name] = node


class Disk:
    """A folder as it stands, all of it safe, and what becomes of it by operations."""

    def __init__(self, root: Path) -> None:
        self._files: dict[int, File] = {}
        self.root = self._read(root)

    def _read(self, place: Path) -> Folder:
        folder = Folder()
        for path in place.iterdir():
            if path.is_dir():
                folder.names[path.name] = self._read(path)
            else:
                content = path.read_bytes()
                file = self._files.setdefault(path.stat().st_ino, File(bytearray(content), content))
                folder.names[path.name] = file
        return folder

    def apply(self, done: Iterable[Operation]) -> None:
        """Make operations, in order."""
        for operation in done:
            self._apply(operation)

    def _apply(self, done: Operation) -> None:
        if done.kind in ("MARK", "FAULT"):
            return
        folder, name = self._place(done.path)
        if done.kind == "CREATE":
            self._files[done.inode] = File()
            folder.bind(name, self._files[done.inode])
        elif done.kind == "WRITE":
            self._files[done.inode].change(done.offset, done.data)
        elif done.kind == "TRUNCATE":
            file = self._files[done.inode] if done.inode else folder.names[name]
            file.change(done.offset, None)
        elif done.kind == "SYNC" and done.inode in self._files:
            self._files[done.inode].sync()
        elif done.kind == "SYNC":
            (folder.names[name] if name else self.root).pending.clear()
        elif done.kind == "MKDIR":
            folder.bind(name, Folder())
        elif done.kind in ("UNLINK", "RMDIR"):
            folder.bind(name, None)
        elif done.kind in ("RENAME", "EXCHANGE", "LINK"):
            other, new = self._place(done.second)
            first, second = folder.names[name], other.names.get(new)
            other.bind(new, first)
            if done.kind != "LINK":
                folder.bind(name, second if done.kind == "EXCHANGE" else None)

    def _place(self, path: str) -> tuple[Folder, str]:
        """The folder of a path, and its name there."""
        *above, name = path.split("/")
        folder = self.root
        for part in above:
            folder = folder.names[part]
        return folder, name

    def contents(self) -> dict[str, bytes]:
        """The bytes of every file by its path, as a running system sees them."""
        return dict(_contents(self.root, ""))

    def write(self, place: Path, chance: random.Random, model: str) -> None:
        """Make one of the folders that a power cut may leave now."""
        _write(self.root, place, chance, model, {})


def kept_by_cut(made: Sequence[Operation], chance: random.Random, model: str) -> list[Operation]:
    """The operations, of those that were made before a power cut, whose names it may keep.

    Of an ordered file system these are all up to some point after the last sync; of a strict one each is decided later.
    """
    synced = max((place for place, done in enumerate(made) if done.kind == "SYNC"), default=-1) + 1
    ordered = model == "ordered" and chance.random() < 0.5
    return list(made[: chance.randint(synced, len(made))] if ordered else made)


def _contents(folder: Folder, above: str) -> Iterator[tuple[str, bytes]]:
    for name, node in folder.names.items():
        if isinstance(node, Folder):
            yield from _contents(node, f"{above}{name}/")
        else:
            yield above + name, bytes(node.content)


def _write(folder: Folder, place: Path, chance: random.Random, model: str, written: dict[File, Path]) -> None:
    place.mkdir(exist_ok=True)
    names = dict(folder.names)
    if model == "strict":
        kept = {name: chance.choice(stood_for) for name, stood_for in folder.pending.items()}
        names = {name: node for name, node in (names | kept).items() if node is not None}
    for name, node in names.items():
        if isinstance(node, Folder):
            _write(node, place / name, chance, model, written)
        elif node in written:
            (place / name).hardlink_to(written[node])
        else:
            written[node] = place / name
            (place / name).write_bytes((_strict if model == "strict" else _ordered)(node, chance))


def _ordered(file: File, chance: random.Random) -> bytes:
    """All that was written, the first of it, none of it, or zeros where the file has grown."""
    left = bytearray(file.durable)
    fate = chance.choice(("all", "first", "none", "zeros"))
    for offset, data in file.pending[: chance.randint(0, len(file.pending)) if fate == "first" else None]:
        if data is None or fate != "none":
            _change(left, offset, data)
    if fate == "zeros":
        left[len(file.durable) :] = bytes(max(0, len(left) - len(file.durable)))
    return bytes(left)


def _strict(file: File, chance: random.Random) -> bytes:
    """Every page of every write, and every cut, is there or not."""
    left = bytearray(file.durable)
    for offset, data in file.pending:
        if data is None:
            if chance.random() < 0.5:
                _change(left, offset, None)
            continue
        start = 0
        while start < len(data):
            end = min(len(data), start + PAGE - (offset + start) % PAGE)
            if chance.random() < 0.5:
                _change(left, offset + start, data[start:end])
            start = end
    return bytes(left)


def _change(content: bytearray, offset: int, data: bytes | None) -> None:
    """Write data at a place, or cut to a size; what lies between is zeros."""
    end = offset + len(data or b"")
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if data is None:
        del content[offset:]
    else:
        content[offset:end] = data
