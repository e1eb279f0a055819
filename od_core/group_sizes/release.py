"""A group-size table: its histograms at every level, its noisy measurements, what it spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import pandas as pd

from od_core.geography.geography import Geography
from od_core.group_sizes.frame import Counts, Frame
from od_core.group_sizes.groups import GroupSizes
from od_core.group_sizes.measure import measure, rows, widths
from od_core.group_sizes.mechanisms.mechanism import GroupSizeMechanism
from od_core.group_sizes.plan import TOP_CODE_LEVEL, GroupSizePlan, LaplaceStep, plan_group_sizes
from od_core.group_sizes.top_code import TopCodeEstimate
from od_core.ledger.charging import charged_to, draw_release
from od_core.ledger.ledger import Ledger
from od_core.ledger.measurements import Measurements
from od_core.ledger.noisy_vector import NoisyVector
from od_core.noise.sources import NoiseSource, backend_name, laplace_source, noise_named, refuse_too_wide
from od_core.privacy.budget import Budget, Spent
from od_core.privacy.unit import PrivacyUnit


@dataclass(frozen=True, eq=False, repr=False)
class GroupSizeRelease:
    """A released group-size table.

    Attributes:
        plan: what was planned before any size was read.
        histograms: H of the areas of levels 1 to L, top first; shape (areas, K + 1) each.
        measured: the noisy values behind them, in the order of the plan's steps.
        spent: what was spent.
        noise: name of the noise backend; None for a test double, whose release carries no guarantee.
    """

    plan: GroupSizePlan
    histograms: tuple[Counts, ...]
    measured: tuple[tuple[LaplaceStep, NoisyVector], ...]
    spent: Spent
    noise: str | None

    def __repr__(self) -> str:
        return f"GroupSizeRelease({self.plan.mechanism.name}, epsilon {self.plan.budget.epsilon})"

    @cached_property
    def frame(self) -> Frame:
        """What is public of the table, its top code K included, be it public from the outset or estimated."""
        return frame_of(self.plan, self.measured)

    @property
    def has_guarantee(self) -> bool:
        """Whether the noise came from a backend of this library."""
        return self.noise is not None

    @property
    def histogram(self) -> pd.DataFrame:
        """Groups of each size: area, level (name), size, groups (at least 1); other sizes have none."""
        tables = []
        for level, table in zip(self.frame.levels, self.histograms, strict=True):
            area, size = np.nonzero(table)
            tables.append(self._frame(level, area, {"size": size, "groups": table[area, size]}))
        return pd.concat(tables, ignore_index=True)

    @property
    def cumulative(self) -> pd.DataFrame:
        """Groups of at most each size, 0 to K: area, level (name), size, groups."""
        tables, sizes = [], np.arange(self.frame.top_code + 1)
        for level, table in zip(self.frame.levels, self.histograms, strict=True):
            areas = np.repeat(np.arange(len(table)), len(sizes))
            at_most = np.cumsum(table, axis=1).ravel()
            tables.append(self._frame(level, areas, {"size": np.tile(sizes, len(table)), "groups": at_most}))
        return pd.concat(tables, ignore_index=True)

    @property
    def sizes(self) -> pd.DataFrame:
        """Sizes of an area's groups in ascending order: area, level (name), rank (from 1), size; one row a group."""
        tables = []
        for level, table in zip(self.frame.levels, self.histograms, strict=True):
            totals = table.sum(axis=1)
            area = np.repeat(np.arange(len(table)), totals)
            size = np.repeat(np.tile(np.arange(table.shape[1]), len(table)), table.ravel())
            rank = np.arange(len(area)) - np.repeat(np.cumsum(totals) - totals, totals) + 1
            tables.append(self._frame(level, area, {"rank": rank, "size": size}))
        return pd.concat(tables, ignore_index=True)

    @property
    def measurements(self) -> pd.DataFrame:
        """The noisy values: area, level (name), position, noisy, scale of the noise (float).

        Position is the size for ``histogram`` and ``cumulative`` queries, the rank from 1 for ``sizes``. Where the top
        code is estimated, the largest size of all groups stands first, at the whole space and position 0.
        """
        query, tables = self.plan.mechanism.query, []
        for step, noisy in self.measured:
            width = widths(self.frame, query, step.level)
            area = np.repeat(np.arange(len(width)), width)
            first = int(query == "sizes" and step.level != TOP_CODE_LEVEL)
            position = np.arange(len(area)) - np.repeat(np.cumsum(width) - width, width) + first
            values = {"position": position, "noisy": noisy.values(), "scale": float(step.scale)}
            tables.append(self._frame(step.level, area, values))
        return pd.concat(tables, ignore_index=True)

    def below(self, level: int) -> Counts | None:
        """Sum of the children's histograms of every area of a level; shape (areas, K + 1); None at the leaves."""
        geography = self.frame.geography
        if level == geography.depth:
            return None
        children = self.histograms[level]  # level 1 stands first
        summed: Counts = np.add.reduceat(children, geography.first_child[level][:-1], axis=0)
        return summed

    def _frame(self, level: int, area: Counts, values: dict[str, object]) -> pd.DataFrame:
        geography = self.frame.geography
        codes = geography.codes_of(level, area.astype(np.int32))
        return pd.DataFrame({"area": codes, "level": geography.level_names[level], **values})


