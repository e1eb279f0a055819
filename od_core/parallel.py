"""Run work on pieces in several threads, each piece on one thread through all its steps, and take results in order."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")

_WINDOW = 8
"""Pieces in flight per thread. With this many, no thread waits while the consumer writes a million values at once."""

_THIS_THREAD = threading.local()


def in_order(work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
    """Yield ``work(piece)`` for every piece, in the order of the pieces.

    The kernels release the interpreter's lock, so plain threads suffice. There is no barrier and no shared output, and
    the results are the same for any number of threads. The calling thread also works instead of waiting, because one
    thread more than there are processors would hold up the others at the lock. A single piece is worked on in the
    calling thread, and so are the pieces of a piece. The number of pieces in flight bounds the memory.
    """
    waiting = iter(pieces)
    first = list(islice(waiting, 2))
    if len(first) < 2 or threads() == 1 or getattr(_THIS_THREAD, "has_a_piece", False):
        for piece in (*first, *waiting):
            yield work(piece)
        return
    with ThreadPoolExecutor(threads() - 1, thread_name_prefix="od", initializer=_take_pieces) as others:
        running: deque[tuple[Piece, Future[Result]]] = deque()

        def submit(some: Iterable[Piece]) -> None:
            running.extend((piece, others.submit(work, piece)) for piece in some)

        submit(first)
        try:
            submit(islice(waiting, _WINDOW * threads() - 2))
            while running:
                while not running[0][1].done() and _work_here(work, running):
                    pass
                yield running.popleft()[1].result()
                with suppress(StopIteration):
                    submit([next(waiting)])
        finally:
            for _piece, future in running:
                future.cancel()


def _work_here(work: Callable[[Piece], Result], running: deque[tuple[Piece, Future[Result]]]) -> bool:
    """Work on the first piece that no thread has begun. Return False if there is none."""
    for place, (piece, future) in enumerate(running):
        if future.cancel():
            mine: Future[Result] = Future()
            with _one_at_a_time():
                try:
                    mine.set_result(work(piece))
                except Exception as error:  # noqa: BLE001  # raised where the result is taken, as for any thread
                    mine.set_exception(error)
            running[place] = piece, mine
            return True
    return False


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    _THIS_THREAD.has_a_piece = True
    try:
        yield
    finally:
        _THIS_THREAD.has_a_piece = False


def _take_pieces() -> None:
    _THIS_THREAD.has_a_piece = True


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Make :func:`threads` return 1 in this thread, while something else keeps every processor busy."""
    before = getattr(_THIS_THREAD, "alone", False)
    _THIS_THREAD.alone = True
    try:
        yield
    finally:
        _THIS_THREAD.alone = before


def threads() -> int:
    """Return the number of threads to work on: ``OD_THREADS``, or else the processors that this process may use."""
    if getattr(_THIS_THREAD, "alone", False):
        return 1
    given = os.environ.get("OD_THREADS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else len(os.sched_getaffinity(0))
