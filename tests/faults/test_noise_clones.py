"""No two processes draw the same noise, not even two clones of one process that cannot tell themselves apart."""

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from od_core.noise.backends import BACKENDS
from tests.faults.cloned import DRAWS

NEW_NAMESPACES = ["unshare", "--map-root-user", "--pid", "--fork"]
COPIED = "seeded"  # a test double, whose noise is the same in every process


@pytest.fixture(scope="module")
def drawn() -> dict[str, list[list[int]]]:
    """By backend: draws of a process, and of two clones of it that have the number that it has."""
    is_there = shutil.which(NEW_NAMESPACES[0]) is not None
    if not is_there or subprocess.run([*NEW_NAMESPACES, "true"], capture_output=True).returncode:
        pytest.skip("namespaces of users and processes are not permitted here")
    names = [*BACKENDS, COPIED]
    command = [*NEW_NAMESPACES, sys.executable, "-m", "tests.faults.cloned", *names]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(zip(names, map(json.loads, done.stdout.splitlines()), strict=True))


def equal(drawn: list[list[int]]) -> list[int]:
    """In how many places each two of the vectors agree."""
    return [sum(a == b for a, b in zip(*pair, strict=True)) for pair in itertools.combinations(drawn, 2)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_clones_with_the_number_of_their_original_draw_different_noise(backend, drawn):
    """Five agreements of 200 by chance: below (200 / 2506)^5 / 120 = 3e-8 a pair."""
    assert max(equal(drawn[backend])) < 5


def test_copied_noise_would_be_seen(drawn):
    assert equal(drawn[COPIED]) == [DRAWS] * 3
