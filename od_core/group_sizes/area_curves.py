"""Estimate the curve of each area from its own noisy values, by isotonic regression or a hidden Markov chain.

**Isotonic regression** fits non-decreasing values to the noisy values of many areas (rows), in integer arithmetic. The
values of a row lie between 0 and an upper bound of the row. The best values within bounds are the best values without
bounds, clipped to the bounds. The reason is that the positions with a value above a threshold can be found for each
threshold independently, and a bound only removes the thresholds beyond it. By the same argument, the least and the
greatest optimal solution can be clipped separately.

**Posterior means.** The curve of an area with G groups is C_j, the number of groups of at most size j. It is estimated
with a hidden Markov chain, in which each size is in the state *quiet* or *busy*:

- Before each size, quiet turns busy with probability ``wake``, and busy turns quiet with probability ``rest``. The
  chain starts quiet, with the count 0.
- At a busy size, the curve jumps with probability ``jump``. At a quiet size, it stays the same.
- A jump has at least one group. After each group, a further group follows with probability ``more``. One jump in 16 is
  a long jump, in which a further group follows with probability G / (G + 4). The curve is limited to G. The chain ends
  when the curve reaches G.

The probabilities differ between classes of sizes. They are the same for all areas, and are fitted to the noisy values
by expectation maximisation [baum1970maximization]; see ``docs/explanation/group-sizes.md``, section "Posterior means".

The noisy values multiply the probability of a curve by a^distance, where a = exp(-1 / scale). For ``cumulative``, the
distance is the sum of |noisy_j - C_j| over the sizes j. For ``sizes``, it is the sum of |noisy_i - size_i| over the
groups i. This is also a sum over the sizes j below the top code: the term of size j is the number of groups i <= C_j
with a noisy size above j, plus the number of groups i > C_j with a noisy size of at most j. So one chain serves both.

At both ends of the range of counts, those with less than ``_NEGLIGIBLE`` times the largest probability are dropped. The
code uses only + - * / of doubles in a fixed order, and each area is processed by one thread, so the results have the
same bits on every machine.

References:
    [barlow1972isotonic] for pooling; [kuo2018countofcounts, sections 4.2 and 4.3] for its use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from od_core.group_sizes.groups import Counts
from od_core.kernels import kernel
from od_core.parallel import map_in_order

Reals = NDArray[np.float64]


# Isotonic regression.


def fit_least_squares(noisy: Counts, offsets: Counts, upper: Counts) -> tuple[Counts, Counts, Counts]:
    """Return the non-decreasing values within bounds with the least sum of squared distances from the noisy values.

    The values are exact fractions. The method is pool adjacent violators. Its time is linear in the number of values.

    Args:
        noisy: integers, one row after the other. The absolute values of a row sum to less than 2^63.
        offsets: values ``offsets[r]:offsets[r + 1]`` are row r. A row may be empty, and is shorter than 2^31.
        upper: upper bound of each row, at least 0. A bound times the length of its row fits 64 bits.

    Returns:
        Steps, which are maximal sequences of equal values in a row: ``first``, of which steps ``first[r]:first[r + 1]``
        belong to row r; shape (rows + 1,); and the number and the sum of the values in each step; shape (steps,) each.

    >>> fit_least_squares(np.array([3, 1, 1, 9]), np.array([0, 4]), np.array([8]))
    (array([0, 2]), array([3, 1]), array([5, 8]))
    """
    lengths, totals = np.empty_like(noisy), np.empty_like(noisy)
    first = np.zeros(len(offsets), dtype=np.int64)
    _pool_all(noisy, offsets, upper, first, lengths, totals)
    return first, lengths[: first[-1]].copy(), totals[: first[-1]].copy()


def fit_least_absolute(noisy: Counts, offsets: Counts, upper: Counts) -> tuple[Counts, Counts]:
    """Return non-decreasing values within bounds with the least sum of absolute distances from the noisy values.

    Several solutions may be optimal. All of them lie between the least and the greatest one, and the midpoint of these
    two is optimal too. A row of n values takes O(n log n) time, with a heap. The arguments are those of
    :func:`fit_least_squares`. The result is the least and the greatest optimal solution, in the shape of ``noisy``.

    >>> fit_least_absolute(np.array([3, 1, 9]), np.array([0, 3]), np.array([8]))
    (array([1, 1, 8]), array([3, 3, 8]))
    """
    least, greatest = np.empty_like(noisy), np.empty_like(noisy)
    heap = np.empty(int(np.diff(offsets).max(initial=0)), dtype=np.int64)
    _find_extreme_solutions(noisy, offsets, upper, heap, least, greatest)
    return least, greatest


@kernel
def _pool_all(noisy: Counts, offsets: Counts, upper: Counts, first: Counts, lengths: Counts, totals: Counts) -> None:
    """Write the steps of :func:`fit_least_squares` into ``first``, ``lengths`` and ``totals``, the latter from 0 on.

    Each value of a row is merged with the steps before it until their means ascend. The steps are then clipped.
    """
    end = 0
    for row in range(len(offsets) - 1):
        begin = end
        for i in range(offsets[row], offsets[row + 1]):
            length, total = np.int64(1), noisy[i]
            while end > begin and not _is_mean_below(totals[end - 1], lengths[end - 1], total, length):
                end -= 1
                length += lengths[end]
                total += totals[end]
            lengths[end], totals[end] = length, total
            end += 1
        end = _clip_steps(begin, end, upper[row], lengths, totals)
        first[row + 1] = end


@kernel
def _is_mean_below(total: int, length: int, other_total: int, other_length: np.int64) -> bool | np.bool_:
    """Return, exactly in 64 bits, whether total / length is below other_total / other_length."""
    if length == 1 and other_length == 1:
        return total < other_total
    quotient, other_quotient = total // length, other_total // other_length
    if quotient != other_quotient:
        return quotient < other_quotient
    remainder, other_remainder = total - quotient * length, other_total - other_quotient * other_length
    return remainder * other_length < other_remainder * length  # lengths and remainders are below 2^31


@kernel
def _clip_steps(begin: int, end: int, upper: int, lengths: Counts, totals: Counts) -> int:
    """Clip the steps ``begin:end`` of a row to 0 and ``upper``, merge those at one bound, and return the new end.

    The lengths and totals are overwritten.
    """
    new_end = begin
    for step in range(begin, end):
        length, total = lengths[step], totals[step]
        total = min(max(total, 0), upper * length)
        for bound in (0, upper):
            if new_end > begin and total == bound * length and totals[new_end - 1] == bound * lengths[new_end - 1]:
                new_end -= 1
                length += lengths[new_end]
                total += totals[new_end]
        lengths[new_end], totals[new_end] = length, total
        new_end += 1
    return new_end


@kernel
def _find_extreme_solutions(
    noisy: Counts, offsets: Counts, upper: Counts, heap: Counts, least: Counts, greatest: Counts
) -> None:
    """Write the least and the greatest optimal solution of every row; see :func:`fit_least_absolute`.

    The greatest solution of a row is the least one of the mirrored row: reversed, with opposite signs. ``heap`` is
    scratch space, as long as the longest row.
    """
    for row in range(len(offsets) - 1):
        first, last = offsets[row], offsets[row + 1]
        _find_least_solution(noisy[first:last], 0, upper[row], heap, least[first:last])
        mirrored = -noisy[first:last][::-1]
        _find_least_solution(mirrored, -upper[row], 0, heap, mirrored)  # overwrites the row with its solution
        greatest[first:last] = -mirrored[::-1]


@kernel
def _find_least_solution(row: Counts, lower: int, upper: int, heap: Counts, least: Counts) -> None:
    """Write the least optimal solution of one row into ``least``, which may be the row itself.

    The solution ascends from at least ``lower`` to at most ``upper``. Let f_k(z) be the least cost of the first k
    values if the solution is at most z. f_k is convex, non-increasing and finally constant. The heap contains the k
    points z at which its slope changes by 1. The largest point, at which f_k becomes constant, is on top. A further
    value is added to the heap twice, and the largest point removed. The solution is computed from the last value
    backwards: each value is the minimum of the next value and the top of the heap at that step.
    """
    for k in range(len(row)):
        value = min(max(row[k], lower), upper)  # the cost within the bounds changes by a constant
        if k > 0 and heap[0] > value:
            _replace_top_of_heap(heap, k, value)
        _add_to_heap(heap, k, value)  # if no point is larger, the value is itself the point that is removed
        least[k] = heap[0]
    answer = upper
    for k in range(len(row) - 1, -1, -1):
        answer = min(answer, least[k])
        least[k] = answer


@kernel
def _add_to_heap(heap: Counts, size: int, value: int) -> None:
    """Add a value to a heap of ``size`` values with the largest on top."""
    position = size
    while position > 0:
        parent = (position - 1) >> 1
        if heap[parent] >= value:
            break
        heap[position] = heap[parent]
        position = parent
    heap[position] = value


@kernel
def _replace_top_of_heap(heap: Counts, size: int, value: int) -> None:
    """Replace the largest value of a heap of ``size`` values by a smaller value."""
    position, child = 0, 1
    while child < size:
        if child + 1 < size and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= value:
            break
        heap[position] = heap[child]
        position, child = child, 2 * child + 1
    heap[position] = value


# Posterior means.

_NEGLIGIBLE = 1e-10
"""Share of the largest probability below which that of a count at an end of the range is dropped."""

_LONG_JUMP = 1 / 16
"""Probability that a jump is a long jump."""

WAKE, REST, JUMP, MORE = range(4)
"""Columns of the table of a chain's probabilities."""


