"""The processes that draw by OpenDP: each draws once and ends, none is outlived or waited for, no two draws are one."""

import math
import os
import signal
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
from od_core.noise import opendp as opendp_noise
from od_core.noise import opendp_worker
from od_core.noise.opendp import (
    MAX_VARIANCE,
    MIN_DRAWS,
    SCALE_SLACK,
    OpenDPNoise,
    divide_draws,
    draw_noise,
    locate_library,
)
from od_core.noise.opendp_worker import ANSWER, DRAWS_PER_CALL, GAUSSIAN, LAPLACE, REQUEST, OpenDP, find_smallest_scale
from tests.statistical.laws import block_length, repeats_a_block

SIGMA = 1000.0
CUT = 2 * MIN_DRAWS  # draws that two processes share

# No guard of __main__: a child that ran this again would start children of its own.
HOLDER = """
import os, signal, subprocess, sys, threading, time
from od_core.noise import opendp
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in a shell's background
started, popen = [], subprocess.Popen

def start(*args, **kwargs):
    started.append(popen(*args, **kwargs))
    if len(started) == 2:
        threading.Timer(0.2, tell).start()
    return started[-1]

def tell():
    pids = [process.pid for process in started]
    if sys.argv[1] == "forked" and os.fork() == 0:
        print(*pids, os.getpid(), flush=True)
        time.sleep(60)
        os._exit(0)
    if sys.argv[1] == "alone":
        print(*pids, flush=True)

subprocess.Popen = start
opendp.draw_noise(b"g", 1000.0, 1.0, 200_000_000)
"""

LIAR = f"""
import os, struct
ANSWER, REQUEST = struct.Struct({ANSWER.format!r}), struct.Struct({REQUEST.format!r})
law, scale, loss, count = REQUEST.unpack(os.read(0, REQUEST.size))
os.write(1, ({{what}})[: {{size}}])
"""


@pytest.fixture(autouse=True)
def _two_processors(monkeypatch):
    monkeypatch.setenv("OD_THREADS", "2")


@pytest.fixture
def started(monkeypatch) -> list[subprocess.Popen[bytes]]:
    """The processes that were started, as they are started."""
    processes: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*args, **kwargs):
        processes.append(popen(*args, **kwargs))
        return processes[-1]

    monkeypatch.setattr(opendp_noise.subprocess, "Popen", start)
    return processes


def draw(size: int = 100) -> np.ndarray:
    used, noise = draw_noise(GAUSSIAN, SIGMA, 1.0, size)
    assert used == SIGMA
    return noise


def repeats(noise: list[np.ndarray]) -> bool:
    """Whether a run of draws stands twice in it: by chance with a probability below 1e-6."""
    return repeats_a_block(noise, block_length(sum(map(len, noise)), SIGMA))


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
@pytest.mark.parametrize("size", [0, 1, MIN_DRAWS - 1, 2 * MIN_DRAWS - 1, 2 * MIN_DRAWS, 3 * MIN_DRAWS + 1, 10**6 + 7])
def test_shares_are_even_and_each_is_worth_its_process(size, processors):
    counts = divide_draws(size, processors)
    assert sum(counts) == size
    assert max(counts) - min(counts) <= 1
    assert len(counts) <= processors
    assert len(counts) == 1 or min(counts) >= MIN_DRAWS
    assert len(counts) == processors or size < processors * MIN_DRAWS


