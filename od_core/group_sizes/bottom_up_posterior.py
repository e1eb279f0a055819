"""The whole budget on the leaf areas, each one's curve by its posterior mean; the rest by summing.

Not from a paper: the measurement is that of ``bottom_up`` (Kuo et al., section 6.2.2), the estimate is new. Instead of
the ascending values nearest to the noisy ones it takes the mean of all ascending curves, each as probable as a chain
(:mod:`od_core.group_sizes.smoothing`), fitted to the noisy values of the leaf areas, makes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from od_core.group_sizes.bottom_up import BottomUp
from od_core.group_sizes.frame import Counts, Frame
from od_core.group_sizes.noisy_values import check_noisy
from od_core.group_sizes.posterior import NoisyAreas


@dataclass(frozen=True)
class BottomUpPosterior(BottomUp):
    """The leaf areas alone, by posterior means; better than ``bottom_up`` with the same noise (docs).

    Attributes:
        leaf: what is measured of a leaf area, ``cumulative`` or ``sizes``.
    """

    name: ClassVar[str] = "bottom_up_posterior"

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Histograms of levels 1 to L from the noisy values of the leaf level; see :class:`GroupSizeMechanism`.

        Raises:
            OdError: noisy values of another shape, or too large for 64-bit sums.
        """
        check_noisy(frame, self.query, frame.levels[-1:], noisy)
        of_sizes = self.leaf == "sizes"
        widths = frame.groups if of_sizes else np.full(len(frame.groups), frame.top_code)
        offsets = np.concatenate([[0], np.cumsum(widths)])
        areas = NoisyAreas(noisy[0].reshape(-1), offsets, frame.groups, frame.top_code, of_sizes, scale)
        leaves = areas.histograms()
        return [*(frame.sums(leaves, level) for level in frame.levels[:-1]), leaves]
