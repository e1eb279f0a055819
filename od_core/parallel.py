"""Process pieces of work in several threads, in order, and finish what an interrupt would lose.

A piece is any object that the caller's function takes, such as a block of rows. One thread runs all steps of a piece.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")

_MAX_STARTED_PIECES_PER_THREAD = 8
"""Number of pieces per thread that may be started before their results are taken, so that no thread is idle."""

_THIS_THREAD = threading.local()
"""Marks of the current thread: ``has_a_piece`` while it processes one, ``alone`` if it must use no other thread."""


def map_in_order(work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
    """Yield ``work(piece)`` for every piece of work, in the order of the pieces.

    Threads suffice, because the Numba kernels release Python's global interpreter lock. The results are the same for
    any number of threads. The calling thread also processes pieces, because one thread more than processors would slow
    all threads down. If there is only one piece, or if ``work`` itself calls this function, everything runs in the
    calling thread. The number of pieces in progress is limited, which limits the memory.
    """
    waiting = iter(pieces)
    first_two = list(islice(waiting, 2))
    if len(first_two) < 2 or choose_thread_count() == 1 or getattr(_THIS_THREAD, "has_a_piece", False):
        for piece in (*first_two, *waiting):
            yield work(piece)
        return
    mark = (_THIS_THREAD, "has_a_piece", True)
    with ThreadPoolExecutor(choose_thread_count() - 1, "od", initializer=setattr, initargs=mark) as others:
        submitted: deque[tuple[Piece, Future[Result]]] = deque()

        def submit(next_pieces: Iterable[Piece]) -> None:
            """Hand pieces over to the other threads."""
            submitted.extend((piece, others.submit(work, piece)) for piece in next_pieces)

        submit(first_two)
        try:
            submit(islice(waiting, _MAX_STARTED_PIECES_PER_THREAD * choose_thread_count() - 2))
            while submitted:
                # Until the next result is there, this thread processes pieces that no other thread has begun.
                while not submitted[0][1].done():  # read each time: this thread replaces the futures of its pieces
                    if not _process_unbegun_piece(work, submitted):
                        break
                _, future = submitted.popleft()
                yield future.result()
                submit(islice(waiting, 1))
        finally:
            for _, future in submitted:
                future.cancel()


def process_all(work: Callable[[Piece], object], pieces: Iterable[Piece]) -> None:
    """Call ``work(piece)`` for every piece of work, as :func:`map_in_order` does, and drop what it returns."""
    for _ in map_in_order(work, pieces):
        pass


def _process_unbegun_piece(work: Callable[[Piece], Result], submitted: deque[tuple[Piece, Future[Result]]]) -> bool:
    """Process the first submitted piece that no thread has begun, and return True. Return False if all are begun.

    The future of this piece in ``submitted`` is replaced by one with the result.
    """
    for position, (piece, future) in enumerate(submitted):
        if future.cancel():  # it fails for a piece that a thread has begun
            processed: Future[Result] = Future()
            with _mark_thread("has_a_piece"):
                try:
                    processed.set_result(work(piece))
                except Exception as error:  # noqa: BLE001  # raised where the result is taken, as for all other threads
                    processed.set_exception(error)
            submitted[position] = piece, processed
            return True
    return False


@contextmanager
def _mark_thread(name: str) -> Iterator[None]:
    """Set a mark of the current thread (:data:`_THIS_THREAD`) to True during this context."""
    before = getattr(_THIS_THREAD, name, False)
    setattr(_THIS_THREAD, name, True)
    try:
        yield
    finally:
        setattr(_THIS_THREAD, name, before)


@contextmanager
def run_in_background(work: Callable[[], object]) -> Iterator[None]:
    """Call a function in another thread during this context, and wait for it at the end of the context.

    If :func:`choose_thread_count` returns 1, call the function at the end of the context, in this thread.

    Raises:
        Exception: the context or the function raised it. If both raise one, it is that of the context.
    """
    if choose_thread_count() == 1:
        yield
        work()
        return
    with ThreadPoolExecutor(1, thread_name_prefix="od") as other_thread:
        running = other_thread.submit(work)
        yield
        running.result()


def use_one_thread() -> AbstractContextManager[None]:
    """Make :func:`choose_thread_count` return 1 in this thread, in a context, while other work uses processors."""
    return _mark_thread("alone")


def read_memory_limit() -> int:
    """Return the memory in bytes that this process may use: that of the machine or, if lower, of its control group."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # no control group, or no limit ("max")
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return memory


def choose_thread_count() -> int:
    """Return the number of threads to use: 1 within :func:`use_one_thread`; else ``OD_THREADS``, if it is above 0.

    By default, it is the number of processors that this process may use.
    """
    if getattr(_THIS_THREAD, "alone", False):
        return 1
    given = os.environ.get("OD_THREADS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else len(os.sched_getaffinity(0))


INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
"""Signals that ask a process to end: from the keyboard, and from another program."""


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Delay the first signal of :data:`INTERRUPTS` until this context ends. A second signal is not delayed.

    It protects a draw of noise: if a draw is interrupted before its result is stored, it stays charged and must be
    drawn again. Signals that are ignored stay ignored. Python handles signals in the main thread, so in any other
    thread this context does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handlers = {number: signal.getsignal(number) for number in INTERRUPTS}
    delayed: list[int] = []

    def restore_handlers() -> None:
        """Set the handlers that signals had before this context."""
        for number, handler in previous_handlers.items():
            if handler is not None:  # not set by Python
                signal.signal(number, handler)

    def delay_signal(number: int, _frame: FrameType | None) -> None:
        """Remember a signal, and handle the next one at once."""
        delayed.append(number)
        restore_handlers()

    for number, handler in previous_handlers.items():
        if handler not in (None, signal.SIG_IGN):
            signal.signal(number, delay_signal)
    try:
        yield
    finally:
        restore_handlers()
        if delayed:
            signal.raise_signal(delayed[0])
