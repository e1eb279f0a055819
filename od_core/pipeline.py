"""Work cut into pieces: each piece on one thread through all its steps, results taken in order (spec 7, recipe 3)."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")

_WINDOW = 8
"""Pieces in flight a thread: no thread waits while whoever takes the results writes a million of them at once."""

_THIS_THREAD = threading.local()


def in_order(work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
    """``work(piece)`` of every piece, in the order of the pieces, a few of them at work at a time.

    The kernels release the interpreter's lock, so plain threads serve: no barrier, no shared output, and the
    results are the same for any number of threads. A single piece is worked on here, and so are the pieces of
    a piece. Memory is bounded by the pieces in flight.
    """
    waiting = iter(pieces)
    first = list(islice(waiting, 2))
    if len(first) < 2 or threads() == 1 or getattr(_THIS_THREAD, "has_a_piece", False):
        for piece in (*first, *waiting):
            yield work(piece)
        return
    with ThreadPoolExecutor(threads(), thread_name_prefix="od", initializer=_take_pieces) as pool:
        running: deque[Future[Result]] = deque(pool.submit(work, piece) for piece in first)
        try:
            running.extend(pool.submit(work, piece) for piece in islice(waiting, _WINDOW * threads() - 2))
            while running:
                yield running.popleft().result()
                with suppress(StopIteration):
                    running.append(pool.submit(work, next(waiting)))
        finally:
            for future in running:
                future.cancel()


def _take_pieces() -> None:
    _THIS_THREAD.has_a_piece = True


def threads() -> int:
    """Threads to work on: ``OD_THREADS``, else the processors that this process may use."""
    given = os.environ.get("OD_THREADS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else len(os.sched_getaffinity(0))
