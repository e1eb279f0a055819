"""A choice among candidates by their noisy scores, charged whatever their number."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from od_core.stops.grid import Counts
from od_core.stops.heterogeneity import SENSITIVITY
from od_core.stops.path import Path


def choice_scale(epsilon: Fraction, sensitivity: int) -> Fraction:
    """Scale of the noise on every score: 2 D / epsilon, where a trip moves a score by D."""
    return 2 * SENSITIVITY * sensitivity / epsilon


def noisy_minimum(scores: Counts, epsilon: Fraction, path: Path) -> Counts:
    """The candidate of least score with discrete Laplace noise; shape (nodes,) from (nodes, candidates).

    It costs epsilon, which the path has paid, and no more whatever the number of candidates. Fix the noise of all but
    one of them: that one is chosen if its noise is at most some whole number (ties go to the first). A trip more or
    less moves its own score by D at most and those that it is compared with by D, so that number by 2 D, and the
    probability by a factor of exp(2 D / scale) at most. D scores move apart, some up and some down, so that half the
    noise would not do. A replaced trip is one fewer and one more, in one node or in two: the noise is twice as wide.
    """
    noise = path.noise(choice_scale(epsilon, path.sensitivity), scores.size)
    chosen: Counts = np.argmin(scores + noise.reshape(scores.shape), axis=1)
    return chosen