class Smoothed(NamedTuple):
    """The posterior of the cumulative histograms of some areas, given their noisy values and the chain's probabilities.

    A chance is an occasion on which an event of the chain may occur: a quiet size turns busy, a busy size turns quiet,
    a busy size jumps, or a short jump gets a further group.

    Attributes:
        means: posterior mean of the number of groups of size j or less, for j = 0 to K - 1; shape (areas, K).
        chances, events: expected numbers by class of sizes and kind of event, over all areas; shape (classes, 4).
    """

    means: Reals
    chances: Reals
    events: Reals


def compute_powers(scale: Fraction, most: int) -> Reals:
    """Return the powers exp(-k / scale) that exceed 1e-300, for k = 0, 1, ... up to ``most``; shape (powers,).

    ``scale`` is that of the discrete Laplace noise, whose probabilities fall by exp(-1 / scale) with each step.
    """
    largest = min(most, int(700 * scale))  # exp(-700) is below 1e-300
    exponent = Decimal(-scale.denominator) / Decimal(scale.numerator)
    a = float(Context(prec=40).exp(exponent))  # correctly rounded on every machine
    powers = np.multiply.accumulate(np.concatenate([[1.0], np.full(largest, a)]))
    return np.asarray(powers[powers > 1e-300], dtype=np.float64)


