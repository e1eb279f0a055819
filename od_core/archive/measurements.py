"""Noisy measurements, written once and read ever after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from od_core.plan import Step

Draw = Callable[[], NDArray[np.int64]]


class Measurements(Protocol):
    """Where measurements are kept, so that no level is drawn twice under one charge."""

    def once(self, step: Step, draw: Draw) -> NDArray[np.int64]:
        """The noisy values of a step: those kept, or else those drawn now and kept."""
        ...


class MemoryMeasurements:
    """Measurements kept for one call, in memory."""

    def __init__(self) -> None:
        self._noisy: dict[int, NDArray[np.int64]] = {}

    def once(self, step: Step, draw: Draw) -> NDArray[np.int64]:
        """As :meth:`Measurements.once`."""
        if step.level not in self._noisy:
            self._noisy[step.level] = draw()
        return self._noisy[step.level]
