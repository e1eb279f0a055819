"""Define targets of accuracy, such as "state x state: flows >= 1000 within 5 % in 90 %", and when a release meets them.

A release meets a target if at least the stated share of the flows of its class are within the tolerance. The class
has the flows of at least the stated size in a public or synthetic table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.allocation.quantity import Quantity
from od_core.flows.allocation.variance_model import Cells
from od_core.geography.flow_tree import FlowTree, Nodes
from od_core.records.segments import Breakdown

Counts = NDArray[np.int64]
Reals = NDArray[np.float64]

FORM = "state x state: flows >= 1000 within 5 % in 90 %"
"""An example of the text of a target."""

_TEXT = re.compile(
    r"(?P<quantity>[^:]+?)\s*:\s*(flows|trips)?\s*>=\s*(?P<least>[\d,]+)\s+within\s+(?P<within>[\d.]+)\s*"
    r"(?P<unit>%|trips?)\s+in\s+(?P<share>[\d.]+)\s*%"
)


@dataclass(frozen=True)
class Target:
    """A share of the flows of at least some size that must be within a tolerance of the truth.

    Attributes:
        quantity: published numbers to which the target applies.
        least: smallest size of the flows, in trips; at least 1.
        within: tolerance as a share of the size, or in trips; above 0.
        is_relative: whether the tolerance is a share of the size.
        share: share of the flows that must be within the tolerance; above 0 and below 1.

    Raises:
        OdError: a number is out of range.
    """

    quantity: Quantity
    least: int
    within: Fraction
    is_relative: bool
    share: Fraction

    def __post_init__(self) -> None:
        if self.least < 1:
            raise _fault("the flows of a target have at least 1 trip; no share of a flow of 0 is a tolerance")
        if self.within <= 0 or (self.is_relative and self.within > 1):
            raise _fault("the tolerance of a target is above 0, and at most 100 % of a flow")
        if not 0 < self.share < 1:
            raise _fault("the share of flows of a target is above 0 % and below 100 %: no noise meets a target always")

    @classmethod
    def of(cls, text: str, tree: FlowTree, breakdowns: Sequence[Breakdown] = ()) -> Target:
        """Return the target that a text states.

        Args:
            text: such as ``state x state: flows >= 1000 within 5 % in 90 %``; the tolerance may also be in ``trips``.
                For the part before the colon, see :meth:`Quantity.named`.
            tree: flow tree of the release.
            breakdowns: breakdowns of the release.

        Raises:
            OdError: the text is not a target, a number is out of range, or the quantity is unknown.
        """
        found = _TEXT.fullmatch(text.strip())
        try:
            if found is None:
                raise ValueError
            least, within = int(found["least"].replace(",", "")), Fraction(found["within"])
            share, is_relative = Fraction(found["share"]) / 100, found["unit"] == "%"
        except ValueError:
            raise _fault(f"{text[:80]!r} is not a target") from None
        quantity = Quantity.named(found["quantity"], tree, breakdowns)
        return cls(quantity, least, within / 100 if is_relative else within, is_relative, share)

    @property
    def breakdown(self) -> str:
        """Name of the breakdown; empty if the target is about all trips."""
        return "" if self.quantity.breakdown is None else self.quantity.breakdown.name

    def __str__(self) -> str:
        tolerance = f"{_decimal(100 * self.within)} %" if self.is_relative else f"{_decimal(self.within)} trips"
        return f"{self.quantity.name}: flows >= {self.least} within {tolerance} in {_decimal(100 * self.share)} %"

    def relaxed(self, factor: float) -> Target:
        """Return the target with a tolerance that is ``factor`` times as large, rounded up to three digits.

        Raises:
            OdError: the tolerance would be above 100 % of a flow.
        """
        wide = float(self.within) * factor
        digits = 2 - math.floor(math.log10(wide))
        return replace(self, within=Fraction(math.ceil(wide * 10**digits - 1e-9), 1) / Fraction(10) ** digits)


@dataclass(frozen=True, eq=False, repr=False)
class TargetClass:
    """The flows of a table to which a target applies.

    Attributes:
        target: the target.
        keys: number of each flow among all flows of the quantity, ascending; shape (flows,).
        sizes: trips of each flow in the table; shape (flows,).
        cells: areas of each flow; see :meth:`VarianceModel.of_cells`.

    Raises:
        OdError: no flow of the table has the size.
    """

    target: Target
    keys: Counts
    sizes: Counts
    cells: Cells

    @classmethod
    def of(cls, target: Target, tree: FlowTree, leaves: Nodes, segments: Counts | None) -> TargetClass:
        """Select the flows of a table that have the size of a target.

        Args:
            target: the target.
            tree: flow tree of the release.
            leaves: flows of the table between zones, in the order of the tree.
            segments: trips of each leaf by the categories of the target's breakdown; None if it has none.

        Raises:
            OdError: as for the class.
        """
        keys, trips = values_of(target.quantity, tree, leaves, segments)
        chosen = trips >= target.least
        if not chosen.any():
            raise OdError(
                "OD-TARGET-EMPTY",
                f"no flow of the table has {target.least:,} trips at {target.quantity.name}; the largest has"
                f" {int(trips.max(initial=0)):,}",
                next_step="choose a smaller size, or a table of the size of the release",
            )
        keys, breakdown = keys[chosen], target.quantity.breakdown
        pairs = keys // (1 if breakdown is None else len(breakdown.categories))
        width = tree.destination.size(target.quantity.destination_level) if target.quantity.part == "all" else 1
        origin = (pairs // width).astype(np.int32)
        destination = (pairs % width).astype(np.int32) if target.quantity.part == "all" else origin
        return cls(target, keys, trips[chosen], (origin, destination))

    @cached_property
    def limits(self) -> Reals:
        """Limit of the error of each flow before it is rounded, in trips; shape (flows,).

        Published flows are whole, so a tolerance of 2.7 trips allows errors of at most 2, and so at most 2.5 before
        rounding.
        """
        within, sizes = self.target.within, self.sizes.tolist()
        if self.target.is_relative:
            whole = [size * within.numerator // within.denominator for size in sizes]
        else:
            whole = [math.floor(within)] * len(sizes)
        return np.array(whole, dtype=np.float64) + 0.5

    @property
    def needed(self) -> int:
        """Number of flows that must be within the tolerance."""
        return math.ceil(self.target.share * len(self.sizes))

    def ratio(
        self, tree: FlowTree, leaves: Nodes, segments: Counts | None, generator: np.random.Generator | None = None
    ) -> float:
        """Return the smallest factor of the limits for which a release of the table would meet the target.

        The target is met if the factor is at most 1.

        Args:
            tree, leaves, segments: those of the release; see :meth:`of`.
            generator: source of uniform numbers between -1/2 and 1/2 that are added to the whole errors. They stand for
                what rounding removed. So the factor has no steps, and it is at most 1 for the same releases.
        """
        keys, trips = values_of(self.target.quantity, tree, leaves, segments)
        place = np.searchsorted(keys, self.keys)
        listed = np.append(keys, -1)[place] == self.keys
        errors = (np.where(listed, np.append(trips, 0)[place], 0) - self.sizes).astype(np.float64)
        if generator is not None:
            errors += generator.uniform(-0.5, 0.5, len(errors))
        ratios = np.abs(errors) / self.limits
        return float(np.partition(ratios, self.needed - 1)[self.needed - 1])


def values_of(quantity: Quantity, tree: FlowTree, leaves: Nodes, segments: Counts | None) -> tuple[Counts, Counts]:
    """Return the numbers of a quantity that are above 0 in a table or release.

    Args:
        quantity: what is published.
        tree: flow tree of the leaves.
        leaves: flows between zones, in the order of the tree.
        segments: trips of each leaf by category, if the quantity has a breakdown; shape (leaves, categories).

    Returns:
        Keys in ascending order and trips, shape (numbers,) each. The key of a pair of areas is its position among all
        pairs, and that of an area is its number. For categories, it is multiplied by their number, and the position of
        the category is added.
    """
    by_category = leaves.trips[:, np.newaxis] if segments is None or quantity.breakdown is None else segments
    levels = quantity.origin_level, quantity.destination_level
    origin, destination, trips = tree.values_at(leaves, by_category, *levels)
    places = origin.astype(np.int64)
    if quantity.part == "all":
        places = places * tree.destination.size(levels[1]) + destination
    else:
        kept = (origin == destination) == (quantity.part == "within")
        places = (destination if quantity.part == "inflow" else origin)[kept].astype(np.int64)
        summed = np.zeros((tree.origin.size(levels[0]), by_category.shape[1]), dtype=np.int64)
        np.add.at(summed, places, trips[kept])
        places, trips = np.arange(len(summed)), summed
    categories = by_category.shape[1]
    keys = (places[:, np.newaxis] * categories + np.arange(categories)).ravel()
    positive = trips.ravel() > 0
    return keys[positive], trips.ravel()[positive]


def _decimal(number: Fraction) -> str:
    return f"{float(number):.12g}"


def _fault(message: str) -> OdError:
    return OdError("OD-TARGET", message, next_step=f"write targets as in '{FORM}'")
