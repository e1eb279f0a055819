"""Find the shares of a budget for which the largest of some losses is smallest.

A loss is a convex function of the shares, and c^-k times as large if all shares are c times as large: k is 1 for
variances and 1/2 for standard deviations. Let h_j be the losses at the shares x, and g_jl the derivatives of -h_j.
Because the losses are convex, for any weights lambda_j that are at least 0 and sum to 1, all shares y satisfy

    max_j h_j(y) >= sum_j lambda_j ((1 + k) h_j(x) - sum_l g_jl y_l).

The largest right-hand side over lambda, for the worst y, is a linear program. It proves how far x is from the optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import scipy  # its solvers take a second to import, and load at their first use
from numpy.typing import NDArray

from od_core.errors import OdError

Reals = NDArray[np.float64]

GRAIN = 1_000_000
"""Shares are multiples of 1 / GRAIN, unless a coarser one is asked for."""

LEAST = 0.02
"""Smallest share of a level. With less, the level is so noisy that cuts at zero disturb the levels beside it."""

LARGEST_GAP = 0.005
"""Largest proven relative distance from the optimum. A larger one is an error."""

_LOGARITHMS = (-14.0, 1.0)
"""Bounds of the logarithms of shares in the search, before they are scaled to sum to 1."""

_STEP = 1e-4
"""Relative step of the differences from which derivatives are computed."""


@dataclass(frozen=True)
class OptimalShares:
    """The best shares, with a proof of how good they are.

    Attributes:
        shares: exact shares; they sum to 1.
        largest: the largest loss at these shares.
        gap: proven upper bound of ``1 - optimum / largest``, over all shares that are not below the smallest.
        weights: for each loss, its weight in the proof; they sum to 1. A loss with the weight 0 does not restrict the
            shares.
    """

    shares: tuple[Fraction, ...]
    largest: float
    gap: float
    weights: tuple[float, ...]


def optimal_shares(
    losses: Callable[[Reals], Reals], start: Reals, power: float, coarse: int | None = None
) -> OptimalShares:
    """Return the shares for which the largest loss is smallest.

    Args:
        losses: returns the losses of given shares; shapes (shares,) and (losses,). Each is convex and above 0, and
            falls with every share.
        start: shares with which the search begins; they sum to 1.
        power: power k of the losses; a loss at c times the shares is c^-k times the loss.
        coarse: for a single loss, a denominator of at most some thousands. The shares are then the best multiples of
            1 / ``coarse``, which do not depend on the last digits of a computation. By default, they are multiples of
            1 / GRAIN near the optimum.

    Raises:
        OdError: The optimum cannot be proven to be within ``LARGEST_GAP``.
    """
    best = _solved(losses, start)
    weights, bound = _proof(losses(best), _slopes(losses, best), power)
    grain = coarse or GRAIN
    parts = _rounded(best, grain)
    if coarse is not None:
        parts = _polished(parts, grain, losses)
    largest = float(losses(parts / grain).max())
    gap = max(1 - bound / largest, 0.0)
    if gap > LARGEST_GAP:
        raise OdError(
            "OD-SHARES-OPTIMUM",
            f"the best shares were not found: these may be {100 * gap:.1f} % from the optimum",
            next_step="choose shares yourself, or report this defect with the zone list",
        )
    exact = tuple(Fraction(int(part), grain) for part in parts)
    return OptimalShares(exact, largest, gap, tuple(weights.tolist()))


def _solved(losses: Callable[[Reals], Reals], start: Reals) -> Reals:
    """Return the best shares as real numbers, by sequential quadratic programming over their logarithms.

    The sum of the shares is minimised subject to an upper bound of the losses, after which they are scaled to sum to 1.
    """
    if len(start) == 1:
        return start
    largest = losses(start).max()

    def accuracy(logarithms: Reals) -> Reals:
        found: Reals = -np.log(losses(np.exp(logarithms)) / largest)
        return found

    def shares_of(logarithms: Reals) -> Reals:
        shares: Reals = np.exp(logarithms) / np.exp(logarithms).sum()
        return shares

    result = scipy.optimize.minimize(
        lambda at: float(np.log(np.exp(at).sum())),
        np.log(np.maximum(start, LEAST)),
        jac=shares_of,
        method="SLSQP",
        bounds=[_LOGARITHMS] * len(start),
        constraints=[
            {"type": "ineq", "fun": accuracy, "jac": lambda at: _differences(accuracy, at)},
            {
                "type": "ineq",
                "fun": lambda at: np.log(shares_of(at) / LEAST),
                "jac": lambda at: np.eye(len(start)) - shares_of(at),
            },
        ],
        options={"maxiter": 300, "ftol": 1e-10},
    )
    return shares_of(result.x)


def _differences(function: Callable[[Reals], Reals], at: Reals) -> Reals:
    """Return the derivatives of a vector of functions by central differences; shape (functions, variables)."""
    steps = _STEP * np.eye(len(at))
    slopes: Reals = np.array([(function(at + step) - function(at - step)) / (2 * _STEP) for step in steps]).T
    return slopes


def _slopes(losses: Callable[[Reals], Reals], shares: Reals) -> Reals:
    """Return the derivatives of minus the losses by the shares; shape (losses, shares)."""
    return -_differences(lambda logarithms: losses(np.exp(logarithms)), np.log(shares)) / shares


def _rounded(shares: Reals, grain: int) -> NDArray[np.int64]:
    """Return shares as multiples of 1 / ``grain`` that sum to 1, none below the smallest."""
    least = round(LEAST * grain)
    whole = np.maximum(np.floor(shares * grain), least).astype(np.int64)
    while (missing := grain - whole.sum()) != 0:
        rest = shares * grain - whole
        whole[np.argmax(rest) if missing > 0 else np.argmin(np.where(whole > least, rest, np.inf))] += np.sign(missing)
    return whole


def _polished(whole: NDArray[np.int64], grain: int, losses: Callable[[Reals], Reals]) -> NDArray[np.int64]:
    """Move units of 1 / ``grain`` between two shares for as long as this makes a single loss smaller.

    The result does not depend on the last digits of the solver's result.
    """
    best = losses(whole / grain)[0]
    moves = [(one, other) for one in range(len(whole)) for other in range(len(whole)) if one != other]
    is_better = True
    while is_better:
        is_better = False
        for one, other in moves:
            moved = whole.copy()
            moved[one] -= 1
            moved[other] += 1
            if moved[one] < round(LEAST * grain):
                continue
            loss = losses(moved / grain)[0]
            if loss < best * (1 - 1e-12):
                whole, best, is_better = moved, loss, True
    return whole


def _proof(values: Reals, slopes: Reals, power: float) -> tuple[Reals, float]:
    """Return the weights of the losses that prove the best lower bound of the optimum, and this bound.

    Args:
        values: losses at the shares; shape (losses,).
        slopes: derivatives of minus the losses; shape (losses, shares).
        power: power of the losses.
    """
    count, levels = len(values), slopes.shape[1]
    spare = 1 - levels * LEAST  # what remains after the smallest share of each level
    gain = (1 + power) * values - slopes.sum(axis=1) * LEAST
    found = scipy.optimize.linprog(
        np.append(-gain, spare),
        A_ub=np.column_stack([slopes.T, -np.ones(levels)]),
        b_ub=np.zeros(levels),
        A_eq=np.append(np.ones(count), 0.0)[np.newaxis],
        b_eq=np.ones(1),
        bounds=[(0, None)] * count + [(None, None)],
    )
    return found.x[:count], float(-found.fun)
