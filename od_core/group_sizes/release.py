"""Release group-size tables: measure the steps of a plan, and estimate the histograms of every level."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from od_core.errors import OdError
from od_core.files.data_frame import TableOrFile
from od_core.geography.geography import Geography
from od_core.group_sizes.groups import Counts, Frame, GroupSizes, Query
from od_core.group_sizes.intervals import NoisyGroups, list_interval_cells
from od_core.group_sizes.mechanisms import GroupSizeMechanism
from od_core.group_sizes.merging import refuse_too_many
from od_core.group_sizes.nearest_curves import fit_numbers, make_frame_of_numbers
from od_core.group_sizes.plan import TOP_CODE_LEVEL, GroupSizePlan, NumberStep, TopCodeEstimate, plan_group_sizes
from od_core.ledger.ledger import Ledger
from od_core.ledger.measurements import Measured, Measurements, NoisyVector, draw_laplace_release
from od_core.meaning.features import refuse_unsupported
from od_core.noise.backends import NoiseSource, check_noise, find_backend_name, require_laplace_source
from od_core.privacy.accounting import Number
from od_core.privacy.budget import Budget, Spent
from od_core.privacy.plan import LaplaceStep, PlannedRelease, Step
from od_core.privacy.stability import compute_laplace_reach
from od_core.privacy.unit import PrivacyUnit


@dataclass(frozen=True, eq=False, repr=False)
class GroupSizeRelease(PlannedRelease):
    """A released group-size table.

    Attributes:
        plan, spent, noise: see :class:`od_core.privacy.plan.PlannedRelease`.
        histograms: released histograms of levels 1 (top) to L (leaf areas); one array of shape (areas, K + 1) per
            level, where K is the top code. Column j has the number of groups of size j.
        measured: each step of the plan with its noisy values, from which the histograms were estimated.
        exact: whether intervals from noisy sizes are exact; see :meth:`NoisyGroups.bound_cumulative_counts`.

    Examples:
        >>> sizes.histogram.columns.tolist()
        ['area', 'level', 'size', 'groups']
    """

    plan: GroupSizePlan
    histograms: tuple[Counts, ...]
    measured: tuple[tuple[LaplaceStep, NoisyVector], ...]
    exact: bool = True

    def _describe_contents(self) -> tuple[str, str, str]:
        """Return three texts for a notebook: what the release is, its levels, and the calls that read it."""
        return (
            f"group sizes by {self.plan.mechanism.name}: {int(self.count_groups(0)[0]):,} groups"
            f"{' (measured)' if self.frame.measured else ''}, sizes 0 to {self.frame.least_sizes[-1]:,}",
            ", ".join(self.frame.geography.levels),
            ".histogram; .cumulative; .at_most(sizes); .members; .sizes; .numbers; .measurements",
        )

    @cached_property
    def frame(self) -> Frame:
        """Public facts of the table, with an estimated top code, and with measured numbers of groups."""
        return resolve_frame(self.plan, self.measured)

    @property
    def histogram(self) -> pd.DataFrame:
        """Table of the number of groups of each size in each area.

        Its columns are area, level (name), size and groups. Sizes without groups are left out. In all tables, a size is
        the least one of its bracket if the table has brackets.
        """
        cells = ((level, *self.list_cells(level)) for level in self.frame.levels)
        least = self.frame.least_sizes
        return self._make_table(
            (level, area, {"size": least[cell], "groups": groups}) for level, area, cell, groups in cells
        )

    @property
    def cumulative(self) -> pd.DataFrame:
        """Cumulative table: for each area and each size j from 0 to K, the number of groups of size j or less.

        Its columns are area, level (name), size and groups.
        """
        sizes = self.frame.least_sizes
        values = ((level, [np.cumsum(self.histograms_of(level), axis=1)]) for level in self.frame.levels)
        return self._make_size_table(sizes, values)

    def at_most(self, sizes: ArrayLike | None = None) -> pd.DataFrame:
        """Return the number of groups of at most each of some sizes, with 90 % intervals, for every area.

        Args:
            sizes: ascending sizes from 0 to K - 1; with brackets, some of their least sizes, but not the last. By
                default, those of :func:`od_core.group_sizes.intervals.list_interval_sizes`, or of all brackets.

        Returns:
            Columns: area, level (name), size, groups (of at most this size), lower and upper. The first rows are those
            of the whole space. The interval is of one area and one size; see :mod:`od_core.group_sizes.intervals`.

        Raises:
            OdError: the sizes are not ascending integers from 0 to K - 1, or not the least ones of brackets, or the
                numbers of groups are measured.
        """
        refuse_unsupported(self.plan.table, self.plan.features | {"intervals"})
        cells = _find_interval_cells(sizes, self.frame)
        bounds = ((level, self.bound_groups_at_most(level, cells)) for level in (0, *self.frame.levels))
        return self._make_size_table(self.frame.least_sizes[cells], bounds)

    def bound_groups_at_most(self, level: int, cells: Counts) -> tuple[Counts, Counts, Counts]:
        """Return the released numbers of groups up to each of ``cells``, and the ends of their 90 % intervals.

        The shape is (areas, cells) each. Level 0 is the whole space. ``cells`` are columns of a histogram, and ascend,
        from 0 to K - 1.
        """
        released = np.cumsum(self.histograms_of(level), axis=1)[:, cells]
        return _widen_bounds(released, *self.make_noisy_groups(level).bound_cumulative_counts(cells, exact=self.exact))

    @property
    def members(self) -> pd.DataFrame:
        """Table of the number of members of every area's groups, with 90 % intervals.

        Its columns are area, level (name), members, lower and upper. A group of more than K members counts as one of K,
        and one of a bracket as one of its least size. The first row is that of the whole space. Raises OdError if the
        numbers of groups are measured.
        """
        refuse_unsupported(self.plan.table, self.plan.features | {"intervals"})
        bounds = ((level, self.bound_members(level)) for level in (0, *self.frame.levels))
        return self._make_table(
            (level, np.arange(len(members)), {"members": members, "lower": lower, "upper": upper})
            for level, (members, lower, upper) in bounds
        )

    def bound_members(self, level: int) -> tuple[Counts, Counts, Counts]:
        """Return the released numbers of members of the areas of a level, and the ends of their 90 % intervals.

        Shape (areas,) each. Level 0 is the whole space.
        """
        released = self.histograms_of(level) @ self.frame.least_sizes
        return _widen_bounds(released, *self.make_noisy_groups(level).bound_members())

    @property
    def numbers(self) -> pd.DataFrame:
        """Table of the number of groups of every area.

        Its columns are area, level (name) and groups. If the numbers were measured, groups are those of the released
        sizes, and there are also lower and upper, the 90 % interval of the true number; noisy and scale, the noisy
        number and the scale of its noise; and slots, the number of groups of which the sizes were measured.
        """
        rows = []
        for level in self.frame.levels:
            columns: dict[str, object] = {"groups": self.count_groups(level)}
            if self.frame.measured:
                lower, upper = self.bound_numbers(level)
                scale, noisy = self._measured_numbers
                columns |= {"lower": lower, "upper": upper, "noisy": noisy[level - 1], "scale": float(scale)}
                columns["slots"] = self.frame.count_groups(level)
            rows.append((level, np.arange(self.frame.geography.size(level)), columns))
        return self._make_table(rows)

    def bound_numbers(self, level: int) -> tuple[Counts, Counts]:
        """Return the 90 % bounds of the true numbers of groups of the areas of a level, from noisy numbers of groups.

        Level 0 is the whole space. The bounds contain the released numbers; shape (areas,) each.
        """
        scale, noisy = self._measured_numbers
        frame = make_frame_of_numbers(self.frame.geography, noisy, scale)
        measured = [(number, values[:, np.newaxis]) for number, values in enumerate(noisy, start=1)]
        numbers = NoisyGroups.from_measured_levels(frame, "cumulative", scale, measured, level)
        size_0 = np.zeros(1, dtype=np.int64)  # whose cumulative counts are the numbers of groups
        lower, upper = (ends[:, 0] for ends in numbers.bound_cumulative_counts(size_0))
        _, lower, upper = _widen_bounds(self.count_groups(level), lower, upper)
        return lower, upper

    def count_groups(self, level: int) -> Counts:
        """Return the number of groups of every area of a level; shape (areas,).

        If the numbers of groups were measured, these are those of the released histograms. Otherwise, they are public.
        """
        return self.histograms_of(level).sum(axis=1) if self.frame.measured else self.frame.count_groups(level)

    @cached_property
    def _measured_numbers(self) -> tuple[Fraction, list[Counts]]:
        """Scale of the noise on numbers of groups, and the noisy numbers of every level, top first."""
        return _list_noisy_numbers(self.measured)

    def histograms_of(self, level: int) -> Counts:
        """Return the released histograms of a level; shape (areas, K + 1). Level 0 has the sum of those of level 1."""
        return self.histograms[0].sum(axis=0, keepdims=True) if level == 0 else self.histograms[level - 1]

    def make_noisy_groups(self, level: int) -> NoisyGroups:
        """Return the measurements from which the intervals of the areas of a level are computed; level 0 is allowed."""
        scale = self.plan.level_steps[0].scale
        values_of_levels = _list_level_values(self.plan, self.frame, self.measured)
        measured = list(zip(self.plan.queries, values_of_levels, strict=True))
        query = next(query for measured_level, query in self.plan.queries.items() if measured_level >= level)
        return NoisyGroups.from_measured_levels(self.frame, query, scale, measured, level)

    @property
    def sizes(self) -> pd.DataFrame:
        """Table of the sizes of each area's groups in ascending order, with one row per group at every level.

        Its columns are area, level (name), rank (from 1) and size.
        """
        histogram = self.histogram
        groups = histogram.loc[histogram.index.repeat(histogram["groups"]), ["area", "level", "size"]]
        groups.insert(2, "rank", groups.groupby(["level", "area"], sort=False).cumcount() + 1)
        return groups.reset_index(drop=True)

    @property
    def measurements(self) -> pd.DataFrame:
        """Table of the noisy values that were measured, with their noise scales.

        Its columns are area, level (name), position, noisy and scale (of the noise, as a float). For the queries
        ``histogram`` and ``cumulative``, the position is the size. For ``sizes``, it is the rank from 1. If the top
        code was estimated, the first row is the noisy largest size of all groups. The area of this row is the whole
        space, and its position is 0. Noisy numbers of groups are in :attr:`numbers`.
        """
        rows = []
        for step, noisy in self.measured:
            query = self.plan.query_of(step)
            if query == "numbers":
                continue
            width = self.frame.count_query_values(query, step.level)
            area = np.repeat(np.arange(len(width)), width)
            first = int(query == "sizes" and step.level != TOP_CODE_LEVEL)
            position = np.arange(len(area)) - np.repeat(np.cumsum(width) - width, width) + first
            if self.frame.brackets:
                position = self.frame.least_sizes[position]
            rows.append(
                (step.level, area, {"position": position, "noisy": noisy.read_values(), "scale": float(step.scale)})
            )
        return self._make_table(rows)

    def sum_child_histograms(self, level: int) -> Counts | None:
        """Return the sum of the children's histograms for every area; shape (areas, sizes). None for the leaf level."""
        geography = self.frame.geography
        if level == geography.depth:
            return None
        histograms_below = self.histograms[level]  # of the next level, because ``histograms[0]`` is level 1
        first_children = geography.first_child[level][:-1]  # of each area; the last entry is the end of the level below
        return np.add.reduceat(histograms_below, first_children, axis=0)

    def list_cells(self, level: int) -> tuple[Counts, Counts, Counts]:
        """Return the area number, the cell and the number of groups of every histogram entry above 0 of a level."""
        histograms = self.histograms_of(level)
        area, cell = np.nonzero(histograms)
        return area, cell, histograms[area, cell]

    def _make_size_table(self, sizes: Counts, values: Iterable[tuple[int, Sequence[Counts]]]) -> pd.DataFrame:
        """Return a table of the numbers of groups of every area at each of ``sizes``, with bounds if there are any.

        For each level, ``values`` has the level and the numbers, which bounds may follow; shape (areas, sizes) each.
        """
        rows = []
        for level, numbers in values:
            area, size = np.divmod(np.arange(numbers[0].size), len(sizes))
            columns: dict[str, object] = {"size": sizes[size]}
            for name, column in zip(("groups", "lower", "upper"), numbers, strict=False):  # bounds may be absent
                columns[name] = column.ravel()
            rows.append((level, area, columns))
        return self._make_table(rows)

    def _make_table(self, rows: Iterable[tuple[int, Counts, Mapping[str, object]]]) -> pd.DataFrame:
        """Return one table of the rows of several levels, with the code of the area and the name of the level.

        ``rows`` has each level with the area number of each of its rows, and the further columns by name.
        """
        geography = self.frame.geography
        tables = []
        for level, area, columns in rows:
            codes = geography.codes_of(level, area.astype(np.int32))
            tables.append(pd.DataFrame({"area": codes, "level": geography.level_names[level], **columns}))
        return pd.concat(tables, ignore_index=True)


