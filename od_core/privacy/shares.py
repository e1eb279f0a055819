"""Divide a budget into shares of the measured levels, by a rule that a budget states or a mechanism has.

The shares of the rule ``minimise`` depend on the flow tree: see :mod:`od_core.flows.optimal_shares`. The queries of a
level have parts of its share: see :func:`od_core.flows.step.list_level_queries`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from od_core.privacy.accounting import make_budget_error, parse_exact_fraction
from od_core.registry import refuse_unknown

LEAF_WEIGHT = Fraction(3, 2)
"""Weight of the leaf level under the rule of shares ``geography``.

The value was chosen by experiments (``docs/reference/tables/estimator.md``, part 1). On a homogeneous tree, a weight
of 1 would minimise the largest error.
"""

RULES = ("uniform", "geography", "geometric")


@dataclass(frozen=True)
class MinimiseRule:
    """The rule ``minimise``: the shares that minimise a weighted sum of expected errors.

    A plan replaces the rule by exact shares. Raises OdError if there is no quantity, or a weight is not above 0.

    Attributes:
        weights: name and weight of each quantity; see :class:`od_core.flows.optimal_shares.Quantity`.
    """

    weights: tuple[tuple[str, Fraction], ...]

    def __post_init__(self) -> None:
        if not self.weights or any(weight <= 0 for _, weight in self.weights):
            message = "minimise needs at least one quantity, and every weight must be above 0"
            raise make_budget_error("OD-BUDGET-SHARES", message)

    @classmethod
    def from_mapping(cls, rule: Mapping[str, Any]) -> MinimiseRule:
        """Return the rule that is written as ``{"minimise": quantities}``.

        ``quantities`` is a mapping from names to weights, or a list of names, whose weights are 1. Raises OdError for
        another form, or a weight that is not above 0.
        """
        quantities = rule.get("minimise")
        if list(rule) != ["minimise"] or not isinstance(quantities, (Mapping, list, tuple)):
            message = "shares by name are {minimise: ...} with a list of quantities or their weights"
            raise make_budget_error("OD-BUDGET-SHARES", message)
        weight_of = quantities if isinstance(quantities, Mapping) else dict.fromkeys(map(str, quantities), 1)
        return cls(tuple((str(name), parse_exact_fraction("a weight", weight)) for name, weight in weight_of.items()))


ShareRule = str | tuple[Any, ...] | MinimiseRule
"""The name of a rule, ``("geometric", ratio)``, exact shares, or the rule ``minimise``."""


def parse_shares(shares: str | Sequence[Any] | Mapping[str, Any] | MinimiseRule) -> ShareRule:
    """Return the rule that a caller states, with exact fractions. Raises OdError if it is not valid.

    ``shares`` is as in :class:`od_core.privacy.budget.Budget`.
    """
    if isinstance(shares, str):
        if shares == "geometric":
            raise make_budget_error("OD-BUDGET-SHARES", "geometric shares need a ratio: ('geometric', 6/5)")
        refuse_unknown("rule of shares", shares, RULES, code="OD-BUDGET-SHARES", next_step="correct the budget")
        return shares
    if isinstance(shares, Mapping):
        return MinimiseRule.from_mapping(shares)
    if isinstance(shares, MinimiseRule):
        return shares
    if not hasattr(shares, "__len__"):
        raise make_budget_error("OD-BUDGET-SHARES", "shares must be the name of a rule, or one number for each level")
    if len(shares) == 2 and shares[0] == "geometric":
        ratio = parse_exact_fraction("the ratio of the shares", shares[1])
        if not Fraction(1, 1000) <= ratio <= 1000:
            raise make_budget_error(
                "OD-BUDGET-SHARES", "the ratio of geometric shares must lie between 1/1000 and 1000"
            )
        return ("geometric", ratio)
    exact = tuple(parse_exact_fraction("a share", share) for share in shares)
    if any(share < 0 for share in exact):
        raise make_budget_error("OD-BUDGET-SHARES", "a share is below 0")
    if sum(exact) != 1:
        raise make_budget_error("OD-BUDGET-SHARES", f"the shares sum to {sum(exact)}, not to 1")
    return exact


def compute_shares_by_rule(
    rule: str | tuple[Any, ...], fan_outs: Sequence[int], *, of_epsilon: bool = False
) -> tuple[Fraction, ...]:
    """Return the exact shares of the levels, top first, one per entry of ``fan_outs``. They sum to 1.

    ``fan_outs`` has k of each level: the largest number of children of its nodes; 0 for the leaves. The rules:

    - ``uniform``: all levels have the same share.
    - ``geography``: a level has the weight 1 - 1/k, so it is measured more accurately if its nodes have more children.
      If each node has only one child, the weight is 0, because the level below measures the same counts. The leaves
      have the weight 3/2. These weights w minimise the sum of w^2 v, if the variance v of a level is in proportion to
      1 / its share of rho. If the shares are ``of_epsilon``, v is in proportion to 1 / share^2, and the weights are
      w^(2/3), in thousandths.
    - ``("geometric", ratio)``: the share of a level is ``ratio`` times that of the level above.
    - A tuple of exact shares, one for each level.

    Raises OdError if the rule lists shares for another number of levels, or a share of 0 for a level that needs one.
    """
    levels = len(fan_outs)
    if rule == "uniform":
        weights: Sequence[Any] = [Fraction(1)] * levels
    elif rule == "geography":
        weights = [1 - Fraction(1, fan_out) if fan_out else LEAF_WEIGHT for fan_out in fan_outs]
        if of_epsilon:
            weights = [Fraction(_round_cube_root(int(weight**2 * 10**9)), 1000) for weight in weights]
    elif isinstance(rule, tuple) and rule[0] == "geometric":
        _, ratio = rule
        weights = [ratio**level for level in range(levels)]
    elif len(rule) == levels:
        weights = rule
        for number, (share, fan_out) in enumerate(zip(rule, fan_outs, strict=True), start=1):
            if share == 0 and fan_out != 1:
                why = "only levels whose nodes all have one child need no share"
                raise make_budget_error("OD-BUDGET-SHARES", f"share {number} is 0; it must be above 0, because {why}")
    else:
        raise make_budget_error("OD-BUDGET-SHARES", f"{len(rule)} shares for {levels} measured levels")
    return tuple(weight / sum(weights) for weight in weights)


def _round_cube_root(value: int) -> int:
    """Return the cube root of ``value``, a whole number below 10^12, rounded down to a whole number."""
    return bisect_right(range(10_000), value, key=lambda root: root**3) - 1
