"""Plan a release of group sizes from public facts, also one that measures its top code.

See "An estimated top code" in ``docs/explanation/group-sizes.md`` [kuo2018countofcounts, section 4.3, footnote 6].
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, cast

import numpy as np
import pandas as pd

from od_core.errors import OdError
from od_core.geography.geography import Geography
from od_core.group_sizes.groups import Counts, Frame, Query
from od_core.group_sizes.mechanisms import MECHANISMS, GroupSizeMechanism, choose_default_mechanism
from od_core.group_sizes.merging import refuse_too_many
from od_core.languages import message
from od_core.meaning.features import list_given_options, refuse_unsupported
from od_core.privacy.accounting import Number, parse_exact_fraction, round_up_to_float
from od_core.privacy.budget import Budget
from od_core.privacy.neighbours import DEFAULT_ACCEPTANCE, Acceptance
from od_core.privacy.plan import (
    LaplaceStep,
    Plan,
    Step,
    Table,
    describe_laplace_noise,
    make_plan_error,
    read_plan_options,
)
from od_core.privacy.stability import compute_least_reach
from od_core.privacy.unit import PrivacyUnit

MAX_TOP_CODE = 1 << 31
"""Exclusive upper bound of a top code. Below it, the positions in a histogram fit 32 bits."""

SENSITIVITY_OF_LARGEST = 1
"""The most by which the size of the largest group changes when one member is added, removed or replaced."""

SENSITIVITY_OF_NUMBERS = 1
"""L1 sensitivity of the numbers of groups of a level if one member is added or removed: a group is counted if it has a
member, so one member changes the number of one area, by at most 1. Replacing a member doubles it."""

MAX_MISS_PROBABILITY = Fraction(1, 1000)
"""Largest accepted probability that a largest size of up to ``TopCodeEstimate.most`` exceeds the estimated top code."""


@dataclass(frozen=True)
class TopCodeEstimate:
    """A rule that estimates the top code K: the noisy largest size plus a margin, clipped to 1 to ``most``.

    Attributes:
        share: share of the budget's epsilon that the draw costs. A float is read as the decimal number that it prints.
        most: public upper bound of K. It also limits the memory that a table needs. Larger sizes count as this size.

    Raises:
        OdError: the share is not between 0 and 1, or the bound is not an integer from 1 to 2^31 - 1.

    Examples:
        >>> TopCodeEstimate(share="1/10", most=40).most
        40
    """

    share: Fraction = Fraction(1, 20)
    most: int = 10_000

    def __post_init__(self) -> None:
        share = parse_exact_fraction("the share of the top code", self.share)
        if not 0 < share < 1:
            message = "the share of the budget that estimates the top code must be between 0 and 1"
            raise OdError("OD-GROUPS-TOP-CODE", message, next_step="correct the share")
        if not is_top_code(self.most):
            message = "the bound of an estimated top code must be a whole number from 1 to 2^31 - 1"
            step = "give the largest size that may be distinguished"
            raise OdError("OD-GROUPS-TOP-CODE", message, next_step=step)
        object.__setattr__(self, "share", share)
        object.__setattr__(self, "most", int(self.most))

    @property
    def facts(self) -> dict[str, str | int]:
        """Public facts of the estimate, ready for JSON. :meth:`from_facts` is the inverse."""
        return {"estimated_with_share": str(self.share), "most": self.most, "missed": str(MAX_MISS_PROBABILITY)}

    @classmethod
    def from_facts(cls, facts: dict[str, str | int]) -> TopCodeEstimate:
        """Create the estimate from the public facts that :attr:`facts` returns."""
        return cls(Fraction(facts["estimated_with_share"]), int(facts["most"]))

    def compute_top_code(self, noisy_largest: int, scale: Fraction) -> int:
        """Return the top code K, from the noisy largest size and the scale of its noise. All three are public."""
        return min(max(noisy_largest + compute_top_code_margin(scale), 1), self.most)


def compute_top_code_margin(scale: Fraction) -> int:
    """Return the margin m that is added to the noisy largest size, so that the sum is rarely below the largest size.

    m is the least integer with P(Z < -m) <= ``MAX_MISS_PROBABILITY``, where Z is discrete Laplace noise of this scale.
    The noise distribution is symmetric, so P(Z < -m) = P(Z >= m + 1) = a^(m + 1) / (1 + a) with a = exp(-1 / scale).
    """
    return compute_least_reach(scale, 1, MAX_MISS_PROBABILITY) - 1


def parse_brackets(brackets: Sequence[int]) -> tuple[int, ...]:
    """Return the least sizes of brackets. Raises OdError if they are not ascending integers from 1 to 2^31 - 1."""
    listed = brackets.tolist() if isinstance(brackets, np.ndarray) else brackets
    if not isinstance(listed, list | tuple) or not listed or not all(map(is_top_code, listed)):
        message = "brackets must be a list of at least one whole number from 1 to 2^31 - 1"
        raise OdError("OD-GROUPS-BRACKETS", message, next_step="give the least size of each bracket, without 0")
    if any(size >= following for size, following in pairwise(listed)):
        message = "brackets must ascend, each by at least 1"
        raise OdError("OD-GROUPS-BRACKETS", message, next_step="give the least size of each bracket once, in order")
    return tuple(map(int, listed))


def is_top_code(value: object) -> bool:
    """Return whether the value is an integer from 1 to 2^31 - 1."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and 1 <= int(value) < MAX_TOP_CODE


