"""Random geographies and noisy histograms, and the optimum over them by a linear program."""

from collections.abc import Sequence

import cvxpy as cp
import numpy as np
import pandas as pd
from scipy import sparse
from scipy.optimize import linprog

from od_core import Geography
from od_core.group_sizes.area_totals import Prices, compute_real_solution
from od_core.group_sizes.groups import Counts, Frame


def random_geography(rng: np.random.Generator, *, tops: int, depth: int, max_fan_out: int) -> Geography:
    paths: list[tuple[int, ...]] = [(top,) for top in range(tops)]
    for _ in range(depth - 1):
        paths = [(*path, child) for path in paths for child in range(rng.integers(1, max_fan_out + 1))]
    names = [f"level_{k}" for k in range(1, depth + 1)]
    codes = [["-".join(map(str, path[: k + 1])).replace("-", "n") for k in range(depth)] for path in paths]
    return Geography.from_frame(pd.DataFrame([[f"a{c}" for c in row] for row in codes], columns=names), names)


def random_case(
    rng: np.random.Generator, *, most_groups: int = 6, most_sizes: int = 6, max_fan_out: int = 3
) -> tuple[Frame, list[Counts], int]:
    """A frame, noisy histograms of every level about true ones, and the scale of the noise."""
    tops, depth = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    geography = random_geography(rng, tops=tops, depth=depth, max_fan_out=max_fan_out)
    groups = rng.integers(0, most_groups + 1, len(geography.zones))
    frame = Frame(geography, groups, int(rng.integers(1, most_sizes)))
    sizes = frame.top_code + 1
    law = rng.dirichlet(np.full(sizes, 0.5))
    truth = np.array([rng.multinomial(count, law) for count in groups]).reshape(-1, sizes)
    scale = int(rng.integers(1, 7))
    noisy = []
    for level in frame.levels:
        true = frame.sum_at_level(truth, level)
        chance = 1 - np.exp(-1 / scale)
        noisy.append(true + rng.geometric(chance, true.shape) - rng.geometric(chance, true.shape))
    return frame, noisy, scale


def cost(noisy: Sequence[Counts], histograms: Sequence[Counts]) -> int:
    """The sum of squared distances, in whole numbers."""
    return sum(int(((a - b) ** 2).sum()) for a, b in zip(noisy, histograms, strict=True))


def least_cost(frame: Frame, noisy: Sequence[Counts], *, area_totals: bool) -> int:
    """The optimum by HiGHS: each value a sum of units between 0 and 1, whose k-th costs 2k - 1 - 2 noisy.

    The costs are convex, so units are taken in order; the conditions are those of a flow in a network (leaf cells up
    the trees of the sizes, and down those of the areas), so the optimum of the relaxation is that of whole numbers.
    """
    sizes, levels = frame.top_code + 1, list(frame.levels)
    units = [int(frame.count_groups(1)[frame.geography.ancestors_at(level, 1)].max(initial=0)) for level in levels]
    numbers = [frame.geography.size(level) * sizes * unit for level, unit in zip(levels, units, strict=True)]
    starts = np.cumsum([0, *numbers])
    if starts[-1] == 0:
        return cost(noisy, [np.zeros_like(values) for values in noisy])
    of_units = [2 * np.arange(1, unit + 1) - 1 for unit in units]
    prices = [of_unit - 2 * values[..., None] for of_unit, values in zip(of_units, noisy, strict=True)]
    price = np.concatenate([each.ravel() for each in prices])

    shapes = [(frame.geography.size(level), sizes, unit) for level, unit in zip(levels, units, strict=True)]
    unknowns = [np.arange(starts[k], starts[k + 1]).reshape(shape) for k, shape in enumerate(shapes)]
    entries, rights = [], list[int]()
    for above, below, level in zip(unknowns, unknowns[1:], levels[1:], strict=False):
        conditions = len(rights) + np.arange(above.shape[0] * sizes).reshape(-1, sizes, 1)
        entries.append((conditions, above, 1.0))
        entries.append((conditions[frame.geography.parents[level]], below, -1.0))
        rights += [0] * conditions.size
    totals = frame.count_groups(levels[-1] if area_totals else 1)
    conditions = len(rights) + np.arange(len(totals)).reshape(-1, 1, 1)
    entries.append((conditions, unknowns[-1 if area_totals else 0], 1.0))
    rights += totals.tolist()
    i = np.concatenate([np.broadcast_to(rows, columns.shape).ravel() for rows, columns, _ in entries])
    j = np.concatenate([columns.ravel() for _, columns, _ in entries])
    v = np.concatenate([np.full(columns.size, value) for _, columns, value in entries])
    matrix = sparse.csr_array((v, (i, j)), shape=(len(rights), int(starts[-1])))
    found = linprog(price, A_eq=matrix, b_eq=rights, bounds=(0, 1), method="highs")
    assert found.success
    least = round(found.fun)
    assert abs(found.fun - least) < 1e-6
    return least + sum(int((values**2).sum()) for values in noisy)


def assert_consistent(frame: Frame, histograms: Sequence[Counts], *, all_totals: bool) -> None:
    """Whole numbers of at least 0 that add up, with the totals of all areas, or of the top areas."""
    assert len(histograms) == len(frame.levels)
    for level, values in zip(frame.levels, histograms, strict=True):
        assert values.dtype == np.int64
        assert values.shape == (frame.geography.size(level), frame.top_code + 1)
        assert values.min() >= 0
        assert (values == frame.sum_at_level(histograms[-1], level)).all()
        if all_totals or level == 1:
            assert (values.sum(axis=1) == frame.count_groups(level)).all()


def by_clarabel(
    frame: Frame, noisy: list[Counts], x: list[cp.Variable], conditions: list[cp.Constraint]
) -> list[np.ndarray]:
    """The real tables of every level that are nearest and add up, under further conditions, by another solver."""
    for k, level in enumerate(frame.levels[1:], 1):
        sums = np.zeros((len(noisy[k - 1]), len(noisy[k])))
        sums[frame.geography.parents[level], np.arange(len(noisy[k]))] = 1
        conditions.append(x[k - 1] == sums @ x[k])
    objective = sum(cp.sum_squares(one - values) for one, values in zip(x, noisy, strict=True))
    cp.Problem(cp.Minimize(objective), conditions).solve(cp.CLARABEL)
    return [one.value for one in x]


def bound(frame: Frame, noisy: Sequence[Counts], prices: Prices) -> float:
    """A bound of the least cost with all totals, by weak duality: every condition priced, whole numbers of at least 0.

    What is left is a sum over cells of (x - noisy)^2 - 2 q x, least at the whole number nearest to noisy + q.
    """
    lower = 0.0
    for k, level in enumerate(frame.levels):
        y = compute_real_solution(frame, noisy, prices, k, slice(0, len(noisy[k])))
        x = np.maximum(np.rint(y), 0)
        lower += float(((x - noisy[k]) ** 2 - 2 * (y - noisy[k]) * x).sum())
        lower += 2 * float(prices.totals[k] @ frame.count_groups(level))
    return lower
