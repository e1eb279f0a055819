"""Keep estimates of sums of nodes of a flow tree with what their intervals need."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from od_core.flows.estimation.least_squares import Positions, Reals
from od_core.flows.estimation.node_sums import NodeSums


@dataclass(frozen=True, eq=False)
class Estimates:
    """Unbiased estimates of sums, without the trips of dropped nodes; shape (sums,) each.

    Attributes:
        estimate, variance: Estimate of each sum, and the variance of the estimate.
        most: Sum of the upper bounds of the dropped nodes that the sum overlaps.
        unseen, doubt: Estimate of the trips of these dropped nodes together, and the variance of that estimate.
        unmeasured: Upper bound of the trips of cells that lie below a dropped node, of which nothing else is known.
    """

    estimate: Reals
    variance: Reals
    most: Reals
    unseen: Reals
    doubt: Reals
    unmeasured: Reals

    @classmethod
    def of_nodes(cls, estimate: Reals, variance: Reals) -> Estimates:
        """Return the estimates of single nodes, which overlap no dropped node."""
        return cls(estimate, variance, *np.zeros((4, len(estimate))))

    @classmethod
    def of_sums(cls, sums: NodeSums, of_nodes: Reals) -> Estimates:
        """Return the estimates of sums below nodes whose estimates have the variances ``of_nodes``; shape (nodes,)."""
        estimate = sums.estimate
        return cls(estimate, sums.variance(of_nodes), *sums.unseen, np.zeros(len(estimate)))

    def at(self, place: Positions, unmeasured: Reals) -> Estimates:
        """Return the estimates at some places; 0 where the place is -1, with the given bounds ``unmeasured``."""
        found = place >= 0
        values = {name: np.zeros(len(place)) for name in vars(self)}
        for name, own in vars(self).items():
            values[name][found] = own[place[found]]
        return Estimates(**values | {"unmeasured": unmeasured})

    def __add__(self, other: Estimates) -> Estimates:
        """Return the estimates of the sums with those of another release, whose noise must be independent."""
        mine, theirs = vars(self), vars(other)
        return Estimates(**{name: mine[name] + theirs[name] for name in mine})
