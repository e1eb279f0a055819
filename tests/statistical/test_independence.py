"""No noise is used twice: not by two levels, two releases or two processes."""

import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

from od_core.noise.backends import BACKENDS, resolve_noise_source
from tests.od_core.doubles import SeededNoise
from tests.statistical.laws import block_length, repeats_a_block

VARIANCE = Fraction(10**6)


class Replayed:
    """A backend's noise, drawn once and used again from the start for every level (and by every release)."""

    def __init__(self, backend: str) -> None:
        self.source, self.kept = resolve_noise_source(backend), np.empty(0, dtype=np.int64)

    def draw(self, variance, level, first, size):
        if len(self.kept) < first + size:
            self.kept = np.append(self.kept, self.source.draw(variance, level, 0, first + size - len(self.kept)))
        return self.kept[first : first + size]


class ReplayedByLevel:
    """A backend's noise, different for each level, but the same in every release."""

    def __init__(self, backend: str) -> None:
        self.backend, self.levels = backend, {}

    def draw(self, variance, level, first, size):
        return self.levels.setdefault(level, Replayed(self.backend)).draw(variance, level, first, size)


def vectors(releases) -> list[np.ndarray]:
    """Noise of every level of every release."""
    return [residuals for r in releases for residuals in r.residuals.values()]


def repeats(noise: list[np.ndarray], smallest_sigma: float) -> bool:
    return repeats_a_block(noise, block_length(sum(map(len, noise)), smallest_sigma))


@pytest.mark.parametrize("epsilon", ["0.1", "1", "10"])
def test_no_block_of_noise_stands_in_two_places(epsilon, real_releases):
    """Within and between levels and releases, at any offset. Fails with probability 1e-6 for each budget."""
    chosen = [r for r in real_releases if r.epsilon == epsilon]
    sigma = float(min(step.variance for r in chosen for step in r.release.plan.steps)) ** 0.5
    assert not repeats(vectors(chosen), sigma)
    shifted = [vectors(chosen)[0], *vectors(chosen)[1:], vectors(chosen)[-1][7:107]]
    assert repeats(shifted, sigma)


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_noise_shared_by_levels_or_by_releases_is_rejected(backend, make_release):
    """A source that replays gives itself away in one release (levels alike) or in two (releases alike)."""
    shared = Replayed(backend)
    one = make_release("2001-01", "1", "destination", shared)
    sigma = float(one.release.plan.steps[0].variance) ** 0.5
    assert repeats(vectors([one]), sigma)
    by_level = ReplayedByLevel(backend)
    first, second = (make_release(month, "1", "destination", by_level) for month in ("2001-01", "2001-02"))
    assert not repeats(vectors([first]), sigma)
    assert repeats(vectors([first, second]), sigma)


def drawn_in_two_processes(source, method: str) -> list[np.ndarray]:
    """2,000 draws in each of two processes that start from this one; and as many here, before and after."""
    context = multiprocessing.get_context(method)
    before = source.draw(VARIANCE, 1, 0, 2000)
    as_usual = signal.signal, (signal.SIGTERM, signal.SIG_DFL)  # a forked process has Dagster's handler, which may wait
    with context.Pool(1, *as_usual) as one, context.Pool(1, *as_usual) as other:
        assert len({os.getpid(), one.apply(os.getpid), other.apply(os.getpid)}) == 3
        there = [pool.apply(source.draw, (VARIANCE, 1, 0, 2000)) for pool in (one, other)]
    return [before, *there, source.draw(VARIANCE, 1, 0, 2000)]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_two_processes_draw_different_noise(backend, method):
    """Fails with probability 1e-6 for each way to start a process; a copied generator is caught."""
    assert not repeats(drawn_in_two_processes(resolve_noise_source(backend), method), 1000.0)
    copied = drawn_in_two_processes(SeededNoise(1), method)
    assert repeats(copied[1:3], 1000.0)


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_threads_draw_different_noise(backend):
    """Eight threads at once on one source, over several blocks of the table. Fails with probability 1e-6."""
    source = resolve_noise_source(backend)
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(lambda _: source.draw(VARIANCE, 1, 0, 5_000), range(16)))
    assert not repeats(drawn, 1000.0)
    assert repeats([*drawn, drawn[3][100:200]], 1000.0)