def _widen_bounds(released: Counts, lower: Counts, upper: Counts) -> tuple[Counts, Counts, Counts]:
    """Return the released numbers, and the bounds, which are widened where a released number lies outside."""
    return released, np.minimum(lower, released), np.maximum(upper, released)


def _find_interval_cells(sizes: ArrayLike | None, frame: Frame) -> Counts:
    """Return the cell of a histogram for each of the ascending ``sizes``; if None, the cells that bundles have.

    Raises OdError if the sizes are not integers from 0 to K - 1, or not the least sizes of brackets.
    """
    if sizes is None:
        return list_interval_cells(frame)
    array = np.atleast_1d(np.asarray(sizes))
    are_integers = array.ndim == 1 and np.issubdtype(array.dtype, np.integer) and len(array) > 0
    sizes_with_intervals = frame.least_sizes[:-1]
    if are_integers and np.isin(array, sizes_with_intervals).all() and (np.diff(array) > 0).all():
        return frame.find_cells(array.astype(np.int64))
    if frame.brackets:
        least_sizes = ", ".join(map(str, sizes_with_intervals))
        message = f"sizes must be the least ones of brackets, ascending, but not of the last: of {least_sizes}"
        raise OdError("OD-GROUPS-SIZES", message, next_step="correct the sizes")
    raise OdError(
        "OD-GROUPS-SIZES",
        f"sizes must be ascending whole numbers from 0 to {frame.top_code - 1:,}: all groups have at most the top code",
        next_step="correct the sizes",
    )