class _Model(NamedTuple):
    """The noise and the chain, as kernels take them.

    Attributes:
        of_sizes: as in :class:`NoisyAreas`.
        decay: :func:`compute_powers` of the noise scale.
        classes: number of the class of every size; shape (K + 1,).
        chain: the chain's probabilities by class; shape (classes, 4).
    """

    of_sizes: bool
    decay: Reals
    classes: Counts
    chain: Reals


@kernel
def _smooth_all(
    areas: Counts, noisy: Counts, guess: Counts, offsets: Counts, totals: Counts, model: _Model, smoothed: Smoothed
) -> None:
    """Write the posterior means of ``areas`` into those of ``smoothed``, and add to its chances and events.

    An area without groups keeps its means of 0. For the other arrays, see :class:`NoisyAreas`.
    """
    means, chances, events = smoothed
    for i, area in enumerate(areas):
        if totals[area] > 0:
            noisy_of_area = noisy[offsets[area] : offsets[area + 1]]
            guess_of_area = guess[offsets[area] : offsets[area + 1]]
            forward = _compute_forward_probabilities(noisy_of_area, guess_of_area, totals[area], model)
            _compute_posterior_means(noisy_of_area, totals[area], model, forward, means[i], chances, events)


@kernel
def _compute_forward_probabilities(noisy, guess, total, model):  # type: ignore[no-untyped-def]  # compiled
    """Return the probability of each cumulative count and state at every size, given the noisy values up to this size.

    Returns three arrays: the bands, shape (sizes, 3), then the stored probabilities of the state busy and of the state
    quiet. A band has the lowest and the highest count with stored probabilities at a size, and the position of the
    lowest count in the other two arrays. The bands end before the first size at which the count is certainly G (the
    argument ``total``), or at size K - 1. ``guess`` is :attr:`NoisyAreas._guess`.
    """
    of_sizes, decay, classes, chain = model
    sizes = len(classes) - 1
    if of_sizes:  # `expected` is a guess of the cumulative count at every size; all counts up to it are considered
        expected = np.searchsorted(guess, np.arange(sizes), side="right")
    else:
        expected = np.minimum(np.maximum(guess, 0), total)
    before = np.zeros(total + 1), np.zeros(total + 1)
    before_busy, before_quiet = before
    busy, quiet = np.zeros(total + 1), np.zeros(total + 1)
    costs = np.zeros(total + 1, dtype=np.int64)
    space = 8 * sizes + total + 1  # for 8 counts a size at first; the arrays grow below
    forward_busy, forward_quiet = np.empty(space), np.empty(space)
    bands = np.zeros((sizes, 3), dtype=np.int64)
    low = high = end = 0
    before_quiet[0] = 1.0
    for size in range(sizes):
        noise_facts = (noisy, size, of_sizes, decay)
        high = _predict_probabilities(
            noise_facts, low, high, expected[size], total, chain[classes[size]], before, (busy, quiet)
        )
        # Multiply by the probability of the noisy value, relative to the likeliest count.
        least = _compute_costs(noisy, size, low, high, of_sizes, costs)
        largest = 0.0
        for count in range(low, high + 1):
            weight = decay[costs[count] - least] if costs[count] - least < len(decay) else 0.0
            busy[count] *= weight
            quiet[count] *= weight
            largest = max(largest, busy[count] + quiet[count])
        while busy[low] + quiet[low] < _NEGLIGIBLE * largest:  # drop counts at both ends
            low += 1
        while busy[high] + quiet[high] < _NEGLIGIBLE * largest:
            high -= 1
        total_of_size = 0.0
        for count in range(low, high + 1):
            total_of_size += busy[count] + quiet[count]
        if end + high + 1 - low > len(forward_busy):
            forward_busy = np.concatenate((forward_busy, np.empty(len(forward_busy) + total + 1)))
            forward_quiet = np.concatenate((forward_quiet, np.empty(len(forward_quiet) + total + 1)))
        for count in range(low, high + 1):  # scale to the sum 1, and store
            before_busy[count], before_quiet[count] = busy[count] / total_of_size, quiet[count] / total_of_size
            forward_busy[end + count - low], forward_quiet[end + count - low] = before_busy[count], before_quiet[count]
        bands[size, 0], bands[size, 1], bands[size, 2] = low, high, end
        end += high + 1 - low
        if low == total:
            return bands[:size], forward_busy, forward_quiet
    return bands, forward_busy, forward_quiet