SENSITIVITY: dict[Query, int] = {"histogram": 2, "cumulative": 1, "sizes": 1}
"""L1 sensitivity of the query of a whole level if one member is added or removed. One group moves from size j to j + 1
or back. This changes two entries of the histogram, one of the cumulative histogram and one of the sorted sizes, each by
1 [kuo2018countofcounts, sections 4.1 to 4.3]. Replacing a member removes one and adds one, which doubles it.
With brackets, the group stays in its bracket or moves to the next one, because they begin at different integers."""

MEASURED: dict[Query, str] = {
    "histogram": message("the number of groups of each size"),
    "cumulative": message("the number of groups of each size or less"),
    "sizes": message("the size of each group, in ascending order"),
    "numbers": message("the number of groups"),
}
"""What each query measures, for every area of a level."""

MAX_CELLS = 1 << 28
"""Largest number of cells (areas of all levels times sizes) of a table. An array of this many cells takes 2 GB."""

TOP_CODE_LEVEL = 0
"""Level of the step that measures the largest size, to estimate the top code: the whole space."""


@dataclass(frozen=True)
class NumberStep(LaplaceStep):
    """The planned query of the number of groups of every area of a level, where these numbers are confidential.

    Attributes:
        step_number: number of the step within the release, after those of all levels, which queries of sizes have.
    """

    step_number: int = field(kw_only=True)

    @property
    def number(self) -> int:
        """Number of the step, by which the ledger and the files of measurements identify it within the release."""
        return self.step_number

    @property
    def noise_facts(self) -> dict[str, Any]:
        """Facts of a Laplace step, and what it measures."""
        return {"measured": "numbers of groups", **super().noise_facts}


def parse_groups_share(share: Number) -> Fraction:
    """Return the share of epsilon for the numbers of groups as a fraction. Raises OdError unless it is in (0, 1)."""
    exact = parse_exact_fraction("the share of the numbers of groups", share)
    if not 0 < exact < 1:
        message = "the share of the budget that measures the numbers of groups must be between 0 and 1"
        raise OdError("OD-GROUPS-NUMBERS", message, next_step="correct the share")
    return exact