def release_group_sizes(
    groups: TableOrFile,
    geography: Geography,
    *,
    unit: PrivacyUnit,
    budget: Budget,
    mechanism: str | GroupSizeMechanism | None = None,
    top_code: int | TopCodeEstimate | None = None,
    brackets: Sequence[int] | None = None,
    ledger: Ledger | None = None,
    release_id: str | None = None,
    noise: str | NoiseSource = "opendp",
    columns: Mapping[str, str] | None = None,
    groups_share: Number | None = None,
) -> GroupSizeRelease:
    """Release the number of groups of each size, for every area of every level, with differential privacy.

    Without a ledger, the guarantee covers this one call only; see :func:`od_core.release_flows`.

    Args:
        groups: table of pandas, Arrow, Polars or DuckDB, or the path of a Parquet or CSV file (also .csv.gz), with
            columns ``group``, ``area`` and ``size``, and one row per group; or with columns ``area``, ``size`` and
            ``groups`` (how many groups of this size the area has). The groups and their areas are public, and the
            sizes are confidential. List every group; a group without members has size 0. With ``groups_share``, the
            groups are confidential, too, and those without members are not counted.
        geography: the public geography.
        unit: ``PrivacyUnit("trip")``. One member is added or removed (unbounded neighbours) or replaced (bounded
            neighbours).
        budget: ``Budget(epsilon=...)``.
        mechanism: name of a mechanism, or a mechanism with its options. By default, a rule that uses public numbers
            only selects one (:func:`od_core.group_sizes.mechanisms.choose_default_mechanism`).
        top_code: the top code K, if it is public. Larger sizes count as K. A
            :class:`od_core.TopCodeEstimate` estimates K from the data instead. The estimate is charged to
            the budget, and requires that a mechanism is named.
        brackets: in place of a top code, the least size of each bracket of sizes, ascending from at least 1: with
            ``[1, 2, 5]``, groups of no members, of 1, of 2 to 4 and of 5 or more are distinguished. They are public,
            and require a named mechanism that measures histograms or cumulative counts.
        ledger, release_id, noise: see :func:`od_core.release_flows`.
        columns: your names of the columns ``group`` or ``groups``, ``area`` and ``size``, by these, if they differ.
        groups_share: if the number of groups of each area is confidential, the share of epsilon that measures it, such
            as ``"1/5"``. A group is counted where it has a member. This requires that a mechanism is named, and there
            are no intervals, but for those of :attr:`GroupSizeRelease.numbers`. By default, the numbers are public.

    Raises:
        OdError: the groups or the plan are invalid (see :meth:`GroupSizes.from_frame` and :func:`plan_group_sizes`),
            the ledger refuses the release, or the mechanism or the noise source fails. The groups and the plan are
            checked before anything is drawn.

    Examples:
        >>> of_members = PrivacyUnit("trip")
        >>> release_group_sizes(groups, geography, unit=of_members, budget=Budget(epsilon=1), top_code=4)
        GroupSizeRelease(bottom_up_posterior, epsilon 1)
    """
    counted = GroupSizes.from_frame(groups, geography, columns=columns)
    plan = plan_group_sizes(
        geography,
        counted.count_per_area(geography) if groups_share is None else None,
        unit=unit,
        budget=budget,
        mechanism=mechanism,
        top_code=top_code,
        brackets=brackets,
        groups_share=groups_share,
    )
    return draw_laplace_release(run_plan, plan, counted, noise, ledger, release_id)