@kernel
def _predict_probabilities(noise_facts, low, high, expected, total, chain_of_size, before, now):  # type: ignore[no-untyped-def]  # compiled
    """Write the probabilities of counts at a size, given the noisy values up to the previous size, into ``now``.

    ``now`` has an array of the state busy and one of quiet, both by count. ``before`` has the same at the previous
    size, where the counts are ``low`` to ``high``. Returns the highest count that is written: the first one, at or
    above ``high`` and ``expected``, that jumps exceed with a negligible probability, given the noisy values, too.
    """
    noisy, size, of_sizes, decay = noise_facts
    (before_busy, before_quiet), (busy, quiet) = before, now
    wake, rest, jump, more = chain_of_size[WAKE], chain_of_size[REST], chain_of_size[JUMP], chain_of_size[MORE]
    more_long = total / (total + 4.0)
    short = long = 0.0  # probability that a short or a long jump reaches this count
    far = max(high, expected)
    reached, rise = 1.0, 0  # probability that a jump goes beyond `far`, where computed, and distance gained since then
    for count in range(low, total):
        was_busy = before_busy[count] if count <= high else 0.0
        was_quiet = before_quiet[count] if count <= high else 0.0
        now_busy = was_busy * (1.0 - rest) + was_quiet * wake
        busy[count] = now_busy * (1.0 - jump) + short * (1.0 - more) + long * (1.0 - more_long)
        quiet[count] = was_quiet * (1.0 - wake) + was_busy * rest
        short = short * more + now_busy * jump * (1.0 - _LONG_JUMP)
        long = long * more_long + now_busy * jump * _LONG_JUMP
        if count >= far:
            if count == far and far > high:
                reached = short + long
            rise += 1 if not of_sizes or noisy[count] > size else -1
            if (short + long) * (decay[max(rise, 0)] if rise < len(decay) else 0.0) <= _NEGLIGIBLE * reached:
                return count
    busy[total] = 0.0  # the chain ends at G, where it is always quiet
    quiet[total] = (before_quiet[total] if high == total else 0.0) + short + long
    return total


