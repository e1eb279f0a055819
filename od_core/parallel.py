"""Work cut into pieces: each piece on one thread through all its steps, results taken in order (spec 7, recipe 3)."""

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
"""Pieces in flight a thread: no thread waits while whoever takes the results writes a million of them at once."""

_THIS_THREAD = threading.local()


def in_order(work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
    """``work(piece)`` of every piece, in the order of the pieces, a few of them at work at a time.

    The kernels release the interpreter's lock, so plain threads serve: no barrier, no shared output, and the
    results are the same for any number of threads. This thread is one of them: it works rather than wait, since one
    more than there are processors would hold up the others at the lock. A single piece is worked on here, and so
    are the pieces of a piece. Memory is bounded by the pieces in flight.
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
    """Work on the first piece that no thread has begun; False where there is none."""
    for place, (piece, future) in enumerate(running):
        if future.cancel():
            mine: Future[Result] = Future()
            with _one_at_a_time():
                try:
                    mine.set_result(work(piece))
                except Exception as error:  # noqa: BLE001  # raised where its result is taken, as any thread's is
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
    """For as long as somebody else has given every processor its work: here, :func:`threads` is one."""
    before = getattr(_THIS_THREAD, "alone", False)
    _THIS_THREAD.alone = True
    try:
        yield
    finally:
        _THIS_THREAD.alone = before


def threads() -> int:
    """Threads to work on: ``OD_THREADS``, else the processors that this process may use."""
    if getattr(_THIS_THREAD, "alone", False):
        return 1
    given = os.environ.get("OD_THREADS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else len(os.sched_getaffinity(0))