def run_plan(
    plan: GroupSizePlan, groups: GroupSizes, noise: NoiseSource, measurements: Measurements
) -> GroupSizeRelease:
    """Measure all steps of a plan, estimate the table, and return the release.

    ``groups`` are confidential. A step that has a measurement in ``measurements`` is not measured again. Raises OdError
    if the noise source or the mechanism fails.
    """
    measured = measure_plan(plan, groups, noise, measurements)
    return estimate_release(plan, measured, spent=plan.spent, noise=find_backend_name(noise))


def measure_plan(plan: GroupSizePlan, counted: GroupSizes, noise: NoiseSource, measurements: Measurements) -> Measured:
    """Return every step of a plan with its noisy values, drawn unless ``measurements`` already contains them.

    ``counted`` is confidential, and the result is public. Raises OdError as :func:`measure_step` does.
    """

    def draw(step: LaplaceStep, frame: Frame) -> NoisyVector:
        """Return the stored noisy values of a step, drawn first if there are none."""
        query = plan.query_of(step)
        return measurements.draw_once(step, partial(measure_step, frame, query, step, counted, noise))

    return follow_steps(plan, draw)


def follow_steps(plan: GroupSizePlan, read: Callable[[LaplaceStep, Frame], NoisyVector]) -> Measured:
    """Return every step of a plan with its noisy values, which ``read`` returns.

    ``read`` gets the step and the public facts of the table as they are known before the step. The steps are in the
    order of their draws, because an estimated top code and measured numbers of groups determine what later steps
    measure.
    """
    measured: list[tuple[LaplaceStep, NoisyVector]] = []
    frame = plan.frame
    for step in plan.steps:
        measured.append((step, read(step, frame)))
        if step not in plan.level_steps:
            frame = resolve_frame(plan, measured)
    return measured


