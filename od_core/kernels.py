"""Compile kernels with Numba and cache the machine code of each in a folder named by a digest of what it follows from.

Numba identifies cached code by the source file of the function itself, not by the functions that it calls. After a
change in a called function in another file, it would run the old code. So every state of a kernel has its own folder:
of its source file, of the kernels that it calls, directly or not, and of the constants that these read.
``python -m od_core.warmup`` (which ``make install`` calls) compiles all kernels at once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from functools import cache, update_wrapper
from pathlib import Path
from threading import Lock
from types import CodeType, ModuleType
from typing import Any

import numpy as np

_NAME = "od_core-kernels"
_PREFIX = "od_core-"
"""Beginning of the name of this folder, and of those of earlier versions."""

_CREATION = Lock()
"""Held while Numba reads the cache folder from its settings, which all threads share."""


class Kernel:
    """A function that Numba compiles at its first call. It runs without Python's global interpreter lock.

    Numba is imported at that call, because the import takes half a second, and most commands call no kernel. The
    machine code is cached for later processes if :func:`cache_folder` returns a folder.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self._function = function
        self._compiled: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function."""
        return (self._compiled or self._dispatcher())(*arguments)

    @property
    def _numba_type_(self) -> Any:
        """The type by which another kernel that calls this one is compiled; Numba looks it up by this name."""
        return self._dispatcher()._numba_type_

    def _dispatcher(self) -> Any:
        with _CREATION:
            if self._compiled is None:
                self._compiled = _njit(self._function)
            return self._compiled


kernel = Kernel
"""Decorator of the functions that become kernels."""


def _njit(function: Callable[..., Any]) -> Any:
    """Return Numba's dispatcher of a function."""
    import numba
    from numba.core import config

    folder = cache_folder()
    if folder is None:
        return numba.njit(nogil=True)(function)
    state = _state(function)
    _USED.add(state)
    settings: Any = config  # numba sets its values from the environment on import
    previous, settings.CACHE_DIR = settings.CACHE_DIR, str(folder / state)  # njit reads it now, for this function alone
    try:
        return numba.njit(nogil=True, cache=True)(function)
    finally:
        settings.CACHE_DIR = previous


@cache
def cache_folder() -> Path | None:
    """Return the folder of all machine code, and create it if it is missing. Return None on failure.

    The folder is in ``NUMBA_CACHE_DIR`` if that is set. Otherwise it is in the Python environment, or, if that is not
    writable, in the user's cache. A folder that other users may write to is not used, because its content is executed.
    """
    for place in _places():
        folder = place / _NAME
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(folder, os.W_OK) and _is_ours(folder):
                return folder
        except OSError:
            continue
    return None


def _places() -> list[Path]:
    """Return the folders in which compiled functions are looked for, the preferred one first."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return [Path(given)]
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  # Path fails without a home
    return [_environment_cache(), Path(home)] if Path(home).is_absolute() else [_environment_cache()]


def _is_ours(folder: Path) -> bool:
    """Return whether a path is a folder (not a link) of this user that no other user may write to."""
    state = folder.lstat()
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o022


def _environment_cache() -> Path:
    return Path(sys.prefix) / "cache"


def _state(function: Callable[..., Any]) -> str:
    """Return a digest of all that the machine code of a function follows from, but for the versions of packages.

    Numba itself compiles again for another version of Numba or another processor.
    """
    digest = hashlib.sha256(_content(function.__code__.co_filename))
    known, waiting = [function], [function]
    while waiting:
        for part in _parts(waiting.pop()):
            if not isinstance(part, Kernel):
                digest.update(f"{part}\0".encode())
            elif part._function not in known:
                known.append(part._function)
                waiting.append(part._function)
    return digest.hexdigest()[:32]


@cache
def _content(path: str) -> bytes:
    """Return the bytes of a source file; none if it is in an archive, where Numba keeps no code."""
    file = Path(path)
    return file.read_bytes() if file.is_file() else b""


def _parts(function: Callable[..., Any]) -> Iterator[object]:
    """Yield the kernels that a function names, and texts that state its code and the values of what else it names."""
    nonlocals = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    named = {**function.__globals__, **{name: cell.cell_contents for name, cell in nonlocals}}
    codes = [function.__code__]
    for code in codes:
        constants = [one for one in code.co_consts if one is not function.__doc__]
        codes += [one for one in constants if isinstance(one, CodeType)]
        yield (function.__qualname__, code.co_code, code.co_argcount, code.co_names, code.co_varnames)
        yield [one for one in constants if not isinstance(one, CodeType)]
        for name in (*code.co_names, *code.co_freevars):
            value = named.get(name)
            if isinstance(value, ModuleType):  # of which a function may name a kernel
                yield from (one for one in map(vars(value).get, code.co_names) if isinstance(one, Kernel))
            elif isinstance(value, np.ndarray):
                yield (name, value.dtype.str, value.shape, value.tobytes())
            elif isinstance(value, (bool, int, float, complex, str, bytes, tuple, np.generic, Kernel)):
                yield value if isinstance(value, Kernel) else (name, value)


_USED = set[str]()
"""States of the kernels that this process has compiled or read."""


def remove_older() -> None:
    """Remove the machine code that this process has not used, but only from this Python environment."""
    folder = cache_folder()
    if folder is not None and folder.parent == _environment_cache():
        used = {folder / state for state in _USED}
        for older in {*folder.parent.glob(f"{_PREFIX}*"), *folder.iterdir()} - {folder, *used}:
            shutil.rmtree(older, ignore_errors=True)  # a process of older sources may still write into it