@kernel
def _compute_costs(noisy: Counts, size: int, low: int, high: int, of_sizes: bool, costs: Counts) -> np.int64:
    """Write the distance of the noisy values from each count into ``costs``, up to a constant; return the least.

    The counts are ``low`` to ``high``. The distance is the term of ``size`` in the sum over sizes; see the module.
    """
    costs[low] = 0 if of_sizes else abs(noisy[size] - low)
    least: np.int64 = costs[low]
    for count in range(low + 1, high + 1):
        if of_sizes:  # one more group has at most this size
            costs[count] = costs[count - 1] + (1 if noisy[count - 1] > size else -1)
        else:
            costs[count] = abs(noisy[size] - count)
        least = min(least, costs[count])
    return least


@kernel
def _compute_posterior_means(noisy, total, model, forward, means, chances, events):  # type: ignore[no-untyped-def]  # compiled
    """Write the posterior means of an area into ``means``, and add the expected chances and events.

    ``forward`` is the result of :func:`_compute_forward_probabilities`. The value of a count and state is the
    probability of the noisy values of all later sizes, given the count and state. The values, ``busy`` and ``quiet``,
    are computed from the last size down. They are scaled so that their products with the forward probabilities sum to
    1 at each size. At the size at which the bands end, the only count is G. The values at a size turn into those at the
    size before in one pass over the counts, from the highest down; :func:`_count_events` lists what the pass stores.
    """
    of_sizes, decay, classes, chain = model
    bands, forward_busy, forward_quiet = forward
    sizes = len(bands)
    means[sizes:] = total
    busy, quiet = np.zeros(total + 1), np.zeros(total + 1)
    costs = np.zeros(total + 1, dtype=np.int64)
    stays, onward, jumps = np.zeros(total + 1), np.zeros(total + 1), np.zeros(total + 1)
    at_rest, awake = np.zeros(total + 1), np.zeros(total + 1)
    values_by_move = (stays, onward, jumps, at_rest, awake, busy, quiet)
    more_long = total / (total + 4.0)
    low = high = total
    quiet[total] = 1.0
    for size in range(sizes, -1, -1):
        least = np.int64(0)
        if size < sizes:  # the posterior mean of the count at this size
            low, high, start = bands[size, 0], bands[size, 1], bands[size, 2]
            mean_above_low = 0.0
            for count in range(low, high + 1):
                stored = start + count - low
                posterior = forward_busy[stored] * busy[count] + forward_quiet[stored] * quiet[count]
                mean_above_low += (count - low) * posterior
            means[size] = low + mean_above_low
            least = _compute_costs(noisy, size, low, high, of_sizes, costs)
        low_before, high_before, start_before = 0, 0, 0
        if size > 0:
            low_before, high_before, start_before = bands[size - 1, 0], bands[size - 1, 1], bands[size - 1, 2]
        of_size = classes[size]
        wake, rest, jump, more = chain[of_size, WAKE], chain[of_size, REST], chain[of_size, JUMP], chain[of_size, MORE]
        # Turn the values at this size into those at the size before. `short` and `long` are the values of reaching the
        # next higher count by a jump.
        short = long = sum_of_size = 0.0
        for count in range(max(high, high_before), low_before - 1, -1):
            weight = 0.0
            if low <= count <= high:
                cost = costs[count] - least if size < sizes else 0
                weight = decay[cost] if cost < len(decay) else 0.0
            still_busy, still_quiet = weight * busy[count], weight * quiet[count]  # with the noisy value of this size
            if count == total:  # the chain ends at G, where it is always quiet
                stays[count] = jumps[count] = awake[count] = busy[count] = 0.0
                at_rest[count] = quiet[count] = still_quiet
                short = long = still_quiet
            else:
                stays[count], onward[count], at_rest[count] = still_busy, short, still_quiet
                jumps[count] = jump * ((1.0 - _LONG_JUMP) * short + _LONG_JUMP * long)
                awake[count] = (1.0 - jump) * still_busy + jumps[count]
                busy[count] = (1.0 - rest) * awake[count] + rest * still_quiet
                quiet[count] = wake * awake[count] + (1.0 - wake) * still_quiet
                short = (1.0 - more) * still_busy + more * short
                long = (1.0 - more_long) * still_busy + more_long * long
            if low_before <= count <= high_before:
                was_busy = forward_busy[start_before + count - low_before] if size > 0 else 0.0
                was_quiet = forward_quiet[start_before + count - low_before] if size > 0 else 1.0
                sum_of_size += was_busy * busy[count] + was_quiet * quiet[count]
        band = (low_before, high_before, start_before, max(high, high_before))
        step = (total, size, band, sum_of_size)
        _count_events(step, chain[of_size], forward, values_by_move, chances[of_size], events[of_size])
        for count in range(low_before, high_before + 1):  # scale the values at the size before
            busy[count] /= sum_of_size
            quiet[count] /= sum_of_size


