"""Measuring the leaf pairs with trips alone, under a threshold (``docs/stability-histogram.md``; spec 2).

``measure_present`` sees confidential counts. What it hands on is what reached the threshold, and in tree order, so that
neither a pair that was dropped nor the order of the input shows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from od_core.flows.estimation.top_down import Measurement
from od_core.flows.plan import ReleasePlan, ThresholdStep
from od_core.geography.flow_tree import Nodes
from od_core.ledger.noisy_vector import NoisyVector
from od_core.noise.sources import NoiseSource, checked_noise, laplace_source
from od_core.records.trip_counts import TripCounts


def measure_present(step: ThresholdStep, trips: TripCounts, noise: NoiseSource) -> Iterator[NDArray[np.int64]]:
    """Confidential in, public out: the ranks of the pairs whose noisy count reaches the threshold, then these counts.

    Raises:
        OdError: the noise source draws no Laplace noise or does not keep its contract.
    """
    counts = np.diff(trips.before)
    noisy = checked_noise(noise, laplace_source(noise).draw_laplace(step.scale, len(counts)), len(counts))
    noisy += counts
    released = noisy >= step.threshold
    yield trips.rank[released]
    yield noisy[released]


def present_leaves(plan: ReleasePlan, step: ThresholdStep, kept: NoisyVector) -> tuple[Nodes, Measurement]:
    """The released table and its measurement, from what :func:`measure_present` handed on."""
    ranks, noisy = kept.pieces([len(kept) // 2] * 2)
    pairs = plan.tree.pairs_at(ranks)
    measurement = Measurement(step, pairs, NoisyVector.in_memory([noisy]))
    return Nodes(pairs.level, pairs.origin, pairs.destination, noisy), measurement
