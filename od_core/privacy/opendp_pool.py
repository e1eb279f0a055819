"""OpenDP on all processors: a large request is cut into pieces, drawn at once by threads or by worker processes.

Threads draw about 1.7 times as much as one on two cores, processes 2.0 times: so processes are started once enough
has been drawn to make up for their start, and used again from then on. They are plain child processes and not
``multiprocessing``, which would run the caller's main module again.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import secrets
import socket
import subprocess
import sys
import threading
from pathlib import Path
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from od_core.pipeline import in_order, threads
from od_core.privacy import opendp_worker
from od_core.privacy.opendp_worker import REQUEST, draws

PIECE = 16_384
"""Most draws of a piece: about a sixth of a second, so that no processor waits long for the last one."""

_SMALL = 2_048
"""Requests below this, of about 20 ms, are drawn where they are made."""

_WORTH = 300_000
"""Draws after which workers are started: their start of 0.3 s costs what they then save on so many."""

_log = logging.getLogger(__name__)


class Worker:
    """A child process that draws; where there is none, or it has ended, its pieces are drawn in this process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        # A group of its own, since an interrupt from the keyboard is for this process to act on.
        worker = str(Path(opendp_worker.__file__).resolve())
        self._line, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", worker, str(theirs.fileno())]
            nothing = subprocess.DEVNULL
            try:
                self._process = subprocess.Popen(  # noqa: S603  # ourselves
                    command, stdin=nothing, stdout=nothing, pass_fds=(theirs.fileno(),), process_group=0
                )
            except OSError as error:
                self._line.close()
                _log.warning("no noise worker could be started (%s): noise is drawn in this process", error.strerror)

    @property
    def pid(self) -> int | None:
        """Number of the process, None where there is none."""
        return self._process.pid if self._process else None

    def draw(self, law: bytes, scale: float, count: int) -> NDArray[np.int64]:
        """So many draws of the law, shape (count,)."""
        if self._process and (drawn := self._drawn_there(law, scale, count)) is not None:
            return drawn
        # Where the process has ended, the piece is drawn again: noise that has met no count costs and tells nothing.
        return draws(law, scale, count)

    def _drawn_there(self, law: bytes, scale: float, count: int) -> NDArray[np.int64] | None:
        """Draws of the process, None where it has ended."""
        request = REQUEST.pack(law, scale, count, secrets.token_bytes(16))
        answer = bytearray(REQUEST.size + 8 * count)
        missing = memoryview(answer)
        try:
            self._line.sendall(request)
            while missing and (received := self._line.recv_into(missing)):
                missing = missing[received:]
        except OSError:
            pass  # it has ended, as below
        finally:
            if missing:  # never asked again: its next answer could be to this request, at another scale
                self.end()
        if not missing and answer.startswith(request):
            return np.frombuffer(answer, dtype=np.int64, offset=REQUEST.size)
        self.end()  # what does not begin with this very request is not the answer to it
        _log.warning("a noise worker has ended: its share is drawn in this process from now on")
        return None

    def end(self) -> None:
        """End the process at once: whatever it is drawing is not wanted any more."""
        self._line.close()
        if self._process:
            self._process.kill()
            self._process.wait()
        self._process = None

    def forget(self) -> None:
        """In a forked child: the process is the parent's, to speak with and to wait for."""
        self._line.close()
        if self._process:
            self._process.returncode = 0
        self._process = None


class Pool:
    """Draws of any size, from any number of threads at once."""

    workers: tuple[Worker, ...]
    _idle: SimpleQueue[Worker]
    _starting: threading.Lock
    _drawn: int

    def __init__(self, worth: int = _WORTH) -> None:
        self._worth = worth
        self._reset()

    def draw(self, law: bytes, scale: float, size: int) -> NDArray[np.int64]:
        """So many independent draws of the law, shape (size,)."""
        counts = pieces(size, threads())
        if len(counts) == 1:
            return draws(law, scale, size)
        with self._starting:
            self._drawn += size
            if self._drawn > self._worth and not self.workers:
                self.workers = tuple(Worker() for _ in range(threads()))
                for worker in self.workers:
                    self._idle.put(worker)
        return np.concatenate(list(in_order(lambda count: self._piece(law, scale, count), counts)))

    def end(self) -> None:
        """End the workers; more are started when they are worth it again."""
        for worker in self.workers:
            worker.end()
        self._reset()

    def forget(self) -> None:
        """In a forked child: leave the parent's workers, and its locks, to the parent."""
        for worker in self.workers:
            worker.forget()
        self._reset()

    def _reset(self) -> None:
        self.workers = ()
        self._idle = SimpleQueue()
        self._starting = threading.Lock()
        self._drawn = 0

    def _piece(self, law: bytes, scale: float, count: int) -> NDArray[np.int64]:
        if not self.workers:
            return draws(law, scale, count)
        idle = self._idle
        worker = idle.get()
        try:
            return worker.draw(law, scale, count)
        finally:
            idle.put(worker)


def pieces(size: int, processors: int) -> list[int]:
    """How many draws each piece of a request has: equal to one, and as many for each processor."""
    if processors == 1 or size < _SMALL:
        return [size]
    count = processors * math.ceil(size / (processors * PIECE))
    return [(size + rest) // count for rest in range(count)]


POOL = Pool()
os.register_at_fork(after_in_child=POOL.forget)
atexit.register(POOL.end)
