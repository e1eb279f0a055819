"""Grids and trips for tests of trees, and what must hold of every tree over them."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from od_core.stops.geometry import Boxes, Grid
from od_core.stops.mechanisms import BudgetPath, DAFEntropy, DAFHomogeneity, Drawn, PrivTree, Rounding
from tests.od_core.stops.doubles import Recorded

ROUNDINGS: tuple[Rounding, ...] = ("nearest", "up", "down", "times_1.5")


@dataclass(frozen=True, eq=False)
class World:
    points: NDArray[np.int32]
    grid: Grid
    epsilon: Fraction
    sensitivity: int
    seed: int

    def path(self, source=None) -> BudgetPath:
        return BudgetPath(source or Recorded(self.seed), self.sensitivity, self.epsilon)


@st.composite
def worlds(draw, dimensions=6, side=19, trips=5000, epsilons=("1/10", "1", "7/3", "20")) -> World:
    """Trips in few places or spread out, or both; none at times."""
    sizes = tuple(draw(st.lists(st.integers(1, side), min_size=1, max_size=dimensions)))
    generator = np.random.default_rng(seed := draw(st.integers(0, 2**32 - 1)))
    number = draw(st.sampled_from([0, 1, 2, 30, trips // 10, trips]))
    spread = draw(st.sampled_from([0.02, 0.2, 3.0]))
    around = generator.random(len(sizes))
    places = np.floor(np.array(sizes) * (around + spread * generator.normal(size=(number, len(sizes)))))
    points = np.clip(places, 0, np.array(sizes) - 1).astype(np.int32)
    return World(points, Grid(sizes), Fraction(draw(st.sampled_from(epsilons))), draw(st.sampled_from([1, 2])), seed)


CONDITIONS = {"count": "5/2", "depth": 2, "entropy": "1/50", "extent": "1/30"}
STOPS = st.sampled_from([{}, *({"stop": stop, "threshold": least} for stop, least in CONDITIONS.items())])


def made(mechanism, stop, **options):
    return mechanism(**stop, **options)


def mechanisms():
    return st.one_of(
        st.builds(made, st.just(DAFEntropy), STOPS, rounding=st.sampled_from(ROUNDINGS)),
        st.builds(
            made,
            st.just(DAFHomogeneity),
            STOPS,
            rounding=st.sampled_from(ROUNDINGS),
            candidates=st.sampled_from([1, 4]),
        ),
        st.builds(PrivTree, st.sampled_from(["1/2", "7/10"]), st.sampled_from([-3, 0, 8])),
    )


def cut(sizes: tuple[int, ...], cuts: int, generator: np.random.Generator) -> tuple[NDArray[np.int32], ...]:
    """First and last cells of boxes that fill a space: so often, a random box is cut across a random side."""
    boxes = [(tuple(0 for _ in sizes), tuple(size - 1 for size in sizes))]
    for _ in range(cuts):
        low, high = boxes.pop(generator.integers(len(boxes)))
        wide = [i for i in range(len(sizes)) if high[i] > low[i]]
        if not wide:
            boxes.append((low, high))
            continue
        i = generator.choice(wide)
        at = int(generator.integers(low[i], high[i]))
        boxes += [(low, (*high[:i], at, *high[i + 1 :])), ((*low[:i], at + 1, *low[i + 1 :]), high)]
    return tuple(np.array(ends, dtype=np.int32) for ends in zip(*boxes, strict=True))


def covered(sizes: tuple[int, ...], lower: NDArray[np.int32], upper: NDArray[np.int32]) -> NDArray[np.int64]:
    """In how many boxes each cell of a small space lies."""
    times = np.zeros(sizes, dtype=np.int64)
    for low, high in zip(lower, upper, strict=True):
        times[tuple(slice(a, b + 1) for a, b in zip(low, high, strict=True))] += 1
    return times


def boxes_as_tuples(boxes: Boxes) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(tuple(low), tuple(high)) for low, high in zip(boxes.lower.tolist(), boxes.upper.tolist(), strict=True)]


def check_partition(boxes: Boxes, grid: Grid) -> None:
    """No two boxes share a cell, and together they have as many cells as the grid."""
    assert (boxes.lower >= 0).all()
    assert (boxes.upper < np.array(grid.sizes)).all()
    sides = (boxes.upper.astype(np.int64) - boxes.lower + 1).tolist()
    assert sum(map(math.prod, sides)) == grid.cells
    for k in range(0, len(boxes), 500):
        apart = np.zeros((min(500, len(boxes) - k), len(boxes)), dtype=np.bool_)
        for dimension in range(grid.dimensions):
            low, high = boxes.lower[:, dimension], boxes.upper[:, dimension]
            apart |= (high[k : k + 500, np.newaxis] < low) | (low[k : k + 500, np.newaxis] > high)
        rows = np.arange(len(apart))
        assert not apart[rows, k + rows].any()
        apart[rows, k + rows] = True
        assert apart.all()


def check_charges(drawn: Drawn, epsilon: Fraction) -> None:
    """Every path has spent epsilon, exactly."""
    assert all(path.spent == epsilon and path.left == 0 for path in drawn.paths)