@kernel
def _count_events(step, chain, forward, values_by_move, chances, events):  # type: ignore[no-untyped-def]  # compiled
    """Add the expected chances and events (:class:`Smoothed`) of the chain's step from the previous size to this size.

    ``step`` has the number of groups, the size, a band, and the sum by which probabilities are scaled. The band has the
    lowest and the highest count at the previous size, the position of the lowest in the forward probabilities, and the
    highest count at either size. The probability of a move is the forward probability before the move times the value
    after it, divided by the sum. The arrays of ``values_by_move`` have, for each count:

    - stays, at_rest: the values of this count and the states busy and quiet at this size.
    - onward: the value of a short jump that goes on from this count to a further group.
    - jumps: the probability that a busy count jumps, times the value of its jump.
    - awake: the value of a busy count that has not yet decided whether to jump.
    - busy, quiet: the values of this count and state at the previous size.
    """
    stays, onward, jumps, at_rest, awake, busy, quiet = values_by_move
    total, size, (low, high, start, top), sum_of_size = step
    _, forward_busy, forward_quiet = forward
    wake, rest, jump, more = chain[WAKE], chain[REST], chain[JUMP], chain[MORE]
    arriving = 0.0  # probability that a short jump reaches this count
    for count in range(low, min(top, total - 1) + 1):
        was_busy = was_quiet = 0.0
        if count <= high:
            was_busy = forward_busy[start + count - low] if size > 0 else 0.0
            was_quiet = forward_quiet[start + count - low] if size > 0 else 1.0
        now_busy = was_busy * (1.0 - rest) + was_quiet * wake
        chances[WAKE] += was_quiet * quiet[count] / sum_of_size
        events[WAKE] += was_quiet * wake * awake[count] / sum_of_size
        chances[REST] += was_busy * busy[count] / sum_of_size
        events[REST] += was_busy * rest * at_rest[count] / sum_of_size
        chances[JUMP] += now_busy * awake[count] / sum_of_size
        events[JUMP] += now_busy * jumps[count] / sum_of_size
        going_on = arriving * more * onward[count] / sum_of_size
        chances[MORE] += going_on + arriving * (1.0 - more) * stays[count] / sum_of_size
        events[MORE] += going_on
        arriving = arriving * more + now_busy * jump * (1.0 - _LONG_JUMP)


_FIT_STAGES = ((4, 64), (3, 256))
"""Stages of the fit: number of rounds, and largest number of areas that each of these rounds reads. The areas are
evenly spaced in tree order."""

_PIECE_COUNTS = 1 << 16
"""Number of cumulative counts that a thread works on at a time. Sums over areas are added piece by piece, so their
floating-point errors depend on this number."""


