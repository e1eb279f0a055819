"""Estimate the flow tree from the top down [boninsegna2025inftda, Algorithm 1], from noisy values only.

A level is processed in pieces on all threads, and only the pieces in progress are in memory. The children of a node are
always in the same piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.plan import ReleasePlan
from od_core.flows.step import GaussianStep, ThresholdStep, TotalStep
from od_core.geography.flow_tree import Expansion, Nodes, Pairs
from od_core.ledger.measurements import NoisyVector
from od_core.parallel import in_order

_ROOT = np.zeros(1, dtype=np.int32)
"""Area number of the root, as an array of shape (1,), for the origin and for the destination."""


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """Noisy counts of one level: a measurement, or a combination of the measurements of the level.

    Attributes:
        step: The step, or the combination of steps. Its variance is that of each count.
        parents: The nodes of the level above that were not dropped; None if the root was measured. The measured cells
            are all public children of these nodes, in tree order. If levels between the parents and the step's level
            are not measured, each child has exactly one descendant at the step's level, with the same area numbers. If
            the parents are nodes of the step's own level, they are the measured cells themselves: the pairs whose noisy
            counts reached a threshold.
        noisy: The noisy count of each cell; shape (cells,).
    """

    step: TotalStep
    parents: Pairs | None
    noisy: NoisyVector

    def reals(self) -> NDArray[np.float64]:
        """Return the noisy counts as real numbers; shape (cells,)."""
        return self.noisy.values().astype(np.float64)

    def cells(self, plan: ReleasePlan) -> int:
        """Return the number of measured cells, computed from the flow tree and the parents."""
        if self.parents is None:
            return 1
        return len(self.parents) if self._stands_alone else sum(map(len, plan.tree.expand(self.parents)))

    @property
    def _stands_alone(self) -> bool:
        return self.parents is None or self.parents.level == self.step.level

    def pieces(self, plan: ReleasePlan, categories: int = 1) -> Iterator[tuple[Pairs, NDArray[np.int64]]]:
        """Yield the measured cells and their noisy values in tree order, in consecutive pieces.

        Each cell has ``categories`` consecutive values.
        """
        if self._stands_alone:
            cells = Pairs(self.step.level, _ROOT, _ROOT) if self.parents is None else self.parents
            yield cells, self.noisy.values()
            return
        for expansion, noisy in self.expanded(plan, categories):
            children = expansion.children
            yield Pairs(self.step.level, children.origin, children.destination), noisy

    def expanded(self, plan: ReleasePlan, categories: int = 1) -> Iterator[tuple[Expansion, NDArray[np.int64]]]:
        """Return an iterator of consecutive pieces: the expansion of some parents, and their children's noisy values.

        Each child has ``categories`` consecutive values. There are no pieces if the root was measured.

        Raises:
            OdError: If the number of noisy values does not match the number of children.
        """
        if self.parents is None:
            return iter(())
        expansions = list(plan.tree.expand(self.parents))
        sizes = [len(expansion) * categories for expansion in expansions]
        if sum(sizes) != len(self.noisy):
            raise OdError(
                "OD-MEASUREMENT-LENGTH",
                f"the measurement of level {self.step.level} has {len(self.noisy)} values, but must have {sum(sizes)}",
                next_step="restore the measurement file from the archive",
                spent="the level stays charged",
            )
        return zip(expansions, self.noisy.pieces(sizes), strict=True)


@dataclass(frozen=True, eq=False)
class Measurement(NoisyCounts):
    """The noisy counts that were drawn for one step. They are public, and are never drawn again.

    The vector of a step by segment has one value for each category of the first cell, then those of the second, and so
    on. For all attributes, see :class:`NoisyCounts`.

    Attributes:
        step: The step that was planned and charged.
        noisy: True count plus noise of each cell.
    """

    step: GaussianStep


def published_root(plan: ReleasePlan, total: int) -> Nodes | None:
    """Return the root with the exact total if the total is an invariant, and otherwise None."""
    return root_of(plan, total) if plan.publishes_total else None


def above_the_leaves(plan: ReleasePlan) -> Nodes:
    """Return all public nodes of the level above the leaves, each with 0 trips.

    They are the parents of the measured leaves in a plan that measures every leaf and nothing else.
    """
    nodes = plan.tree.public_nodes(plan.tree.depth - 1)
    return Nodes(nodes.level, nodes.origin, nodes.destination, np.zeros(len(nodes), dtype=np.int64))


def estimate(plan: ReleasePlan, step: TotalStep, parents: Nodes | None, noisy: NoisyVector) -> Nodes:
    """Return the estimate of a whole level; see :func:`estimate_pieces`."""
    return Nodes.joined(step.level, estimate_pieces(plan, step, parents, noisy))


def estimate_pieces(plan: ReleasePlan, step: TotalStep, parents: Nodes | None, noisy: NoisyVector) -> Iterator[Nodes]:
    """Return an iterator of the estimated nodes of a level in tree order, in consecutive pieces.

    If the mechanism measures every level, the estimates are integers of at least 0, and the estimates of a node's
    children sum to its trips. If it measures only the leaves, the estimates are the noisy values, which may be
    negative. Nodes with the estimate 0 are left out, unless the plan keeps all nodes. The estimate depends only on
    public values and is the same at every call.

    Args:
        step: The measured step of the level.
        parents: Estimated nodes of the level above. If None, the level is the root, and its estimate is the noisy value
            or 0, whichever is larger.
        noisy: Noisy values of the children of all parents, or of the root.

    Raises:
        OdError: If the number of noisy values differs from the number of the parents' children.
    """
    if parents is None:
        root = root_of(plan, max(0, int(noisy.values()[0])))
        return iter([at_step(step, root)])
    pieces = NoisyCounts(step, parents, noisy).expanded(plan)
    return in_order(lambda piece: estimated_piece(plan, step, parents, *piece), pieces)


def estimated_piece(
    plan: ReleasePlan, step: TotalStep, parents: Nodes, expansion: Expansion, noisy: NDArray[np.int64]
) -> Nodes:
    """Return the estimated nodes of one piece of a level, from public values alone."""
    totals = parents.trips[expansion.parents]
    projected = plan.mechanism.project(noisy, totals, expansion.offsets)
    return at_step(step, expansion.with_trips(projected, keep_all=plan.keeps_all))


def root_of(plan: ReleasePlan, total: int) -> Nodes:
    """Return the root with the given total, as nodes of level 0.

    There is no node if the total is 0 and the plan drops nodes of 0. In that case, nothing below is measured.
    """
    area = np.zeros(1 if total > 0 or plan.keeps_all else 0, dtype=np.int32)
    return Nodes(0, area, area, np.full(len(area), total, dtype=np.int64))


def at_step(step: TotalStep, nodes: Nodes) -> Nodes:
    """Return the same nodes with the level of the step as their level.

    This is valid because each node of an unmeasured level has one child, with the same area numbers and trips.
    """
    return Nodes(step.level, nodes.origin, nodes.destination, nodes.trips)


def present_leaves(plan: ReleasePlan, step: ThresholdStep, kept: NoisyVector) -> tuple[Nodes, Measurement]:
    """Return the released leaves and their measurement.

    Args:
        step: The only step of the plan.
        kept: The stored values of :func:`measure_present`: ranks and then noisy counts, as one vector.
    """
    ranks, noisy = kept.pieces([len(kept) // 2] * 2)
    pairs = plan.tree.pairs_at(ranks)
    measurement = Measurement(step, pairs, NoisyVector.in_memory([noisy]))
    return Nodes(pairs.level, pairs.origin, pairs.destination, noisy), measurement
