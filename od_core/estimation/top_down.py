"""The top-down pass: measure a level, estimate it below the level above (spec 1, "Algorithm").

``measure`` is the last function that sees confidential counts; ``estimate`` sees noisy values alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flow_tree import Nodes, Pairs
from od_core.plan import ReleasePlan, Step
from od_core.privacy.noise import NoiseSource
from od_core.trips import TripCounts

_NOISE_LIMIT = 1 << 61


@dataclass(frozen=True, eq=False)
class Measurement:
    """The noisy counts of one level: public by the guarantee, never drawn again.

    Attributes:
        step: what was planned and charged.
        parents: the released nodes above; the measured cells are all their public children, in tree order
            (None for a measured root).
        noisy: true count plus noise of each cell; shape (cells,).
    """

    step: Step
    parents: Pairs | None
    noisy: NDArray[np.int64]

    def cells(self, plan: ReleasePlan) -> Pairs:
        """The measured cells, in the order of ``noisy``."""
        if self.parents is None:
            root = np.zeros(1, dtype=np.int32)
            return Pairs(0, root, root)
        return plan.tree.children(self.parents)


def published_root(plan: ReleasePlan, trips: TripCounts) -> Nodes | None:
    """The root with the exact n, where n is an invariant; None where the root is measured."""
    return None if plan.noises_root else _root(trips.total)


def measure(
    plan: ReleasePlan, step: Step, parents: Nodes | None, trips: TripCounts, noise: NoiseSource
) -> NDArray[np.int64]:
    """Confidential in, public out: the true counts of all children of the released nodes, plus noise.

    Returns:
        Noisy counts of the level in tree order, shape (cells,): the vector query that the step pays for.

    Raises:
        OdError: the noise source does not keep its contract, or its values are too large.
    """
    if parents is None:
        return np.array([trips.total], dtype=np.int64) + _drawn(noise, step, 0, 1)
    noisy: list[NDArray[np.int64]] = []
    first = 0
    for piece in plan.tree.chunks(parents):
        truth = trips.below(plan.tree, plan.tree.children(piece))
        noisy.append(truth + _drawn(noise, step, first, len(truth)))
        first += len(truth)
    return np.concatenate(noisy) if noisy else np.empty(0, dtype=np.int64)


def estimate(plan: ReleasePlan, step: Step, parents: Nodes | None, noisy: NDArray[np.int64]) -> Nodes:
    """Integers of at least 0 that sum to the level above; nodes of 0 are dropped with their whole branch.

    A function of public values alone, the same at every call.

    Raises:
        OdError: the noisy values are not those of the parents' children.
    """
    if parents is None:
        return _root(max(0, int(noisy[0])))
    origins, destinations, counts = [], [], []
    first = 0
    for piece in plan.tree.chunks(parents):
        children = plan.tree.children(piece)
        values = noisy[first : first + len(children)]
        first += len(children)
        if len(values) != len(children):
            break
        trips = plan.mechanism.project(values, piece.trips, children.offsets)
        kept = trips > 0
        origins.append(children.origin[kept])
        destinations.append(children.destination[kept])
        counts.append(trips[kept])
    if first != len(noisy):
        raise OdError(
            "OD-MEASUREMENT-LENGTH",
            f"the measurement of level {step.level} has {len(noisy)} values, not one for each child of the level above",
            next_step="restore the measurement file from the archive",
            spent="the level's charge stands",
        )
    if not origins:
        none = np.empty(0, dtype=np.int32)
        return Nodes(step.level, none, none, np.empty(0, dtype=np.int64))
    return Nodes(step.level, np.concatenate(origins), np.concatenate(destinations), np.concatenate(counts))


def _root(total: int) -> Nodes:
    """The root; none where its total is 0, since then nothing below it is measured either."""
    area = np.zeros(1 if total > 0 else 0, dtype=np.int32)
    return Nodes(0, area, area, np.full(len(area), total, dtype=np.int64))


def _drawn(noise: NoiseSource, step: Step, first: int, size: int) -> NDArray[np.int64]:
    """Noise for one piece of a level, checked against the contract of a noise source."""
    drawn = noise.draw(step.variance, step.level, first, size)
    if not isinstance(drawn, np.ndarray) or drawn.dtype != np.int64 or drawn.shape != (size,):
        raise _bad_noise("did not give one 64-bit integer a cell")
    if size and (drawn.max() >= _NOISE_LIMIT or drawn.min() <= -_NOISE_LIMIT):
        raise _bad_noise("gave values too large to add to a count")
    return drawn


def _bad_noise(what: str) -> OdError:
    return OdError(
        "OD-NOISE-CONTRACT",
        f"the noise source {what}",
        next_step="correct the noise source",
        spent="the level's charge stands",
    )
