"""Families of children by categories, for the tests of the projection onto both margins and of its rounding."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from od_core.flows.projection.categories_onto_margins import _ascend, fit_to_margins, project_to_margins

BITS = 16


class Family(NamedTuple):
    estimates: NDArray[np.float64]
    """C of every child and category; shape (children, categories)."""
    weights: NDArray[np.int64]
    truth: NDArray[np.int64]
    """Any integers >= 0, whose margins are those of the family."""

    @property
    def fixed(self) -> NDArray[np.int64]:
        return np.rint(self.estimates * 2**BITS).astype(np.int64)

    @property
    def left(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return np.flatnonzero(self.truth.sum(axis=1)), np.flatnonzero(self.truth.sum(axis=0))


def project(families: list[Family], bits: int = BITS) -> list[NDArray[np.int64]]:
    """Project families with the same number of categories in one call."""
    offsets = np.cumsum([0] + [len(family.truth) for family in families])
    fixed = np.concatenate([family.fixed for family in families]) >> (BITS - bits)
    weights = np.concatenate([family.weights for family in families])
    totals = np.concatenate([family.truth.sum(axis=1) for family in families])
    by_category = np.array([family.truth.sum(axis=0) for family in families])
    projected = project_to_margins(fixed, weights, totals, by_category, offsets, bits)
    return np.split(projected, offsets[1:-1])


def noisy_family(rng: np.random.Generator, children: int, categories: int, spread: float = 10.0) -> Family:
    """Heavy-tailed trips, of which some rows, columns and cells are 0, under noise of one of four sizes."""
    shape = (children, categories)
    truth = np.ceil(rng.pareto(1.1, shape).clip(0, 1e4)) * (rng.random(shape) < (0.1, 0.5, 1.0)[rng.integers(3)])
    truth *= rng.random(categories) < 0.9
    noise = rng.normal(0.0, spread * (0.05, 0.3, 1.0)[rng.integers(3)], shape)
    return Family(truth + noise, weights(rng, children), truth.astype(np.int64))


def adversarial_family(rng: np.random.Generator, children: int, categories: int) -> Family:
    """Cauchy noise; a single giant in the margins, and another in the estimates; or estimates that tell nothing."""
    shape = (children, categories)
    truth = (rng.random(shape) < (0.05, 0.4)[rng.integers(2)]).astype(np.int64)
    kind = rng.integers(3)
    if kind == 0:
        truth *= rng.integers(1, 10**5, shape)
        estimates = truth + 100 * rng.standard_cauchy(shape).clip(-1e5, 1e5)
    elif kind == 1:
        truth[rng.integers(children), rng.integers(categories)] = 10**6
        estimates = rng.normal(0.0, 10.0, shape)
        estimates[rng.integers(children), rng.integers(categories)] += 1e6
    else:
        truth *= rng.integers(1, 100, shape)
        estimates = rng.normal(0.0, 1e5, shape)
    return Family(estimates, weights(rng, children), truth)


def weights(rng: np.random.Generator, children: int) -> NDArray[np.int64]:
    """Equal, or between 1 and 2^20."""
    return rng.integers(1, 2**20, children, endpoint=True) if rng.random() < 0.5 else np.full(children, 2**20)


def conditional(family: Family) -> NDArray[np.float64]:
    """E of the rows and columns left: the solution of the normal equations of sum (E - C)^2 / v under both margins."""
    rows, columns = family.left
    estimates, truth = (table[np.ix_(rows, columns)] for table in (family.estimates, family.truth))
    margins = margin_matrix(*truth.shape).toarray()
    gap = margins @ (truth - estimates).ravel()
    variances = np.repeat(family.weights[rows] / 2**20, len(columns))
    multipliers = np.linalg.lstsq(margins * variances @ margins.T, gap, rcond=None)[0]
    return estimates + (variances * (margins.T @ multipliers)).reshape(estimates.shape)


def margin_matrix(children: int, categories: int) -> sparse.csr_array:
    """The sums of rows, then those of columns, of a table in C order."""
    rows = sparse.kron(sparse.eye_array(children), np.ones((1, categories)))
    columns = sparse.kron(np.ones((1, children)), sparse.eye_array(categories))
    return sparse.csr_array(sparse.vstack([rows, columns]))


def margins_of(table: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([table.sum(axis=1), table.sum(axis=0)])


def ascended(family: Family) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
    """Y of the rows and columns left, transposed; their margins; and the number of sweeps."""
    rows, columns = family.left
    row_sums, column_sums = family.truth.sum(axis=1)[rows], family.truth.sum(axis=0)[columns]
    values = fit_to_margins(family.fixed, family.weights[rows], rows, columns, row_sums, column_sums, BITS)
    sweeps = _ascend(values, row_sums, column_sums, BITS)
    return values, row_sums, column_sums, sweeps


def most_moves(categories: int) -> int:
    """Fewer spreads than categories, and then single units for a sum of |d| of at most 4 a category."""
    return categories - 1 + 2 * categories
