"""OpenDP's worker processes: what starts them, what ends them, and that no two draws are one draw."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from od_core import OdError
from od_core.privacy import opendp_pool, opendp_worker
from od_core.privacy.opendp_noise import MAX_VARIANCE, OpenDPNoise
from od_core.privacy.opendp_pool import PIECE, Pool, Worker, pieces
from od_core.privacy.opendp_worker import GAUSSIAN, LAPLACE, REQUEST
from tests.statistical.laws import block_length, repeats_a_block

SIGMA = 1000.0
SIZE = 2_100  # just enough to be cut

# No guard of __main__: a child that ran this again would start children of its own.
REQUESTS = [(GAUSSIAN, 1000.0, 7), (LAPLACE, 1000.0, 0), (LAPLACE, 1000.0, 5)]

HOLDER = """
import os, signal, sys, time
from od_core.privacy import opendp_pool
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in a shell's background
pool = opendp_pool.POOL
pool._worth = 0
pool.draw(b"g", 1000.0, 2_100)
workers = [worker.pid for worker in pool.workers]
if sys.argv[1] == "forked" and os.fork() == 0:
    print(*workers, os.getpid(), flush=True)
    time.sleep(60)
    os._exit(0)
if sys.argv[1] == "alone":
    print(*workers, flush=True)
while True:
    pool.draw(b"g", 1000.0, 100_000_000)
