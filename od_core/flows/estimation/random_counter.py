"""Compute random numbers from their positions in a sequence, so that they can be computed in any order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from od_core.kernels import kernel

_GOLDEN, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


class Counter(NamedTuple):
    """A place in the sequence of random numbers: node ``offset + i`` of draw ``draw + d`` has its own number."""

    key: np.uint64
    draw: int
    nodes: int
    offset: int


@kernel
def random_number(counter, draw, node):  # type: ignore[no-untyped-def]  # compiled
    """Return the random number from 0 to 1 of a node in a draw: SplitMix64 [steele2014splittable] of its position."""
    position = (counter.draw + draw) * counter.nodes + counter.offset + node + 1
    z = counter.key + np.uint64(position) * _GOLDEN
    z = (z ^ (z >> _30)) * _FIRST
    z = (z ^ (z >> _27)) * _SECOND
    return float((z ^ (z >> _31)) >> _11) * 2.0**-53


@kernel
def write_random(counter, numbers):  # type: ignore[no-untyped-def]  # compiled
    """Write consecutive random numbers from 0 to 1."""
    for k in range(len(numbers)):
        numbers[k] = random_number(counter, k, 0)