def estimate_release(plan: GroupSizePlan, measured: Measured, *, spent: Spent, noise: str | None) -> GroupSizeRelease:
    """Return the release that the mechanism estimates from the noisy values of all steps. All inputs are public."""
    frame = resolve_frame(plan, measured)
    histograms = plan.mechanism.estimate(frame, _list_level_values(plan, frame, measured), plan.level_steps[0].scale)
    if frame.measured:
        for table in histograms:
            table[:, 0] = 0  # slots without a group
    return GroupSizeRelease(plan, spent, noise, tuple(histograms), tuple(measured))


def _list_level_values(plan: GroupSizePlan, frame: Frame, measured: Measured) -> list[Counts]:
    """Return the noisy values of each measured level, top first, in the shape that mechanisms take."""
    return [
        frame.reshape_to_rows(plan.query_of(step), noisy.read_values())
        for step, noisy in measured
        if step in plan.level_steps
    ]


def resolve_frame(plan: GroupSizePlan, measured: Sequence[tuple[Step, NoisyVector]]) -> Frame:
    """Return the public facts of a table as they are known after the given measured steps.

    These are the facts of the plan, with two exceptions: an estimated top code is known after the first step, and slots
    for groups (:attr:`Frame.measured`) after the numbers of groups of all levels are measured.
    """
    frame = plan.frame
    if plan.top_code_estimate is not None and measured:
        _, noisy = measured[0]  # the step that is drawn first
        largest = int(noisy.read_values()[0])
        frame = replace(frame, top_code=plan.top_code_estimate.compute_top_code(largest, plan.steps[0].scale))
    scale, numbers = _list_noisy_numbers(measured)
    if frame.measured and len(numbers) == len(frame.levels):
        slots = fit_numbers(frame.geography, numbers, scale) + compute_laplace_reach(scale)
        frame = replace(frame, groups=slots)
        refuse_too_many(frame, list(plan.queries), spent="draws already made stay charged")
    return frame