@pytest.mark.parametrize("law", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("size", [0, 1, CUT - 1, CUT, 2 * DRAWS_PER_CALL + 1])
def test_shapes_and_types_of_any_size(law, size, started):
    used, noise = draw_noise(law, 10.0, 1.0, size)
    assert used == 10.0
    assert noise.dtype == np.int64
    assert noise.shape == (size,)
    assert noise.flags.writeable
    assert np.abs(noise).max(initial=0) < 1000  # beyond by chance: below 1e-40 a draw
    assert len(started) == (1 if size < CUT else 2)
    if (
        size == 2 * DRAWS_PER_CALL + 1
    ):  # a process that ended early would leave zeros: a run of so many by chance, below 1e-60
        assert not any((part == 0).all() for part in np.array_split(noise, 200))


def test_every_call_has_new_processes_and_leaves_none(started):
    for call in range(3):
        draw(CUT)
        assert len({process.pid for process in started}) == 2 * (call + 1)
        assert all(process.returncode is not None for process in started)
    assert not any(is_alive(process.pid) for process in started)


def test_no_draws_of_two_processes_two_threads_or_two_requests_are_the_same():
    """Fails with probability 1e-6; a process that repeats another's noise, or its own, is caught."""
    with ThreadPoolExecutor(4) as threads:
        noise = list(threads.map(lambda size: draw(size), [CUT, CUT, 2_000, 2_000, 2_000, 2_000]))
    assert not repeats(noise)
    assert repeats([*noise, noise[3][50:150]])


def test_answers_never_change_places_between_threads():
    """Each thread asks for a scale of its own: draws of sigma 1 beyond 40, or 50 of sigma 1e6 within: below 1e-100."""

    def is_wrong(k):
        small = k % 2 == 0
        _, noise = draw_noise(GAUSSIAN, 1.0 if small else 1e6, 1.0, 1_000)
        return (np.abs(noise).max() > 40) is small or (np.abs(noise) <= 40).sum() < (1_000 if small else 0)

    with ThreadPoolExecutor(4) as threads:
        assert not any(threads.map(is_wrong, range(12)))


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("when", ["before it was asked", "while it draws"])
def test_a_killed_process_loses_the_draw_and_ends_the_others(when, victim, started, monkeypatch):
    """What it had drawn is never used, and nothing is drawn in its place: the ledger has charged one draw."""
    start = opendp_noise.subprocess.Popen

    def start_and_kill(*args, **kwargs):
        process = start(*args, **kwargs)
        if len(started) == victim + 1 and when == "while it draws":
            threading.Timer(0.2, process.kill).start()
        elif len(started) == victim + 1:
            os.kill(process.pid, signal.SIGKILL)
            assert wait_until(lambda: not is_alive(process.pid))
        return process

    monkeypatch.setattr(opendp_noise.subprocess, "Popen", start_and_kill)
    with pytest.raises(OdError, match=r"OD-NOISE-LOST.*ended before it had finished: the draw is lost") as error:
        draw(30 * DRAWS_PER_CALL)
    assert error.value.spent == "the level stays charged"
    assert not any(is_alive(process.pid) for process in started)


@pytest.mark.parametrize("program", ["/nowhere/python", "/bin/false"])
def test_without_a_process_nothing_is_drawn(program, monkeypatch):
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(OdError, match=r"OD-NOISE-LOST.*the draw is lost"):
        draw()


@pytest.mark.parametrize(
    ("what", "size", "code"),
    [
        ("ANSWER.pack(scale) + bytes(8 * count)", "3", "OD-NOISE-LOST"),
        ("ANSWER.pack(scale) + bytes(8 * count)", "-1", "OD-NOISE-LOST"),
        ("ANSWER.pack(float('nan'))", "99", "OD-NOISE-MAP"),
        ("ANSWER.pack(scale / 2) + bytes(8 * count)", "None", "OD-NOISE-MAP"),
        ("ANSWER.pack(2 * scale) + bytes(8 * count)", "None", "OD-NOISE-MAP"),
    ],
)
def test_half_an_answer_or_a_wrong_scale_is_no_noise(what, size, code, tmp_path, monkeypatch):
    liar = tmp_path / "liar.py"
    liar.write_text(LIAR.format(what=what, size=size))
    monkeypatch.setattr(opendp_worker, "__file__", str(liar))
    with pytest.raises(OdError, match=code):
        OpenDPNoise().draw(Fraction(9), 1, 0, 100)


def test_an_installation_without_the_library_says_so(monkeypatch):
    monkeypatch.setattr(opendp_noise, "locate_library", locate_library.__wrapped__)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(OdError, match=r"OD-NOISE-LOST.*not installed"):
        draw()


@pytest.fixture
def holder() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts a process, in a group of its own, that waits for two workers with much to draw."""
    processes = []

    def start(kind):
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


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("kind", ["alone", "forked"])
def test_workers_end_with_a_killed_parent(holder, kind):
    """Also where a forked child of it lives on."""
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
    """As from the keyboard, to the whole group; two hundred million draws are under way."""
    process = holder("alone")
    workers = [int(pid) for pid in process.stdout.readline().split()]
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert said.count("KeyboardInterrupt") == 1
    assert wait_until(lambda: not any(map(is_alive, workers)))


def test_a_worker_imports_next_to_nothing_answers_once_and_ends(tmp_path):
    """Neither what stands in the environment nor a package is run in it, so nothing else can print among the noise."""
    (tmp_path / "sitecustomize.py").write_text("import os\nos.write(1, b'a note')\n")
    command = [sys.executable, "-I", "-S", "-X", "importtime", opendp_worker.__file__]
    request, environment = REQUEST.pack(GAUSSIAN, SIGMA, 1.0, 7) * 2, os.environ | {"PYTHONPATH": str(tmp_path)}
    command += [locate_library(), str(os.getpid())]
    worker = subprocess.run(command, input=request, capture_output=True, timeout=300, env=environment)
    imported = worker.stderr
    assert worker.returncode == 0
    assert len(worker.stdout) == ANSWER.size + 8 * 7
    modules = {line.rsplit(b"|", 1)[1].strip().decode() for line in imported.splitlines()}
    assert "ctypes" in modules
    assert not {"numpy", "opendp", "od_core", "site", "sitecustomize", "asyncio"} & modules


def test_opendps_python_package_and_the_c_interface_say_the_same():
    """The package's numbers of one map, here through the interface that the workers use; and its refusals."""
    opendp = OpenDP(locate_library())
    assert opendp.compute_loss(GAUSSIAN, opendp.make_measurement(GAUSSIAN, 10.0)) == pytest.approx(0.005, rel=1e-15)
    assert opendp.compute_loss(LAPLACE, opendp.make_measurement(LAPLACE, 4.0)) == pytest.approx(0.25, rel=1e-15)
    assert opendp.compute_loss(GAUSSIAN, opendp.make_measurement(GAUSSIAN, 0.0)) == math.inf
    with pytest.raises(RuntimeError, match="OpenDP refused measurements__make_gaussian"):
        opendp.make_measurement(GAUSSIAN, -1.0)


@pytest.mark.parametrize(
    "scale", [Fraction(1, 7), Fraction(1), Fraction(20), Fraction(10**9, 3), Fraction(1 << 49), Fraction(1, 20)]
)
def test_laplace_costs_no_more_than_planned(scale, monkeypatch):
    """By OpenDP's own map, and within what thresholds allow: the scale is rounded up."""
    opendp, used = OpenDP(locate_library()), []

    def hand_over(law, least, largest_loss, size):
        assert law == LAPLACE
        used.append(find_smallest_scale(opendp, law, least, largest_loss)[0])
        return used[-1], np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(opendp_noise, "draw_noise", hand_over)
    OpenDPNoise().draw_laplace(scale, 1)
    assert Fraction(opendp.compute_loss(LAPLACE, opendp.make_measurement(LAPLACE, used[0]))) <= 1 / scale
    assert scale <= Fraction(used[0]) <= scale * (1 + SCALE_SLACK)


@pytest.mark.parametrize(
    "scale", [Fraction(0), Fraction(-3), Fraction(1, 10**400), Fraction(10**400), Fraction(MAX_VARIANCE)]
)
def test_laplace_without_noise_or_without_bounds_is_refused(scale, monkeypatch):
    monkeypatch.setattr(opendp_noise, "draw_noise", None)
    with pytest.raises(OdError, match="OD-NOISE-MAP"):
        OpenDPNoise().draw_laplace(scale, 3)


def test_small_laplace_scales_are_almost_surely_zero_and_large_ones_are_not():
    """P(0) = tanh(1 / 2s). At s = 1/40 a draw is not 0 by chance below 1e-17; at s = 1e6 ten are 0 below 1e-60."""
    assert OpenDPNoise().draw_laplace(Fraction(1, 40), 100).tolist() == [0] * 100
    assert (OpenDPNoise().draw_laplace(Fraction(10**6), 100) == 0).sum() < 10
