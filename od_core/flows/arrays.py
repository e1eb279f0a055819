"""Name the two types of arrays of numbers that estimates are made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
"""Whole numbers, such as trips, noisy counts and positions."""

Reals = NDArray[np.float64]
"""Real numbers, such as estimates, variances and weights."""