def _list_noisy_numbers(measured: Sequence[tuple[Step, NoisyVector]]) -> tuple[Fraction, list[Counts]]:
    """Return the scale of the noise on numbers of groups, and the noisy numbers of each level, top first.

    If no step measured numbers of groups, the scale is 0, and the list is empty.
    """
    steps = [(step, noisy) for step, noisy in measured if isinstance(step, NumberStep)]
    scale = next((step.scale for step, _ in steps), Fraction(0))  # the same for all levels
    return scale, [noisy.read_values() for _, noisy in steps]


# Below, all functions read confidential sizes.


_PIECE_VALUES = 1 << 20
"""Number of query values of a piece, which may end with one area more than fits."""


def measure_step(
    frame: Frame, query: Query, step: LaplaceStep, groups: GroupSizes, noise: NoiseSource
) -> Iterator[Counts]:
    """Yield the true query values of a level plus noise, which are public, in pieces of whole areas.

    At ``TOP_CODE_LEVEL``, there is one value for all groups: the largest size, but at most ``frame.top_code``, the
    public upper bound of the top code, which is not yet estimated.

    Raises:
        OdError: the noise source draws no Laplace noise, or returns invalid values.
    """
    source = require_laplace_source(noise)
    for counts in iterate_true_values(frame, query, step.level, groups):
        noisy = check_noise(noise, source.draw_laplace(step.scale, len(counts)), len(counts))
        noisy += counts
        noisy.flags.writeable = False  # measured values do not change
        yield noisy