@dataclass(frozen=True, eq=False)
class NoisyAreas:
    """The noisy values of some areas, from which their histograms are estimated.

    Attributes:
        noisy: noisy values of one area after the other; shape (values,).
        offsets: values ``offsets[a]:offsets[a + 1]`` belong to area a. They are K noisy cumulative counts, or G noisy
            sizes; shape (areas + 1,).
        totals: G, the public number of groups of every area; shape (areas,).
        top_code: K, the largest size.
        of_sizes: true if the values are noisy sizes, false if they are noisy cumulative counts.
        scale: scale of the noise.
    """

    noisy: Counts
    offsets: Counts
    totals: Counts
    top_code: int
    of_sizes: bool
    scale: Fraction

    def estimate_histograms(self) -> Counts:
        """Return the estimated histograms of all areas; integers, shape (areas, K + 1)."""
        histograms = np.empty((len(self.totals), self.top_code + 1), dtype=np.int64)
        areas_done = 0
        for smoothed in self.iterate_posteriors(np.arange(len(self.totals)), self.fit_chain()):
            block = slice(areas_done, areas_done + len(smoothed.means))
            histograms[block] = _round_to_histograms(smoothed.means, self.totals[block])
            areas_done = block.stop
        return histograms

    def fit_chain(self) -> Reals:
        """Return the fitted probabilities of the Markov chain for every class of sizes; shape (classes, 4).

        In each round, a probability becomes the ratio of expected events to expected chances under the previous
        probabilities (see :class:`Smoothed`). One chance is added to the chances, and the initial probability is added
        to the events. This keeps the ratio strictly between 0 and 1.
        """
        initial = make_initial_chain(classify_sizes(self.top_code))
        chain = initial
        for rounds, areas in _FIT_STAGES:
            sample = np.unique(np.linspace(0, len(self.totals) - 1, min(areas, len(self.totals))).astype(np.int64))
            for _ in range(rounds):
                chances, events = np.ones_like(initial), initial.copy()
                for smoothed in self.iterate_posteriors(sample, chain):
                    chances += smoothed.chances
                    events += smoothed.events
                chain = events / chances
        return chain

    def compute_posterior(self, areas: Counts, classes: Counts, chain: Reals) -> Smoothed:
        """Return the posterior of the areas whose numbers are ``areas``, under the probabilities ``chain``.

        ``classes`` has the class of every size, see :func:`classify_sizes`, and ``chain`` the shape (classes, 4).
        """
        smoothed = Smoothed(np.zeros((len(areas), self.top_code)), *np.zeros((2, len(chain), 4)))
        model = _Model(self.of_sizes, self._decay, classes, chain)
        _smooth_all(areas, self.noisy, self._guess, self.offsets, self.totals, model, smoothed)
        return smoothed

    @cached_property
    def _decay(self) -> Reals:
        """Factor of a curve's probability at each distance 0, 1, ... from noisy values; see :func:`compute_powers`."""
        return compute_powers(self.scale, int(self.totals.max(initial=0)))

    @cached_property
    def _guess(self) -> Counts:
        """Values near which the likely counts are: the noisy cumulative counts, or sizes that ascend.

        These sizes are the ones nearest to the noisy sizes. The shape is that of ``noisy``.
        """
        if not self.of_sizes:
            return self.noisy
        least, _ = fit_least_absolute(self.noisy, self.offsets, np.full_like(self.totals, self.top_code))
        return least

    def iterate_posteriors(self, areas: Counts, chain: Reals) -> Iterator[Smoothed]:
        """Yield the posteriors of the areas whose numbers are ``areas``, one for each piece of them, in order."""
        classes = classify_sizes(self.top_code)
        rows = max(1, _PIECE_COUNTS // len(classes))
        pieces = np.split(areas, range(rows, len(areas), rows))
        yield from map_in_order(partial(self.compute_posterior, classes=classes, chain=chain), pieces)


def _round_to_histograms(means: Reals, totals: Counts) -> Counts:
    """Return the histograms whose cumulative counts are ``means``, rounded half up; shape (areas, K + 1).

    ``means`` has the shape (areas, K). The last cumulative count is the number of groups, in ``totals``.
    """
    rounded = np.floor(means + 0.5).astype(np.int64)
    rounded = np.maximum.accumulate(rounded, axis=1)  # means ascend, except for floating-point errors
    return np.diff(rounded, prepend=0, append=totals[:, np.newaxis], axis=1)


def classify_sizes(top_code: int) -> Counts:
    """Return the number of the class of sizes to which each size 0 to K belongs; shape (K + 1,).

    The classes begin at the sizes 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, ...
    """
    begins = [1, 2, 3, *(part << power for power in range(1, top_code.bit_length()) for part in (2, 3))]
    return np.searchsorted(np.array(begins), np.arange(top_code + 1), side="right").astype(np.int64)


def make_initial_chain(classes: Counts) -> Reals:
    """Return the initial probabilities ``wake``, ``rest``, ``jump`` and ``more`` of the chain; shape (classes, 4).

    ``wake`` is divided by the number of sizes in the class, so that all classes are equally often busy. The fit
    begins with these values, which are also its weak prior; see :meth:`NoisyAreas.fit_chain`.
    """
    wake = 0.3 / np.bincount(classes)
    rest, jump, more = (np.full_like(wake, probability) for probability in (0.1, 0.5, 0.5))
    return np.column_stack([wake, rest, jump, more])