"""


@pytest.fixture(autouse=True)
def _two_processors(monkeypatch) -> None:
    monkeypatch.setenv("OD_THREADS", "2")


@pytest.fixture
def pool() -> Iterator[Pool]:
    """Two workers, started by the first request that is cut."""
    with_workers = Pool(worth=0)
    yield with_workers
    with_workers.end()


def draw(pool: Pool, size: int = SIZE) -> np.ndarray:
    return pool.draw(GAUSSIAN, SIGMA, size)


def repeats(noise: list[np.ndarray]) -> bool:
    """Whether a run of draws stands twice in it: by chance with a probability below 1e-6."""
    return repeats_a_block(noise, block_length(sum(map(len, noise)), SIGMA))


def pids(pool: Pool) -> list[int]:
    return [worker.pid for worker in pool.workers if worker.pid is not None]


def is_alive(pid: int) -> bool:
    """Whether the process runs; a dead one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(so: Callable[[], bool], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not so() and time.monotonic() < end:
        time.sleep(0.01)
    return so()


@pytest.mark.parametrize("processors", [1, 2, 3, 64])
@pytest.mark.parametrize("size", [0, 1, 2047, 2048, PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 1, 10**6 + 7])
def test_pieces_are_even_small_and_as_many_for_each_processor(size, processors):
    counts = pieces(size, processors)
    assert sum(counts) == size
    assert max(counts) - min(counts) <= 1
    if processors == 1 or size < 2048:
        assert len(counts) == 1
    else:
        assert len(counts) % processors == 0
        assert max(counts) <= PIECE
        assert len(counts) == processors or min(counts) >= PIECE // 2


def test_shapes_and_types_of_any_size(pool):
    for size in (0, 1, 2047, 2048, 2049, 2 * PIECE - 1, 2 * PIECE + 1):
        for law in (GAUSSIAN, LAPLACE) if size < PIECE else (GAUSSIAN,):
            drawn = pool.draw(law, 10.0, size)
            assert drawn.dtype == np.int64
            assert drawn.shape == (size,)
            assert drawn.flags.writeable
            assert np.abs(drawn).max(initial=0) < 1000  # beyond by chance: below 1e-40 a draw
    assert len(pids(pool)) == 2


def test_workers_start_once_they_are_worth_it_and_are_kept():
    pool = Pool(worth=3 * SIZE)
    try:
        for _ in range(3):
            draw(pool)
            draw(pool, 2047)  # never cut, so never counted
            assert pids(pool) == []
        draw(pool)
        first = pids(pool)
        assert len(set(first)) == 2
        draw(pool)
        assert pids(pool) == first
    finally:
        pool.end()
    assert pids(pool) == []
    assert not any(map(is_alive, first))


def test_one_thread_starts_none(pool, monkeypatch):
    monkeypatch.setenv("OD_THREADS", "1")
    assert len(draw(pool, 3000)) == 3000
    assert pids(pool) == []


def test_both_workers_draw(pool, monkeypatch):
    """Where the parent cannot draw, a request of two pieces still comes back whole, from two processes."""
    monkeypatch.setattr(opendp_pool, "draws", None)
    assert len(draw(pool, 2 * SIZE)) == 2 * SIZE
    assert len({id(worker) for worker in pool.workers}) == len(set(pids(pool))) == 2


def test_no_draws_of_two_workers_two_threads_or_two_requests_are_the_same(pool):
    """Fails with probability 1e-6; a worker that repeats another's noise, or its own, is caught."""
    with ThreadPoolExecutor(6) as threads:
        noise = list(threads.map(lambda _: draw(pool), range(12)))
    assert [len(each) for each in noise] == [SIZE] * 12
    assert len(pids(pool)) == 2
    apart = [worker.draw(GAUSSIAN, SIGMA, SIZE) for worker in pool.workers]
    assert not repeats([*noise, *apart, opendp_worker.draws(GAUSSIAN, SIGMA, SIZE)])
    assert repeats([*noise, *apart, noise[3][50:150]])


def test_answers_never_change_places_between_threads(pool):
    """Each thread asks for a scale of its own: draws of sigma 1 beyond 40, or 50 of sigma 1e6 within: below 1e-100."""
    wrong = []

    def ask(k: int) -> None:
        small = k % 2 == 0
        for _ in range(8):
            drawn = pool.draw(GAUSSIAN, 1.0 if small else 1e6, SIZE)
            if (np.abs(drawn).max() > 40) is small or (np.abs(drawn) <= 40).sum() < (SIZE if small else 0):
                wrong.append(k)

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("when", ["idle", "drawing"])
def test_a_killed_workers_piece_is_drawn_again(pool, when, caplog):
    draw(pool)
    victim, other = pids(pool)
    if when == "idle":
        os.kill(victim, signal.SIGKILL)
    else:
        threading.Timer(0.1, os.kill, (victim, signal.SIGKILL)).start()
    noise = [draw(pool, 60_000 if when == "drawing" else SIZE), draw(pool)]
    assert [len(each) for each in noise] == [60_000 if when == "drawing" else SIZE, SIZE]
    assert not repeats(noise)
    assert pids(pool) == [other]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    os.kill(other, signal.SIGKILL)
    assert len(draw(pool)) == SIZE
    assert pids(pool) == []


def test_a_worker_whose_answer_was_not_awaited_is_never_asked_again(monkeypatch):
    """Its next answer could be the one to an earlier request, of another scale."""
    worker = Worker()
    pid, line = worker.pid, worker._line

    class Interrupted:
        sendall, close = line.sendall, line.close

        def recv_into(self, buffer):
            raise KeyboardInterrupt

    monkeypatch.setattr(worker, "_line", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        worker.draw(GAUSSIAN, 1.0, 100)
    assert worker.pid is None
    assert not is_alive(pid)
    assert np.abs(worker.draw(GAUSSIAN, 1e9, 100)).max() > 1e6  # beyond by chance: below 1e-200


@pytest.mark.parametrize("program", ["/nowhere/python", "/bin/false"])
def test_without_a_worker_noise_is_drawn_here_and_said_so(program, monkeypatch, caplog):
    monkeypatch.setattr(sys, "executable", program)
    pool = Pool(worth=0)
    noise = [draw(pool), draw(pool)]
    assert [len(each) for each in noise] == [SIZE, SIZE]
    assert not repeats(noise)
    assert pids(pool) == []
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def in_forked_child(work: Callable[[], np.ndarray]) -> np.ndarray:
    """What ``work`` gives in a child forked from this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(writing, "wb") as answer:
                answer.write(work().tobytes())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        result = np.frombuffer(answer.read(), dtype=np.int64)
    os.waitpid(child, 0)
    return result


def test_a_forked_child_has_its_own_workers_and_leaves_the_parents(monkeypatch):
    """The pool of the module, the one that is told of a fork. Fails with probability 1e-6."""
    pool = opendp_pool.POOL
    monkeypatch.setattr(pool, "_worth", 0)
    before = draw(pool)
    own = pids(pool)
    assert len(own) == 2

    def inside() -> np.ndarray:
        none_left = pids(pool)
        drawn = draw(pool)
        theirs = pids(pool)
        pool.end()
        return np.array([len(none_left), *theirs, *drawn])

    none_left, *theirs = (answer := in_forked_child(inside))[:3].tolist()
    assert none_left == 0
    assert len(set(theirs) | set(own)) == 4
    assert not repeats([before, answer[3:], draw(pool)])
    assert pids(pool) == own
    pool.end()


@pytest.fixture
def holder() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts a process, in a group of its own, that has two workers and goes on drawing."""
    processes = []

    def start(kind: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLDER, kind]
        root = Path(__file__).parents[2]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root, start_new_session=True
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        with process:
            process.kill()


@pytest.mark.parametrize("kind", ["alone", "forked"])
def test_workers_end_with_a_killed_parent(holder, kind):
    """Also where a forked child of it lives on: the workers' lines are not the child's to hold open."""
    process = holder(kind)
    first, second, *child = [int(pid) for pid in process.stdout.readline().split()]
    assert is_alive(first)
    assert is_alive(second)
    process.kill()
    assert wait_until(lambda: not is_alive(first) and not is_alive(second))
    for pid in child:
        assert is_alive(pid)
        os.kill(pid, signal.SIGKILL)


def test_an_interrupt_ends_the_parent_and_its_workers_at_once(holder):
    """As from the keyboard, to the whole group; a hundred million draws are under way."""
    process = holder("alone")
    workers = [int(pid) for pid in process.stdout.readline().split()]
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert said.count("KeyboardInterrupt") == 1
    assert wait_until(lambda: not any(map(is_alive, workers)))


def test_the_worker_imports_opendp_and_not_the_package_and_ends_with_its_input():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-X", "importtime", "-P", opendp_worker.__file__, str(theirs.fileno())]
        worker = subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE)
        asked = [REQUEST.pack(*what, bytes([k] * 16)) for k, what in enumerate(REQUESTS)]
        ours.sendall(b"".join(asked) + b"broken")
        theirs.close()
        ours.shutdown(socket.SHUT_WR)
        _, imported = worker.communicate(timeout=300)
        assert worker.returncode == 0
        answers = [ours.recv(REQUEST.size + 8 * count, socket.MSG_WAITALL) for _, _, count in REQUESTS]
        assert ours.recv(1) == b""
    for request, answer, (_, _, count) in zip(asked, answers, REQUESTS, strict=True):
        assert answer[: REQUEST.size] == request
        assert len(answer) == REQUEST.size + 8 * count
    assert b"opendp.prelude" in imported
    assert b"od_core" not in imported
    assert b"numba" not in imported


def test_what_else_prints_in_a_worker_does_not_come_among_the_noise(tmp_path):
    """A byte more or less would shift all the noise that follows. Sigma 10: 13 sigma by chance, below 1e-35."""
    (tmp_path / "sitecustomize.py").write_text("import os\nprint('a note')\nos.write(1, b'bytes')\n")
    code = (
        "from od_core.privacy.opendp_pool import Pool\n"
        "pool = Pool(worth=0)\n"
        "drawn = pool.draw(b'g', 10.0, 60_000)\n"
        "assert all(worker.pid for worker in pool.workers)\n"
        "assert abs(drawn).max() < 130, 'noise is spoilt'\n"
        "pool.end()\n"
    )
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_an_answer_to_another_request_is_not_taken(pool, caplog):
    """The worker is ended, and its piece is drawn here."""
    draw(pool)
    worker = pool.workers[0]
    worker._line.sendall(REQUEST.pack(GAUSSIAN, SIGMA * 1000, 100, bytes(16)))  # whose answer nobody waits for
    drawn = worker.draw(GAUSSIAN, SIGMA, 100)
    assert worker.pid is None
    assert np.abs(drawn).max() < 13 * SIGMA
    assert "has ended" in caplog.text


def test_a_request_holds_the_scale_to_the_last_bit():
    for scale in (1.0, 1 / 3, 5e-324, 1.7976931348623157e308):
        request = GAUSSIAN, scale, 1 << 40, bytes(range(16))
        assert REQUEST.unpack(REQUEST.pack(*request)) == request


def test_the_scale_that_was_checked_is_the_one_drawn_with(monkeypatch):
    asked = []
    monkeypatch.setattr(opendp_pool.POOL, "draw", lambda *request: asked.append(request))
    OpenDPNoise().draw(Fraction(1, 3), 1, 0, 10**6)
    OpenDPNoise().draw_laplace(Fraction(1, 3), 10**6)
    for (law, scale, size), power in zip(asked, (2, 1), strict=True):
        assert law == (LAPLACE, GAUSSIAN)[power - 1]
        assert size == 10**6
        assert Fraction(1, 3) <= Fraction(scale) ** power <= Fraction(1, 3) * (1 + Fraction(1, 2**29))


@pytest.mark.parametrize(
    "scale", [Fraction(1, 7), Fraction(1), Fraction(20), Fraction(10**9, 3), Fraction(1 << 49), Fraction(1, 20)]
)
def test_laplace_costs_no_more_than_planned(scale, monkeypatch):
    asked = []
    monkeypatch.setattr(opendp_pool.POOL, "draw", lambda *request: asked.append(request))
    OpenDPNoise().draw_laplace(scale, 1)
    [(_, used, _)] = asked
    assert Fraction(opendp_worker.mechanism(LAPLACE, used).map(1)) <= 1 / scale
    assert (
        scale <= Fraction(used) <= scale * (1 + Fraction(1, 2**30))
    )  # 32 significant bits, rounded up, and one step more


@pytest.mark.parametrize(
    "scale", [Fraction(0), Fraction(-3), Fraction(1, 10**400), Fraction(10**400), Fraction(MAX_VARIANCE)]
)
def test_laplace_without_noise_or_without_bounds_is_refused(scale, monkeypatch):
    monkeypatch.setattr(opendp_pool.POOL, "draw", None)
    with pytest.raises(OdError, match="OD-NOISE-MAP"):
        OpenDPNoise().draw_laplace(scale, 3)


def test_small_laplace_scales_are_almost_surely_zero_and_large_ones_are_not():
    """P(0) = tanh(1 / 2s). At s = 1/40 a draw is not 0 by chance below 1e-17; at s = 1e6 ten are 0 below 1e-60."""
    assert OpenDPNoise().draw_laplace(Fraction(1, 40), 100).tolist() == [0] * 100
    assert (OpenDPNoise().draw_laplace(Fraction(10**6), 100) == 0).sum() < 10