def iterate_true_values(frame: Frame, query: Query, level: int, groups: GroupSizes) -> Iterator[Counts]:
    """Yield the confidential true query values of a level's areas, in order, as flat arrays of one or more areas.

    A piece has about ``_PIECE_VALUES`` values. At ``TOP_CODE_LEVEL``, the only value is the largest size.
    """
    if query == "numbers":
        yield frame.sum_at_level(groups.count_per_area(frame.geography, least=1), level)
        return
    first = frame.geography.first_zone[level]
    if frame.measured and level != TOP_CODE_LEVEL:
        groups, first = groups.hold_to_numbers(first, frame.count_groups(level)), np.arange(len(first), dtype=np.int32)
    cells_of_rows, width = frame.find_cells(groups.size), frame.top_code + 1  # a size, or the number of its bracket
    if level == TOP_CODE_LEVEL:
        yield np.array([cells_of_rows.max(initial=0)], dtype=np.int64)
        return
    ends = np.searchsorted(groups.area, first)  # the rows of an area are contiguous
    value_ends = np.cumsum(frame.count_query_values(query, level))
    starts = np.unique(
        np.searchsorted(value_ends, np.arange(0, value_ends[-1], _PIECE_VALUES))
    )  # first area of each piece
    for begin, last in pairwise([*starts.tolist(), len(value_ends)]):
        rows = slice(ends[begin], ends[last])
        area = np.repeat(np.arange(last - begin), np.diff(ends[begin : last + 1]))
        if query == "sizes":
            order = np.lexsort((cells_of_rows[rows], area))  # above the leaf level, rows are ordered by leaf area
            yield np.repeat(cells_of_rows[rows][order], groups.groups[rows][order])
            continue
        histogram = np.zeros((last - begin) * width, dtype=np.int64)
        np.add.at(histogram, area * width + cells_of_rows[rows], groups.groups[rows])
        histogram = histogram.reshape(-1, width)
        yield (histogram if query == "histogram" else np.cumsum(histogram, axis=1)[:, :-1]).ravel()


def evaluate_group_sizes(
    release: GroupSizeRelease, groups: TableOrFile | GroupSizes, *, columns: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Return the errors of every area of every level. The result is NOT private: it depends on the true sizes.

    True sizes above the top code K count as K, and those of a bracket as its least size. If the numbers of groups were
    measured, groups of size 0 are added to the histogram with fewer groups, and cost nothing.

    Args:
        release: release whose table is evaluated.
        groups: the true groups, in the form that :func:`od_core.release_group_sizes` takes, or as
            :class:`GroupSizes`.
        columns: your names of the columns in a table of groups, as for that function.

    Returns:
        One row per area with these columns:

        - level, area: name of the level, and code of the area.
        - groups: public or released number of groups.
        - earth_movers_distance: smallest number of members that must be added or removed to turn the true histogram
          into the released one. It equals the L1 distance of the cumulative histograms over all sizes. It is missing
          if the two histograms have different numbers of groups, unless these were measured.
        - l1_error: L1 distance between the true and the released histogram.
        - total_error: absolute difference between the numbers of groups in the two histograms.
        - child_error: L1 distance of the released histogram from the sum of the children's; 0 for leaf areas.

    Raises:
        OdError: the groups are invalid, or an area does not have its number of groups in the release.

    Examples:
        >>> evaluate_group_sizes(sizes, groups)["level"].unique().tolist()
        ['region', 'zone']
    """
    frame, true = release.frame, groups
    if not isinstance(true, GroupSizes):
        true = GroupSizes.from_frame(true, frame.geography, columns=columns)
    numbers = true.count_per_area(frame.geography, least=int(frame.measured))
    if not frame.measured and not np.array_equal(numbers, frame.groups):
        message = "the groups differ from those of the release"
        raise OdError("OD-GROUPS-OTHER", message, next_step="give the list that was released")
    true_frame = replace(frame, groups=numbers)
    tables = []
    for level, released in zip(frame.levels, release.histograms, strict=True):
        true_values = np.concatenate([*iterate_true_values(true_frame, "histogram", level, true)])
        difference = released - frame.reshape_to_rows("histogram", true_values)
        below = release.sum_child_histograms(level)
        total_error = np.abs(difference.sum(axis=1))
        if frame.measured:
            difference[:, 0] -= difference.sum(axis=1)
        to_next_size = np.diff(frame.least_sizes)
        distance = (np.abs(np.cumsum(difference, axis=1)[:, :-1]) @ to_next_size).astype(np.float64)
        tables.append(
            pd.DataFrame(
                {
                    "level": frame.geography.levels[level - 1],
                    "area": list(frame.geography.codes[level]),
                    "groups": release.count_groups(level),
                    "earth_movers_distance": np.where((total_error == 0) | frame.measured, distance, np.nan),
                    "l1_error": np.abs(difference).sum(axis=1),
                    "total_error": total_error,
                    "child_error": 0 if below is None else np.abs(released - below).sum(axis=1),
                }
            )
        )
    return pd.concat(tables, ignore_index=True)
