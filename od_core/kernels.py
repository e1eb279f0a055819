"""Compile kernels with Numba and cache their machine code in a folder named by a digest of the sources.

Numba identifies cached code by the source of the function itself, not by the sources of the functions that it calls.
After a change in a called function, it would run the old code. So every state of the sources has its own cache folder.
``python -m od_core.warmup`` (which ``make install`` calls) compiles all kernels at once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Callable
from functools import cache, update_wrapper
from pathlib import Path
from threading import Lock
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

_CACHE_PREFIX = "od_core-"  # beginning of the names of cache folders
_COMPILATION_LOCK = Lock()  # held while Numba reads the cache folder from its settings, which all threads share


class Kernel:
    """A function that Numba compiles at its first call. It runs without Python's global interpreter lock.

    Numba is imported at that call, because the import takes half a second, and most commands call no kernel. The
    machine code is cached for later processes if :func:`make_cache_folder` returns a folder.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        update_wrapper(self, function)
        self._function = function
        self._compiled: Any = None

    def __call__(self, *arguments: object) -> object:
        """Return the result of the compiled function. Arguments must be given by position."""
        return (self._compiled or self._compile_once())(*arguments)

    @property
    def _numba_type_(self) -> object:
        """Numba's type of this function. Numba reads it, under this name, when another kernel calls this one."""
        return self._compile_once()._numba_type_

    def _compile_once(self) -> Any:
        """Return Numba's version of the function. The first call makes it, while other threads wait."""
        with _COMPILATION_LOCK:
            if self._compiled is None:
                self._compiled = _wrap_with_numba(self._function)
            return self._compiled


kernel = cast("Callable[[Callable[P, R]], Callable[P, R]]", Kernel)
"""Decorator of the functions that become kernels."""


def _wrap_with_numba(function: Callable[..., object]) -> Any:
    """Return Numba's version of a function, which compiles at its first call and uses the cache folder."""
    import numba
    from numba.core import config

    folder = make_cache_folder()
    if folder is None:
        return numba.njit(nogil=True)(function)
    settings: Any = config  # numba sets its values from the environment on import
    previous, settings.CACHE_DIR = settings.CACHE_DIR, str(folder)  # njit reads it now, for this function alone
    try:
        return numba.njit(nogil=True, cache=True)(function)
    finally:
        settings.CACHE_DIR = previous


@cache
def make_cache_folder() -> Path | None:
    """Create the cache folder for the current source files, unless it exists, and return it; None on failure.

    The folder is in ``NUMBA_CACHE_DIR`` if that is set. Otherwise it is in the Python environment, or, if that is not
    writable, in the user's cache. A folder that other users may write to is not used, because its content is executed.
    """
    name = f"{_CACHE_PREFIX}{_compute_sources_digest()}"
    for root in _list_cache_roots():
        folder = root / name
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(folder, os.W_OK) and _belongs_to_us_alone(folder):
                return folder
        except OSError:
            continue
    return None


def _list_cache_roots() -> list[Path]:
    """Return the folders that a cache folder may be in, the preferred one first."""
    stated = os.environ.get("NUMBA_CACHE_DIR")
    if stated:
        return [Path(stated)]
    roots = [_locate_environment_cache()]
    users_cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  # Path fails without a home
    if Path(users_cache).is_absolute():
        roots.append(Path(users_cache))
    return roots


def _belongs_to_us_alone(folder: Path) -> bool:
    """Return whether a path is a folder (not a link) of this user that no other user may write to."""
    state = folder.lstat()
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o022


def _locate_environment_cache() -> Path:
    """Return the folder for caches in this Python environment."""
    return Path(sys.prefix) / "cache"


def _compute_sources_digest() -> str:
    """Return a digest of all source files with kernels: those that contain the name of this module.

    It is the first 64 bits of a SHA-256, as hexadecimal text.
    """
    digest = hashlib.sha256()
    package = Path(__file__).parent
    for source in sorted(package.rglob("*.py")):
        text = source.read_bytes()
        if b"od_core.kernels" in text:
            digest.update(str(source.relative_to(package)).encode() + b"\0" + text + b"\0")
    return digest.hexdigest()[:16]


def remove_older_caches() -> None:
    """Remove the cache folders of older sources, but only from this Python environment."""
    folder = make_cache_folder()
    if folder is not None and folder.parent == _locate_environment_cache():
        for older in set(folder.parent.glob(f"{_CACHE_PREFIX}*")) - {folder}:
            shutil.rmtree(older, ignore_errors=True)  # a process of older sources may still write into it
