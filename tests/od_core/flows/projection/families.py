"""Families for the tests of all projections, and one call for many of them."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np

Case = tuple[list[int], int]
"""Noisy values of one parent's children, and their total."""


def small_case(rng: random.Random) -> Case:
    """One to five children; ties, empty totals, one-sided and spread-out values all come often."""
    children = rng.randint(1, 5)
    reach = rng.choice((0, 1, 2, 6, 15, 60))
    low = rng.choice((-reach, -reach, 0, -reach // 3))
    noisy = [rng.randint(low, max(low, reach)) for _ in range(children)]
    total = rng.choice((0, rng.randint(0, 3), rng.randint(0, 9), max(0, sum(noisy)), 3 * reach))
    return noisy, total


def enumerable_cases(rng: random.Random, count: int) -> list[Case]:
    """Small cases for brute force: there are at most 1,820 ways to share a total."""
    cases: list[Case] = []
    while len(cases) < count:
        noisy, total = small_case(rng)
        if total <= 12:
            cases.append((noisy, total))
    return cases


def noisy_flows(rng: np.random.Generator, children: int) -> Case:
    """Few or many children with trips, heavy-tailed, under noise; a total near theirs, or far below the noise."""
    share = (0.02, 0.3, 1.0)[rng.integers(3)]  # Generator.choice takes longer than all the rest
    trips = np.where(rng.random(children) < share, rng.pareto(1.1, children).clip(0, 1e5), 0.0)
    noise = rng.normal(0.0, (0.7, 4.0, 20.0, 400.0)[rng.integers(4)], children)
    total = int(trips.sum() + rng.integers(-4, 5) * (0, 1, 30)[rng.integers(3)])
    return np.rint(np.ceil(trips) + noise).astype(np.int64).tolist(), max(0, total)


def cases_near(bound: int, rng: random.Random, count: int) -> list[Case]:
    """Small cases blown up until sum |x| + c comes within 2^12 or so of the bound."""
    cases: list[Case] = []
    while len(cases) < count:
        noisy, total = small_case(rng)
        size = sum(map(abs, noisy)) + total
        if size == 0:
            continue
        unit = (bound - 2**12) // size
        noisy = [value * unit + rng.randint(-3, 3) for value in noisy]
        cases.append((noisy, max(0, total * unit + rng.randint(-3, 3))))
    return cases


def project_all(project: Callable[..., Any], cases: list[Case]) -> list[list[int]]:
    """All cases as the parents of one level, in one call."""
    offsets = np.cumsum([0] + [len(noisy) for noisy, _ in cases])
    noisy = np.concatenate([np.array(noisy, dtype=np.int64) for noisy, _ in cases])
    projected = project(noisy, np.array([total for _, total in cases]), offsets)
    return [part.tolist() for part in np.split(projected, offsets[1:-1])]
