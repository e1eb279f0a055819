"""Project noisy values onto non-negative integers that add up to the totals of their parents.

In the following, x are the noisy counts of the children of one parent, c is the parent's total, and y >= 0 are the
integers with the sum c that are found. Two projections are here. Both check their input with :func:`check_parents`.

**Euclidean.** :func:`project_children_euclidean` minimises sum (x - y)^2. It is the projection of the mechanism
``tda_l2`` [boninsegna2025inftda, section 5]. Over the reals, the optimum is the projection onto the simplex, y_i =
max(x_i - theta, 0), where theta is the rational number for which the y_i sum to c. Since x is whole, all positive y_i
have the same fractional part. Let k be theta rounded up: the smallest whole number with sum max(x_i - k, 0) <= c.
Rounding every y_i down gives max(x_i - k, 0). The sum is then less than c by fewer units than there are positive y_i,
or equal to c if theta is whole. The missing units are added, one per entry, to the largest x first, with ties by
position. So the entries that become 0 are those with small x.

The result is also optimal among whole numbers. The last unit of an entry y_i adds 2 (y_i - x_i) - 1 to the sum of
squares, and one more unit would add 2 (y_i - x_i) + 1. For an entry that received no missing unit, y_i is x_i - k, or
0 >= x_i - k, so one more unit would add at least 1 - 2k. For an entry that received one, y_i is x_i - k + 1, so its
last unit added 1 - 2k. The last unit of any other entry added less. So moving a unit from one entry to another cannot
reduce the sum of squares. Since that sum is a sum of convex functions of the entries, this is sufficient.

The code computes neither theta nor any fraction. Newton's method on whole numbers finds k, and bisection finds the
smallest x that receives a missing unit. So nothing is sorted, and no array except x is read.

**Chebyshev, or IntOpt.** :func:`project_children` minimises max |x - y|. It is the optimisation of
[boninsegna2025inftda, section 4.2], without its sort. Let b be the number of children, and z = y - x. The search starts
at z_i = max(a, -x_i) with a = ceil((c - sum x) / b). The distance is then t = max |z_i|, and the excess is E = sum z -
(c - sum x) >= 0. The search removes the excess by lowering z, for the smallest x first, each z_i to max(-x_i, -t) at
the lowest. If this does not remove the whole excess, the distance becomes t*, the smallest t with sum max(x_i - t, 0)
<= c. Every y_i is then max(x_i - (t* - 1), 0), minus 1 for the first E positive entries, where E is the excess of these
y.

Both cases lower entries in order of x until the excess is removed. Bisection finds the x at which this happens, so no
sort is needed. The search reads no array except x.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from od_core.errors import OdError
from od_core.flows.arrays import Integers, Reals
from od_core.kernels import kernel
from od_core.registry import refuse_unknown

_LIMIT = 3.0 * 2**60
"""Upper limit of sum |x| + c + b, for b children with noisy counts x and total c. Twice a smaller sum fits 64 bits."""

_SAFE_MAGNITUDE = 1 << 40
"""Noisy counts below this magnitude need no further check: fewer than 2^20 of them are within ``_LIMIT``."""

_EMPTY, _NEGATIVE, _OVERFLOW = 1, 2, 3


def check_parents(noisy: Integers, totals: Integers, offsets: Integers) -> None:
    """Refuse input that a projection cannot process.

    Args:
        noisy: Noisy counts of the children of all parents, one parent after the other; shape (children,).
        totals: Total of each parent; shape (parents,).
        offsets: The children of parent ``p`` are ``offsets[p]:offsets[p + 1]``; shape (parents + 1,).

    Raises:
        OdError: If a parent has no children or a negative total, or if sums exceed 64-bit arithmetic.
    """
    if fault := _find_first_fault(noisy, totals, offsets):
        raise _make_fault_error(fault)


@kernel
def _find_first_fault(noisy: Integers, totals: Integers, offsets: Integers) -> int:
    """Return the fault of the first parent that has one: ``_EMPTY``, ``_NEGATIVE`` or ``_OVERFLOW``; 0 if none has."""
    low = high = np.int64(0)
    for i in range(np.uint64(len(noisy))):
        low, high = min(low, noisy[i]), max(high, noisy[i])
    far = low <= -_SAFE_MAGNITUDE or high >= _SAFE_MAGNITUDE
    for parent in range(len(totals)):
        children, total = offsets[parent + 1] - offsets[parent], totals[parent]
        if children <= 0:
            return _EMPTY
        if total < 0:
            return _NEGATIVE
        if far or total >= 1 << 60 or children >= 1 << 20:
            size = np.float64(total) + children
            for i in range(np.uint64(offsets[parent]), np.uint64(offsets[parent + 1])):
                size += abs(np.float64(noisy[i]))
            if size >= _LIMIT:
                return _OVERFLOW
    return 0


def _make_fault_error(found: int) -> OdError:
    """Return the error for a fault that :func:`_find_first_fault` found."""
    if found == _EMPTY:
        return _make_call_error("OD-INTOPT-EMPTY", "there are no children among which to divide the total")
    if found == _NEGATIVE:
        return _make_call_error("OD-INTOPT-TOTAL", "the total is negative")
    return OdError(
        "OD-INTOPT-OVERFLOW",
        "the values are too large for 64-bit sums",
        next_step="use smaller counts or less noise",
        spent="draws already made stay charged",
    )


def _make_call_error(code: str, message: str) -> OdError:
    """Return the error for invalid arguments of a projection."""
    return OdError(code, message, next_step="correct the call")


def project_children_euclidean(noisy: Integers, totals: Integers, offsets: Integers) -> Integers:
    """Return the non-negative integers nearest in Euclidean distance that sum to each parent's total.

    For the arguments and errors, see :func:`check_parents`.

    >>> project_children_euclidean(np.array([3, -1, 10]), np.array([10]), np.array([0, 3]))
    array([1, 0, 9])
    """
    check_parents(noisy, totals, offsets)
    projected = np.empty_like(noisy)
    _project_euclidean(noisy, totals, offsets, projected)
    return projected


@kernel
def _project_euclidean(noisy: Integers, totals: Integers, offsets: Integers, projected: Integers) -> None:
    """Write the projected counts of the children of every parent into ``projected``."""
    for parent in range(len(totals)):
        children, total = offsets[parent + 1] - offsets[parent], totals[parent]
        first, last = np.uint64(offsets[parent]), np.uint64(offsets[parent + 1])
        high = noisy[first]
        noisy_sum = np.int64(0)
        for i in range(first, last):
            noisy_sum += noisy[i]
            high = max(high, noisy[i])
        mean_excess = -((total - noisy_sum) // children)  # ceil((sum x - c) / b), a lower bound of k
        threshold = find_least_threshold(noisy, first, last, high, total, mean_excess)
        missing = total
        for i in range(first, last):
            projected[i] = max(noisy[i] - threshold, 0)
            missing -= projected[i]
        if missing > 0:
            _give_missing_units(noisy, first, last, threshold, high, missing, projected)


@kernel
def _give_missing_units(
    noisy: Integers,
    first: np.uint64,
    last: np.uint64,
    threshold: np.int64,
    high: np.int64,
    left: np.int64,
    projected: Integers,
) -> None:
    """Add the ``left`` units that are missing from the parent's total to the children with the largest x, one each.

    At least ``left`` children have x >= ``threshold``. During the bisection, at least ``left`` children have x >=
    ``least``, and fewer than ``left`` have x >= ``beyond``.
    """
    least, beyond = threshold, high + 1
    while beyond - least > 1:
        middle = least + (beyond - least) // 2
        reached = np.int64(0)
        for i in range(first, last):
            reached += noisy[i] >= middle
        if reached >= left:
            least = middle
        else:
            beyond = middle
    for i in range(first, last):
        larger = np.int64(noisy[i] > least)
        projected[i] += larger
        left -= larger
    for i in range(first, last):
        if left == 0:
            break
        if noisy[i] == least:
            projected[i] += 1
            left -= 1


@kernel
def find_least_threshold(
    noisy: Integers, first: np.uint64, last: np.uint64, high: np.int64, total: np.int64, at_least: np.int64
) -> np.int64:
    """Return the smallest whole number t >= ``at_least`` with sum max(x - t, 0) <= ``total``.

    The sum is over x = ``noisy[first:last]``, whose maximum is ``high``. Newton's method starts below t. Since the sum
    is convex in t, no step overshoots, even when the step is rounded up to a whole number.
    """
    t = max(at_least, high - total)  # the largest x alone requires high - t <= total
    while True:
        over, larger = -total, np.int64(0)
        for i in range(first, last):
            over += max(noisy[i] - t, 0)
            larger += noisy[i] > t
        if over <= 0:
            return t
        t -= -over // larger


Order = Literal["ascending", "descending"]
ORDERS: tuple[Order, ...] = ("ascending", "descending")


def intopt(noisy: ArrayLike, total: int, order: Order = "ascending") -> Integers:
    """Return the non-negative integers with the given sum that are nearest to ``noisy`` in Chebyshev distance.

    Args:
        noisy: The integers x, of any sign; shape (b,), b >= 1. Ties are broken by position.
        total: The sum c >= 0.
        order: Several y can be nearest. ``ascending`` lowers the smallest x first, which removes noise on empty pairs.
            ``descending`` lowers the largest x first, which preserves small true flows.

    Returns:
        Integers y >= 0 with sum y = c; shape (b,).

    Raises:
        OdError: If c < 0, if there are no children, if the order is unknown, or if values are not whole numbers or are
            too large for 64-bit arithmetic.

    >>> intopt([3, -1, 10], 9)
    array([1, 0, 8])
    """
    x = np.asarray(noisy)
    if x.ndim != 1 or len(x) == 0:
        raise _make_fault_error(_EMPTY)
    if not np.issubdtype(x.dtype, np.integer) or isinstance(total, bool) or not isinstance(total, int | np.integer):
        raise _make_call_error("OD-INTOPT-INTEGER", "noisy values and total must be whole numbers")
    if total < 0:
        raise _make_fault_error(_NEGATIVE)
    if total >= 1 << 62 or x.max() >= 1 << 62 or x.min() <= -(1 << 62):
        raise _make_fault_error(_OVERFLOW)
    return project_children(x.astype(np.int64), np.array([int(total)]), np.array([0, len(x)]), order)


def project_children(noisy: Integers, totals: Integers, offsets: Integers, order: Order = "ascending") -> Integers:
    """Return the result of IntOpt (:func:`intopt`) for the children of every parent; shape (children,).

    For the other arguments and the errors, see :func:`check_parents`.
    """
    refuse_unknown("order", order, ORDERS, code="OD-INTOPT-ORDER", next_step="choose ascending or descending")
    check_parents(noisy, totals, offsets)
    projected = np.empty_like(noisy)
    _project_chebyshev(noisy, totals, offsets, order == "descending", projected)
    return projected


@kernel
def _project_chebyshev(
    noisy: Integers, totals: Integers, offsets: Integers, descending: bool, projected: Integers
) -> None:
    """Write the projected counts of the children of every parent into ``projected``.

    The loops over children compile to vector instructions, which are five times as fast, because they contain no branch
    and their positions are unsigned. For signed positions, Numba would add a check for negative values.
    """
    for parent in range(len(totals)):
        children, total = offsets[parent + 1] - offsets[parent], totals[parent]
        first, last = np.uint64(offsets[parent]), np.uint64(offsets[parent + 1])
        low = high = noisy[first]
        noisy_sum = np.int64(0)
        for i in range(first, last):
            noisy_sum += noisy[i]
            low, high = min(low, noisy[i]), max(high, noisy[i])
        if children == 1:
            projected[first] = total
        elif total == 0:
            for i in range(first, last):
                projected[i] = 0
        else:
            _project_family(noisy, first, last, children, low, high, noisy_sum, total, descending, projected)


@kernel
def _project_family(noisy, first, last, children, low, high, noisy_sum, total, descending, projected):  # type: ignore[no-untyped-def]  # compiled
    """Write the projected counts of two or more children of a parent, ``first:last``, into ``projected``.

    ``low``, ``high`` and ``noisy_sum`` are the least, the greatest and the sum of their noisy counts. The module
    docstring has the steps. ``excess`` is E there, and ``capacity`` the sum of the limits of :func:`_lower_counts`.
    """
    a = -((noisy_sum - total) // children)  # ceil((c - sum x) / b): floor division of the negative
    distance = max(abs(max(a, -low)), abs(max(a, -high)))  # z falls as x rises
    excess, capacity = -total, np.int64(0)
    for i in range(first, last):
        excess += max(noisy[i] + a, 0)
        capacity += max(a + min(noisy[i], distance), 0)  # z falls from max(a, -x) to max(-x, -t) at most
    if capacity < excess:
        distance = find_least_threshold(noisy, first, last, high, total, distance)
        a = 1 - distance  # every y is max(x - (t* - 1), 0)
        excess, capacity = -total, np.int64(0)
        for i in range(first, last):
            excess += max(noisy[i] + a, 0)
            capacity += noisy[i] >= distance
    flip = np.int64(-1) if descending else np.int64(0)
    if (excess if descending else capacity - excess) <= max(a + min(high, distance), 0):
        threshold = high ^ flip  # a common case in sparse flows
    else:
        lowest = max(low, 1 - a)  # smaller x cannot be lowered
        threshold = _find_last_limit(noisy, first, last, lowest, high, a, distance, excess, flip)
    _lower_counts(noisy, first, last, a, distance, excess, threshold, flip, projected)


@kernel
def _find_last_limit(noisy, first, last, lowest, high, a, distance, excess, flip):  # type: ignore[no-untyped-def]  # compiled
    """Return the last threshold of :func:`_lower_counts` before which the limits sum to at most ``excess``.

    It is found by bisection.
    """
    threshold, beyond = (~high, ~lowest + 1) if flip else (lowest, high + 1)
    while beyond - threshold > 1:
        middle = threshold + (beyond - threshold) // 2
        before = np.int64(0)
        for i in range(first, last):
            before += max(a + min(noisy[i], distance), 0) if noisy[i] ^ flip < middle else 0
        if before <= excess:
            threshold = middle
        else:
            beyond = middle
    return threshold


@kernel
def _lower_counts(noisy, first, last, a, distance, excess, threshold, flip, projected):  # type: ignore[no-untyped-def]  # compiled
    """Write max(x + a, 0), lowered by ``excess`` in total, into ``projected`` for the children of one parent.

    Children are lowered in order of x, with ties by position, each by at most its limit max(a + min(x, t), 0), where t
    is ``distance``. Those before the threshold are lowered by their limit, those at it one after the other until the
    excess is removed. It is compared with x ^ ``flip``, which is -x - 1 in descending order, with flip = -1; else x.
    """
    for i in range(first, last):
        gives = max(a + min(noisy[i], distance), 0) if noisy[i] ^ flip < threshold else 0
        projected[i] = max(noisy[i] + a, 0) - gives
        excess -= gives
    at = threshold ^ flip
    limit = max(a + min(at, distance), 0)
    for i in range(first, last):
        if excess == 0:
            break
        if noisy[i] == at:
            gives = min(limit, excess)
            projected[i] -= gives
            excess -= gives


@kernel
def shift_to_total(w: Reals, deviation: Reals, total: float, shift: float) -> float:
    """Return the shift for which max(w + shift * deviation, 0) has the sum ``total``, above 0, by Newton's method.

    It starts from ``shift``, which may be infinite. Each step computes the shift from the children that are above 0.
    Then the sum is at least the total, so the shift decreases until no further child becomes 0 [michelot1986simplex].
    """
    max_above_zero, starts = len(w) + 1, shift < np.inf
    while True:
        sum_of_w, sum_of_deviations, above_zero = 0.0, 0.0, 0
        for i in range(len(w)):
            if w[i] + shift * deviation[i] > 0.0:
                sum_of_w += w[i]
                sum_of_deviations += deviation[i]
                above_zero += 1
        if starts and above_zero == 0:
            shift, starts = np.inf, False
            continue
        if above_zero >= max_above_zero or above_zero == 0:
            return shift
        if not starts:
            max_above_zero = above_zero
        shift, starts = (total - sum_of_w) / sum_of_deviations, False


@kernel
def project_to_total(w: Reals, deviation: Reals, total: float) -> None:
    """Replace w in place by the w' >= 0 with the sum ``total``, above 0, that minimises sum (w' - w)^2 / deviation.

    The solution is w' = max(w + shift * deviation, 0).
    """
    shift = shift_to_total(w, deviation, total, np.inf)
    for i in range(len(w)):
        w[i] = max(w[i] + shift * deviation[i], 0.0)