@dataclass(frozen=True, eq=False, repr=False)
class GroupSizePlan(Plan):
    """The fixed list of steps of one group-size table, with the public facts that determine it.

    Attributes:
        frame: public facts of the table. If the top code K is estimated, the top code of this frame is the public upper
            bound of the estimate, and if the numbers of groups are measured, they are 0; see
            :func:`od_core.group_sizes.release.resolve_frame`.
        unit, budget, mechanism, acceptance: see :func:`plan_group_sizes`.
        top_code_estimate: rule that estimates K; None if K is public.
        groups_share: share of the budget's epsilon that measures the numbers of groups; None if they are public.

    Raises:
        OdError: the top code of the frame is not the upper bound of the estimate, or the draws before those of the
            sizes leave nothing of the budget.

    Examples:
        >>> sizes.plan.charge.epsilon, sizes.plan.frame.top_code
        (Fraction(1, 1), 4)
    """

    table: ClassVar[Table] = "group sizes"

    frame: Frame
    unit: PrivacyUnit
    budget: Budget
    mechanism: GroupSizeMechanism
    top_code_estimate: TopCodeEstimate | None = None
    acceptance: Acceptance = DEFAULT_ACCEPTANCE
    groups_share: Fraction | None = None

    def __post_init__(self) -> None:
        if self.top_code_estimate is not None and self.top_code_estimate.most != self.frame.top_code:
            raise make_plan_error("the top code of the table is not the upper bound of its estimate")
        if self.top_code_estimate is not None and self.top_code_estimate.share + (self.groups_share or 0) >= 1:
            message = "the shares of the top code and of the numbers of groups leave no budget for the sizes"
            raise OdError("OD-GROUPS-NUMBERS", message, next_step="lower one of the two shares")

    @property
    def features(self) -> frozenset[str]:
        """Names of the options that this plan has, as ``od_core/meaning/support.yaml`` lists them."""
        return super().features | list_given_options(
            named_mechanism=True,
            estimated_top_code=self.top_code_estimate,
            brackets=self.frame.brackets,
            groups_share=self.groups_share,
            sorted_sizes="sizes" in self.queries.values(),
        )

    @cached_property
    def steps(self) -> tuple[LaplaceStep, ...]:
        """All steps in the order of their draws: that of the largest size if K is estimated, then levels, top first.

        If the numbers of groups are measured, those of all levels are drawn before the sizes of any level.
        """
        epsilon = epsilon_left = cast("Fraction", self.budget.epsilon)  # a budget in rho is not supported
        steps: list[LaplaceStep] = []
        if self.top_code_estimate is not None:
            epsilon_of_top_code = self.top_code_estimate.share * epsilon
            epsilon_left -= epsilon_of_top_code
            steps.append(_make_step(TOP_CODE_LEVEL, SENSITIVITY_OF_LARGEST, epsilon_of_top_code))
        if self.groups_share is not None:
            epsilon_of_numbers = self.groups_share * epsilon
            epsilon_left -= epsilon_of_numbers
            steps += self._make_number_steps(epsilon_of_numbers)
        epsilon_of_level = epsilon_left / len(self.queries)
        for level, query in self.queries.items():
            steps.append(_make_step(level, SENSITIVITY[query] * self.unit.differing_units, epsilon_of_level))
        return tuple(steps)

    def _make_number_steps(self, epsilon: Fraction) -> list[NumberStep]:
        """Return the steps that measure the numbers of groups of all levels, which get equal parts of ``epsilon``."""
        depth, sensitivity = len(self.frame.levels), SENSITIVITY_OF_NUMBERS * self.unit.differing_units
        epsilon_of_level = epsilon / depth
        scales = (("", sensitivity / epsilon_of_level),)
        return [
            NumberStep(level, sensitivity, epsilon_of_level, scales, step_number=1 + depth + level)
            for level in self.frame.levels
        ]

    @cached_property
    def queries(self) -> dict[int, Query]:
        """Query of each measured level, by the number of the level, top first."""
        queries = self.mechanism.list_level_queries(self.frame.geography.depth)
        return dict(zip(self.frame.levels[-len(queries) :], queries, strict=True))

    def query_of(self, step: Step) -> Query:
        """Return the query of a step. The largest size, from which the top code is estimated, is one of ``sizes``."""
        return "numbers" if isinstance(step, NumberStep) else self.queries.get(step.level, "sizes")

    @property
    def keeps_totals(self) -> bool:
        """True if every area has its number of groups in the result: it is public, and the mechanism keeps it."""
        return self.mechanism.keeps_totals and not self.frame.measured

    @property
    def level_steps(self) -> tuple[LaplaceStep, ...]:
        """The steps that measure the sizes of levels, top first. Their noise has the same scale."""
        return self.steps[-len(self.queries) :]

    def replan(self, unit: PrivacyUnit, budget: Budget) -> GroupSizePlan:
        """Return the plan of the same table with another unit and budget.

        Raises OdError if the library has no such release.
        """
        return plan_group_sizes(
            self.frame.geography,
            None if self.groups_share else self.frame.groups,
            unit=unit,
            budget=budget,
            mechanism=self.mechanism,
            top_code=None if self.frame.brackets else self.top_code_estimate or self.frame.top_code,
            brackets=self.frame.brackets or None,
            acceptance=self.acceptance,
            groups_share=self.groups_share,
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per step.

        Its columns are level, area_level (name of the level), areas, sensitivity, and scale and epsilon (rounded up);
        where the numbers of groups are measured, also measured (what the step measures).
        """
        geography, levels = self.frame.geography, [step.level for step in self.steps]
        measured = {"measured": [self._describe_query(step) for step in self.steps]} if self.groups_share else {}
        return pd.DataFrame(
            {
                "level": levels,
                "area_level": [geography.level_names[level] for level in levels],
                **measured,
                "areas": [geography.size(level) for level in levels],
                "sensitivity": [step.sensitivity for step in self.steps],
                "scale": [round_up_to_float(step.scale) for step in self.steps],
                "epsilon": [round_up_to_float(step.epsilon) for step in self.steps],
            }
        )

    def verdicts(self) -> list[str]:
        """Return a sentence for each step on the noise of one measured number, with the name of its level."""
        names, sentences = self.frame.geography.level_names, []
        for step in self.steps:
            measured = self._describe_query(step)
            named = measured if step.level == TOP_CODE_LEVEL else f"{names[step.level]}, {measured}"
            sentences.append(describe_laplace_noise(named, step.scale))
        return sentences

    def _describe_query(self, step: LaplaceStep) -> str:
        """Return what a step measures of every area of its level, in words."""
        return "largest group" if step.level == TOP_CODE_LEVEL else MEASURED[self.query_of(step)]

    def _list_own_facts(self) -> dict[str, object]:
        """Return the facts that only plans of group sizes have."""
        queries = list(self.queries.values())
        if len(set(queries)) == 1:
            queries = queries[:1]
        top_code: object = int(self.frame.least_sizes[-1])
        if self.top_code_estimate is not None:
            top_code = self.top_code_estimate.facts
        return {
            "query": ", ".join(queries),
            "epsilon": str(self.budget.epsilon),
            "delta": "0",
            "top_code": top_code,
            **({"brackets": list(self.frame.brackets)} if self.frame.brackets else {}),
            **self._list_facts_of_numbers(),
            "geography": self.frame.geography.digest,
            **({} if self.frame.geography.unknown is None else {"unknown_zone": self.frame.geography.unknown}),
        }

    def _list_facts_of_numbers(self) -> dict[str, object]:
        """Return the public numbers of groups as a sum and a digest, or the share of epsilon that measures them."""
        if self.groups_share is not None:
            return {"groups_share": str(self.groups_share)}
        groups = self.frame.groups
        return {
            "groups": int(groups.sum()),
            "groups_by_area": hashlib.sha256(groups.astype("<i8").tobytes()).hexdigest(),
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], geography: Geography, groups: Counts | None) -> GroupSizePlan:
        """Plan a table again from the :meth:`facts` of its plan, and raise OdError as :func:`plan_group_sizes` does.

        The steps are computed, not read from ``facts``, so the caller must compare the facts of the result with them.
        ``groups`` is the public number of groups of every leaf area; None if these numbers are measured.
        """
        options = read_plan_options(facts, MECHANISMS) | {"groups_share": facts.get("groups_share")}
        if "brackets" in facts:
            return plan_group_sizes(geography, groups, brackets=facts["brackets"], **options)
        stated = facts["top_code"]
        top_code = TopCodeEstimate.from_facts(stated) if isinstance(stated, dict) else stated
        return plan_group_sizes(geography, groups, top_code=top_code, **options)


def plan_group_sizes(
    geography: Geography,
    groups: Counts | None = None,
    *,
    unit: PrivacyUnit,
    budget: Budget,
    mechanism: str | GroupSizeMechanism | None = None,
    top_code: int | TopCodeEstimate | None = None,
    brackets: Sequence[int] | None = None,
    acceptance: Acceptance = DEFAULT_ACCEPTANCE,
    groups_share: Number | None = None,
) -> GroupSizePlan:
    """Return the plan of a group-size table, made from public facts alone.

    Args:
        geography: the public geography. The table has its levels, but not the whole space.
        groups: public number of groups of every leaf area; shape (leaf areas,). None if they are confidential.
        unit, mechanism, top_code, brackets, groups_share: see :func:`od_core.release_group_sizes`.
        budget: a pure epsilon (delta is 0). An estimate of the top code and measured numbers of groups cost their
            shares. The measured levels get equal parts of the rest.
        acceptance: rules that decide which records count as members, and which inputs are refused.

    Raises:
        OdError: the unit is a user or has weights, the budget is not a pure epsilon, the top code is missing or
            invalid, the brackets are invalid or are combined with a top code or sorted sizes, the top code is estimated
            or there are brackets but no mechanism is named, the mechanism is unknown, there are no groups, there are
            too many groups or cells, or the numbers of groups are neither given nor measured, or both.

    Examples:
        >>> of_members = PrivacyUnit("trip")
        >>> plan_group_sizes(geography, [7, 7, 1], unit=of_members, budget=Budget(epsilon=1), top_code=4).frame.levels
        range(1, 3)
    """
    estimate = top_code if isinstance(top_code, TopCodeEstimate) else None
    options = list_given_options(
        estimated_top_code=estimate,
        named_mechanism=mechanism,
        brackets=brackets is not None,
        top_code=top_code is not None,
        groups_share=groups_share is not None,
    )
    refuse_unsupported("group sizes", unit.features | budget.features | options)
    least_sizes = () if brackets is None else parse_brackets(brackets)
    if groups_share is not None and least_sizes and least_sizes[0] > 1:
        message = "where the numbers of groups are measured, a bracket must begin at 1, which tells a group from none"
        raise OdError("OD-GROUPS-BRACKETS", message, next_step="let the first bracket begin at 1")
    if not least_sizes and estimate is None and not is_top_code(top_code):
        raise OdError(
            "OD-GROUPS-TOP-CODE",
            "group sizes need a public top code, a whole number of at least 1 that was not read off the records: larger"
            " sizes count as it",
            next_step="give the largest size to distinguish, or brackets, or a TopCodeEstimate, which is charged",
        )
    if least_sizes:
        last_cell = len(least_sizes)  # number of the last bracket
    elif estimate is not None:
        last_cell = estimate.most  # the upper bound, until the top code is drawn
    else:
        last_cell = int(cast("int", top_code))
    share = None if groups_share is None else parse_groups_share(groups_share)
    frame = _make_planned_frame(geography, groups, last_cell, least_sizes, measured=share is not None)
    if mechanism is None:
        mechanism = choose_default_mechanism(frame, unit, cast("Fraction", budget.epsilon))
    chosen_mechanism = MECHANISMS.make(mechanism)
    queries = chosen_mechanism.list_level_queries(geography.depth)
    refuse_too_many(frame, frame.levels[-len(queries) :])
    plan = GroupSizePlan(
        frame=frame,
        unit=unit,
        budget=budget,
        mechanism=chosen_mechanism,
        top_code_estimate=estimate,
        acceptance=acceptance,
        groups_share=share,
    )
    refuse_unsupported("group sizes", plan.features)  # now with what the mechanism measures
    return plan


def _make_planned_frame(
    geography: Geography, groups: Counts | None, last_cell: int, least_sizes: tuple[int, ...], *, measured: bool
) -> Frame:
    """Return the public facts of a table as they are known when it is planned.

    ``measured`` says whether the numbers of groups are measured; they are then 0, and ``groups`` must be None. Raises
    OdError if the numbers of groups are invalid, or there are no groups or too many cells.
    """
    if measured:
        if groups is not None:
            message = "numbers of groups are given, but they are measured with a share of the budget"
            raise OdError("OD-GROUPS-NUMBERS", message, next_step="leave out either groups or groups_share")
        groups = np.zeros(len(geography.zones), dtype=np.int64)
    frame = Frame(geography, groups, last_cell, least_sizes, measured=measured)  # type: ignore[arg-type]  # checked there
    if not measured and not frame.groups.any():
        raise OdError("OD-GROUPS-NONE", "no area has a group", next_step="correct the list of groups")
    cells = sum(frame.geography.size(level) for level in frame.levels) * (frame.top_code + 1)
    if cells > MAX_CELLS:
        message = f"areas of all levels times sizes are {cells:,} cells, and {MAX_CELLS:,} is the most"
        raise OdError("OD-GROUPS-CELLS", message, next_step="use a smaller top code or fewer areas")
    return frame


def _make_step(level: int, sensitivity: int, epsilon: Fraction) -> LaplaceStep:
    """Return the step that measures a level with a pure epsilon. All values of the level have noise of one scale."""
    scale = sensitivity / epsilon
    return LaplaceStep(level, sensitivity, epsilon, scales=(("", scale),))