def release_group_sizes(
    groups: pd.DataFrame,
    geography: Geography,
    *,
    unit: PrivacyUnit,
    budget: Budget,
    mechanism: str | GroupSizeMechanism | None = None,
    top_code: int | TopCodeEstimate | None = None,
    ledger: Ledger | None = None,
    release_id: str | None = None,
    noise: str | NoiseSource = "opendp",
) -> GroupSizeRelease:
    """Release how many groups have j members, for every area of every level, with differential privacy.

    Without a ledger the guarantee is of this one call; see :func:`od_core.release_flows`.

    Args:
        groups: ``group``, ``area`` and ``size``, one row a group. The groups and their areas are public, the sizes are
            not: every group is listed, those without members with size 0.
        geography: public.
        unit: ``PrivacyUnit("trip")``: one member is added or removed (unbounded) or replaced (bounded).
        budget: ``Budget(epsilon=...)``.
        mechanism: name of a mechanism, or one with its options; left out, the one that a rule on public numbers
            chooses (:func:`od_core.group_sizes.mechanisms.chosen`).
        top_code: K, public; or a :class:`od_core.group_sizes.TopCodeEstimate`, by which K is estimated from the data,
            charged to the budget, and a mechanism is named. Larger sizes count as K.
        ledger, release_id, noise: see :func:`od_core.release_flows`.

    Raises:
        OdError: as plan, groups and noise say; nothing is drawn before plan and groups have passed.
    """
    source = noise_named(noise)
    laplace_source(source)
    counted = GroupSizes.from_frame(groups, geography)
    per_area = counted.per_area(geography)
    plan = plan_group_sizes(geography, per_area, unit=unit, budget=budget, mechanism=mechanism, top_code=top_code)
    refuse_too_wide(source, (step.widest for step in plan.steps))
    charged = charged_to(ledger, release_id, source)
    return draw_release(partial(run_plan, plan, counted, source), charged, plan, counted, source)


def run_plan(
    plan: GroupSizePlan, groups: GroupSizes, noise: NoiseSource, measurements: Measurements
) -> GroupSizeRelease:
    """Measure every level, each at most once, and estimate the table."""
    measured = measure_plan(plan, groups, noise, measurements)
    return estimated(plan, measured, spent=plan.spent, noise=backend_name(noise))


def measure_plan(
    plan: GroupSizePlan, groups: GroupSizes, noise: NoiseSource, measurements: Measurements
) -> list[tuple[LaplaceStep, NoisyVector]]:
    """Confidential in, public out: every step measured, each at most once."""
    measured: list[tuple[LaplaceStep, NoisyVector]] = []
    for step in plan.steps:  # in this order: an estimated top code says what the levels after it measure
        draw = partial(measure, frame_of(plan, measured), plan.mechanism.query, step, groups, noise)
        measured.append((step, measurements.once(step, draw)))
    return measured


def estimated(
    plan: GroupSizePlan, measured: Sequence[tuple[LaplaceStep, NoisyVector]], *, spent: Spent, noise: str | None
) -> GroupSizeRelease:
    """The release of a plan whose levels are all measured: a function of public values alone."""
    frame, query = frame_of(plan, measured), plan.mechanism.query
    noisy = [rows(frame, query, values.values()) for step, values in measured if step.level != TOP_CODE_LEVEL]
    histograms = plan.mechanism.estimate(frame, noisy, plan.level_steps[0].scale)
    return GroupSizeRelease(plan, tuple(histograms), tuple(measured), spent, noise)


def frame_of(plan: GroupSizePlan, measured: Sequence[tuple[LaplaceStep, NoisyVector]]) -> Frame:
    """What is public of a table by what is measured so far: the plan's frame, with K once an estimate of it is drawn.

    Every step is measured with the frame of the steps before it.
    """
    if plan.top_code_estimate is None or not measured:
        return plan.frame
    step, noisy = measured[0]
    return replace(plan.frame, top_code=plan.top_code_estimate.top_code(int(noisy.values()[0]), step.scale))
