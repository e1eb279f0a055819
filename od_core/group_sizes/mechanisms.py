"""Define the mechanisms for group sizes, and choose one by name or by a public rule.

A mechanism says which query is asked of every area, and how its noisy values become histograms. :data:`MECHANISMS` has
all of them, and :func:`choose_default_mechanism` is the rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal, Protocol, get_args, runtime_checkable

import numpy as np

from od_core.errors import OdError
from od_core.flows.projection.onto_parents import project_children_euclidean
from od_core.geography.geography import Numbers
from od_core.group_sizes.area_curves import NoisyAreas, fit_least_absolute, fit_least_squares
from od_core.group_sizes.area_totals import (
    compute_real_solution,
    compute_relaxed_prices,
    compute_total_prices,
    divide_among_children,
    fit_histograms_to_totals,
)
from od_core.group_sizes.groups import Counts, Frame, Query
from od_core.group_sizes.merging import Runs, check_noisy, make_level_histograms, merge_levels
from od_core.group_sizes.nearest_curves import Reals, fit_real_curves, fit_whole_curves, project_onto_intersection
from od_core.group_sizes.top_totals import compute_first_cut, fit_histograms_to_top_totals, refuse_too_large
from od_core.parallel import map_in_order
from od_core.privacy.plan import Mechanism
from od_core.privacy.unit import PrivacyUnit
from od_core.registry import Registry, refuse_unknown

Regression = Literal["least_absolute", "least_squares"]
Leaf = Literal["cumulative", "sizes"]

_PIECE_COUNTS = 1 << 20
"""Number of cumulative counts that a thread works on at a time."""


@runtime_checkable
class GroupSizeMechanism(Mechanism, Protocol):
    """The interface of a mechanism, which defines the query of each area and estimates a table from noisy values."""

    @property
    def query(self) -> Query:
        """Query that is asked of every area of a measured level."""
        ...

    @property
    def leaves_alone(self) -> bool:
        """True if the leaf areas get the whole budget, and no other level is measured. By default, all are measured."""
        return False

    def list_level_queries(self, depth: int) -> tuple[Query, ...]:
        """Return the query of each measured level, top first, of a geography with ``depth`` levels.

        By default, all measured levels have the query :attr:`query`. A mechanism with several queries overrides this.
        The noise on the values of all levels must have the same scale. Overrides raise OdError if the mechanism does
        not fit the number of levels.
        """
        return (self.query,) * (1 if self.leaves_alone else depth)

    @property
    def adds_up(self) -> bool:
        """True if the mechanism guarantees that every area's histogram is the sum of its children's, the default."""
        return True

    @property
    def keeps_totals(self) -> bool:
        """True if the mechanism guarantees that every area's histogram sums to its number of groups, the default."""
        return True

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Return the estimated histograms of all levels. They depend on public values alone, without randomness.

        Args:
            frame: the public facts of the table, with the top code K.
            noisy: noisy values of every measured level, top first. The shape is (areas, K + 1) for ``histogram`` and
                (areas, K) for ``cumulative``. For ``sizes``, the sorted sizes of each area follow those of the area
                before; shape (groups of the level,).
            scale: scale of the discrete Laplace noise on every value, the same at all levels. The probability of noise
                k is proportional to exp(-|k| / scale).

        Returns:
            Histograms of levels 1 to L, top first; integers of at least 0, of shape (areas, K + 1) per level.

        Raises:
            OdError: the noisy values have another shape or are too large for 64-bit sums, or an exact solver fails.
        """
        ...


class MergedLevels(GroupSizeMechanism):
    """Base of mechanisms that estimate each measured level from its own noisy values, and merge the results.

    The levels are merged by :mod:`od_core.group_sizes.merging`. The variances of sizes that it takes are approximate.

    Attributes:
        regression: how noisy cumulative counts are made to ascend, or the noisy sizes of ``sizes``.
    """

    regression: Regression = "least_absolute"

    def estimate_level(self, frame: Frame, level: int, noisy: Counts, scale: Fraction) -> Runs:
        """Return the sizes of the groups of a level, estimated from its own noisy values alone.

        By default, it depends on the query:

        - Noisy sizes are pooled by least squares, so the size of a run of S groups is the mean of their S noisy values.
          Its variance is about 2 / (S eps^2), where eps is the epsilon that the level is charged.
        - Noisy cumulative counts are made to ascend by ``regression``. The variance of a size that n groups of an area
          share is taken as 4 / (n eps^2) [kuo2018countofcounts, section 5.1.2].
        - A noisy histogram is replaced by the nearest one with the area's number of groups.

        ``scale``, that of the noise, is read by overrides only.
        """
        totals = frame.count_groups(level)
        offsets = np.append(0, np.cumsum(frame.count_query_values(self.query, level)))
        if self.query == "sizes":
            first, lengths, sums = fit_least_squares(noisy, offsets, np.full_like(totals, frame.top_code))
            return Runs(first, lengths, sums, lengths)
        if self.query == "cumulative":
            return Runs.from_histograms(fit_histograms(totals, noisy, self.regression))
        nearest = project_children_euclidean(noisy.reshape(-1), totals, offsets)
        return Runs.from_histograms(nearest.reshape(noisy.shape))

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Return the histograms of all levels; see :meth:`GroupSizeMechanism.estimate`."""
        queries = self.list_level_queries(frame.geography.depth)
        levels = frame.levels[-len(queries) :]
        check_noisy(frame, queries, levels, noisy)
        runs = [self.estimate_level(frame, level, values, scale) for level, values in zip(levels, noisy, strict=True)]
        return make_level_histograms(frame, merge_levels(frame, runs))


def estimate_posterior_runs(mechanism: MergedLevels, frame: Frame, level: int, noisy: Counts, scale: Fraction) -> Runs:
    """Return the sizes of the groups of a level, from the differences of posterior means of cumulative counts.

    ``noisy`` has the noisy values of the query of the mechanism, ``cumulative`` or ``sizes``, and ``scale`` is that of
    the noise; see :meth:`MergedLevels.estimate_level`, which this overrides.
    """
    areas = NoisyAreas(
        noisy=noisy.reshape(-1),
        offsets=np.append(0, np.cumsum(frame.count_query_values(mechanism.query, level))),
        totals=frame.count_groups(level),
        top_code=frame.top_code,
        of_sizes=mechanism.query == "sizes",
        scale=scale,
    )
    return Runs.from_histograms(areas.estimate_histograms())


def refuse_unknown_regression(regression: str) -> None:
    """Raise OdError if there is no regression of this name."""
    step = "choose least_absolute or least_squares"
    refuse_unknown("regression", regression, get_args(Regression), code="OD-GROUPS-REGRESSION", next_step=step)


@dataclass(frozen=True)
class Sizes(MergedLevels):
    """A mechanism that measures the sorted sizes of the groups of every area of every level.

    In each area, ascending sizes from 0 to K are fitted to the noisy sizes. The levels are then merged. The mechanism
    suits large groups with sizes that are far apart.

    Attributes:
        regression: ``least_squares`` or ``least_absolute``. The latter takes the midpoint of the least and the greatest
            optimal solution, because the source does not say which of several it takes. The size of a run of S groups
            is then a median, whose variance is estimated as that of a mean [kuo2018countofcounts, section 5.1.1].

    References:
        [kuo2018countofcounts, section 4.2], with p = 2 and p = 1
    """

    regression: Regression = "least_squares"

    name: ClassVar[str] = "sizes"
    query: ClassVar[Query] = "sizes"

    def __post_init__(self) -> None:
        refuse_unknown_regression(self.regression)

    @property
    def options(self) -> dict[str, str]:
        """Options as certificates state them. The default regression is left out, as in early certificates."""
        return {} if self.regression == "least_squares" else super().options

    def estimate_level(self, frame: Frame, level: int, noisy: Counts, scale: Fraction) -> Runs:
        """Return the sizes of the groups of a level, fitted to its noisy sizes by the chosen ``regression``."""
        if self.regression == "least_squares":
            return super().estimate_level(frame, level, noisy, scale)
        groups = frame.count_groups(level)
        least, greatest = fit_least_absolute(
            noisy, np.append(0, np.cumsum(groups)), np.full_like(groups, frame.top_code)
        )
        return Runs.from_midpoints(groups, least, greatest)


@dataclass(frozen=True)
class SizesPosterior(MergedLevels):
    """A mechanism that estimates the sizes of every area of every level by posterior means, and merges the levels.

    The measurement and the merging are those of ``sizes`` [kuo2018countofcounts, sections 4.2 and 5]. An area is
    estimated as in :mod:`od_core.group_sizes.area_curves`, with one Markov chain fitted per level. The weight of a size
    in the merging is the number of groups that have it, as in ``cumulative``.
    """

    name: ClassVar[str] = "sizes_posterior"
    query: ClassVar[Query] = "sizes"
    estimate_level = estimate_posterior_runs


@dataclass(frozen=True)
class Cumulative(MergedLevels):
    """A mechanism that measures the cumulative counts of every area of every level.

    In each area, ascending counts between 0 and the number of groups G are fitted to the noisy counts. The count of all
    sizes is G. The levels are then merged. The mechanism suits many small groups.

    Attributes:
        regression: ``least_absolute`` (the midpoint of the least and the greatest optimal solution; its errors are 20
            to 45 % smaller) or ``least_squares``.
    """

    regression: Regression = "least_absolute"

    name: ClassVar[str] = "cumulative"
    query: ClassVar[Query] = "cumulative"

    def __post_init__(self) -> None:
        refuse_unknown_regression(self.regression)


@dataclass(frozen=True)
class MixedQueries(MergedLevels):
    """A mechanism that measures cumulative counts at some levels and sorted sizes at others, and merges the levels.

    Each level is estimated as in ``cumulative`` or ``sizes``. A size has half the variance by sizes: 2 / (S eps^2) for
    a run of S groups, and by cumulative counts 4 / (n eps^2) for n groups [kuo2018countofcounts, section 5.1].

    Attributes:
        queries: ``cumulative`` or ``sizes`` for each level, top first, as a sequence or a text with commas. H_c x H_g
            of the source is the default.

    References:
        [kuo2018countofcounts, section 6.2]

    Examples:
        >>> MixedQueries("cumulative").queries
        ('cumulative',)
    """

    queries: Sequence[Leaf] | str = ("cumulative", "sizes")

    name: ClassVar[str] = "mixed"

    def __post_init__(self) -> None:
        names = self.queries.split(",") if isinstance(self.queries, str) else self.queries
        queries = tuple(name.strip() if isinstance(name, str) else name for name in names)
        for query in queries:
            step = "choose cumulative or sizes for each level"
            refuse_unknown("query of mixed", query, get_args(Leaf), code="OD-GROUPS-QUERIES", next_step=step)
        object.__setattr__(self, "queries", queries)

    @property
    def options(self) -> dict[str, str]:
        """The queries of the levels as text, as certificates state the options of a mechanism."""
        return {"queries": ", ".join(self.queries)}

    @property
    def query(self) -> Query:
        """Query of the leaf areas."""
        return self.list_level_queries(len(self.queries))[-1]

    def list_level_queries(self, depth: int) -> tuple[Query, ...]:
        """Return the queries. Raises OdError if their number is not ``depth``, the number of levels."""
        if len(self.queries) != depth:
            message = f"{len(self.queries)} queries are given for a geography of {depth} levels"
            raise OdError("OD-GROUPS-QUERIES", message, next_step="give cumulative or sizes for each level, top first")
        return tuple(self.queries)  # type: ignore[arg-type]  # checked

    def estimate_level(self, frame: Frame, level: int, noisy: Counts, scale: Fraction) -> Runs:
        """Return the sizes of the groups of a level, estimated as ``cumulative`` or ``sizes`` does, by its query.

        A size has half the variance if sizes were measured. The weights of such levels are doubled, so that the weights
        of all levels are inverse to the variances.
        """
        if self.queries[level - 1] == "cumulative":
            return Cumulative().estimate_level(frame, level, noisy, scale)
        runs = Sizes().estimate_level(frame, level, noisy, scale)
        return Runs(runs.first, runs.groups, totals=2 * runs.totals, weights=2 * runs.weights)


def fit_histograms(totals: Counts, noisy: Counts, regression: Regression) -> Counts:
    """Return integer histograms, the differences of fitted cumulative counts rounded half up; shape (areas, K + 1).

    ``totals`` has the number of groups of each area; shape (areas,). ``noisy`` has the noisy cumulative counts for the
    sizes 0 to K - 1; shape (areas, K).
    """
    rows = max(1, _PIECE_COUNTS // noisy.shape[1])

    def fit_piece(begin: int) -> Counts:
        """Return the histograms of the areas of a piece, which begins at area ``begin``."""
        upper, values = totals[begin : begin + rows], noisy[begin : begin + rows]
        offsets = np.arange(len(values) + 1) * values.shape[1]
        if regression == "least_absolute":
            least, greatest = fit_least_absolute(values.reshape(-1), offsets, upper)
            rounded = (least + greatest + 1) // 2  # midpoints
        else:
            _, lengths, sums = fit_least_squares(values.reshape(-1), offsets, upper)
            rounded = np.repeat((2 * sums + lengths) // (2 * lengths), lengths)  # means
        return np.diff(rounded.reshape(values.shape), prepend=0, append=upper[:, np.newaxis])

    return np.concatenate(list(map_in_order(fit_piece, range(0, len(noisy), rows))))


@dataclass(frozen=True)
class BottomUp(MergedLevels):
    """A mechanism that measures the leaf areas alone, as ``cumulative`` or ``sizes`` does.

    Which of the two is better depends on the data. Their errors differ by a factor of up to 3.5.

    Attributes:
        leaf: the query and the method of the leaf areas, ``cumulative`` (with least absolute distances) or ``sizes``.

    References:
        [kuo2018countofcounts, section 6.2.2]
    """

    leaf: Leaf = "cumulative"

    name: ClassVar[str] = "bottom_up"
    leaves_alone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        step = "choose cumulative or sizes"
        refuse_unknown("leaf method", self.leaf, get_args(Leaf), code="OD-GROUPS-LEAF", next_step=step)

    @property
    def query(self) -> Query:
        """Query of the leaf areas, which has the name of the leaf method."""
        return self.leaf


@dataclass(frozen=True)
class BottomUpPosterior(BottomUp):
    """A mechanism with the measurement of ``bottom_up`` that estimates the sizes of the leaf areas by posterior means.

    The estimate has no published source; see :mod:`od_core.group_sizes.area_curves`. With the same noise, its errors
    are smaller than those of ``bottom_up`` (``docs/explanation/group-sizes.md``).
    """

    name: ClassVar[str] = "bottom_up_posterior"
    estimate_level = estimate_posterior_runs


@dataclass(frozen=True)
class Naive(MergedLevels):
    """A baseline that measures the histogram of every area of every level.

    Each noisy histogram is replaced by the nearest histogram with the area's number of groups. The levels are then
    merged. The source [kuo2018countofcounts, section 4.1] describes a single area only. The merging uses
    16 / (eps^2 n) as the variance of a size with n groups, at the epsilon eps of a level. Most entries of a true
    histogram are 0. About half of them get groups by the noise, so the estimated sizes spread over 0 to the top code.
    """

    name: ClassVar[str] = "naive"
    query: ClassVar[Query] = "histogram"


@dataclass(frozen=True)
class WithAreaTotals(GroupSizeMechanism):
    """The base of the mechanisms of [fioretto2019hierarchical] that keep numbers of groups, with their one option.

    Attributes:
        area_totals: if true, every area has its number of groups in the result. The result is then optimal on small
            trees and near the optimum on large trees. If false, only the top areas have their numbers of groups, as in
            the published algorithms, and the result is optimal.
    """

    area_totals: bool = True

    def __post_init__(self) -> None:
        values: dict[object, bool] = {True: True, False: False, "true": True, "false": False}
        if not isinstance(self.area_totals, bool | str) or self.area_totals not in values:
            message, step = "area_totals must be true or false", "correct the option of the mechanism"
            raise OdError("OD-MECHANISM-OPTION", message, next_step=step)
        object.__setattr__(self, "area_totals", values[self.area_totals])

    @property
    def keeps_totals(self) -> bool:
        """True if every area has its number of groups in the result."""
        return self.area_totals

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Return the histograms of all levels; see :meth:`GroupSizeMechanism.estimate`.

        ``scale`` is read only without ``area_totals``. It affects the running time and the choice among optimal
        results.
        """
        histograms = noisy
        if self.query == "cumulative":
            levels = zip(frame.levels, noisy, strict=True)
            histograms = [
                fit_histograms(frame.count_groups(level), values, "least_squares") for level, values in levels
            ]
        if self.area_totals:
            return fit_histograms_to_totals(frame, histograms)
        return fit_histograms_to_top_totals(frame, histograms, compute_first_cut(scale))


@dataclass(frozen=True)
class Histogram(WithAreaTotals):
    """The mechanism M_H: noisy histograms of all areas, then integer least squares over the areas of all levels.

    References:
        [fioretto2019hierarchical, sections 5 to 7]
    """

    name: ClassVar[str] = "histogram"
    query: ClassVar[Query] = "histogram"


@dataclass(frozen=True)
class HistogramRelaxed(GroupSizeMechanism):
    """The baseline M_H^r: noisy histograms of all areas, then least squares over the reals. Each value is rounded.

    After the rounding, an area need not have its number of groups, and children need not sum to their parent.

    References:
        [fioretto2019hierarchical, section 5]
    """

    name: ClassVar[str] = "histogram_relaxed"
    query: ClassVar[Query] = "histogram"
    adds_up: ClassVar[bool] = False
    keeps_totals: ClassVar[bool] = False

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Return the histograms of all levels, rounded half up; see :meth:`GroupSizeMechanism.estimate`."""
        refuse_too_large(frame, noisy)
        prices = compute_relaxed_prices(frame, noisy)
        histograms = []
        for k, values in enumerate(noisy):
            all_areas = slice(0, len(values))
            y = compute_real_solution(frame, noisy, prices, k, all_areas)
            histograms.append(np.maximum(np.floor(y + 0.5), 0).astype(np.int64))
        return histograms


@dataclass(frozen=True)
class CumulativeDP(WithAreaTotals):
    """The mechanism M_c^dp: noisy cumulative counts, made monotone, then the nearest histograms that add up.

    One record changes cumulative counts by 1 and histograms by 2, so cumulative counts need half the noise. Each area
    is made monotone on its own, so the result is not nearest to the noisy cumulative counts of all areas together. The
    source does not fix the last cumulative count. Here it is G_r, the public number of groups of area r.

    References:
        [fioretto2019hierarchical, section 9.1, Algorithm 2]
    """

    name: ClassVar[str] = "cumulative_dp"
    query: ClassVar[Query] = "cumulative"


@dataclass(frozen=True)
class TopDown(WithAreaTotals):
    """The TopDown algorithm: noisy histograms, then each area's histogram is divided among its children, top first.

    The children of an area are estimated from their own noisy values, and no level learns from the levels below it. If
    only the top areas have their numbers of groups, each size of an area is a problem of its own, which is solved
    exactly. If all areas have them (``area_totals``), a problem has sums over children and over sizes. It is solved
    over the reals, and rounded as in :mod:`od_core.group_sizes.area_totals`.

    References:
        [abowd2022topdown]; [fioretto2019hierarchical, section 10] for the use with group sizes
    """

    name: ClassVar[str] = "top_down"
    query: ClassVar[Query] = "histogram"

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Return the histograms of all levels; see :meth:`GroupSizeMechanism.estimate`. ``scale`` is not read."""
        refuse_too_large(frame, noisy)
        sizes = frame.top_code + 1
        tops = project_children_euclidean(noisy[0].ravel(), frame.count_groups(1), np.arange(len(noisy[0]) + 1) * sizes)
        histograms = [tops.reshape(-1, sizes)]
        for level, values in enumerate(noisy[1:], start=2):
            above = histograms[-1]
            if self.area_totals:
                nearest = _project_children(frame, level, values, above)
                histograms.append(divide_among_children(frame, nearest.__getitem__, level - 1, above))
            else:
                first_child = frame.geography.first_child[level - 1]
                histograms.append(_project_children_by_size(values, above, first_child))
        return histograms


def _project_children_by_size(noisy: Counts, above: Counts, first_child: Numbers) -> Counts:
    """Return the nearest integer histograms of a level whose sums over the children of each area are ``above``.

    ``noisy`` has the noisy histograms of the level. The children of area a are ``first_child[a]:first_child[a + 1]``.
    """
    sizes = noisy.shape[1]
    # The first value of each size and area, where the values of all areas follow each other size by size.
    first_values = np.arange(sizes)[:, np.newaxis] * len(noisy) + first_child[:-1]
    offsets = np.append(first_values.ravel(), noisy.size)
    by_size = project_children_euclidean(noisy.T.ravel(), above.T.ravel(), offsets)
    return np.ascontiguousarray(by_size.reshape(sizes, -1).T)


def _project_children(frame: Frame, level: int, noisy: Counts, above: Counts) -> Reals:
    """Return nearly the nearest real histograms of a level with its numbers of groups and the sums ``above``.

    ``noisy`` has the noisy histograms of the level; the result has their shape.
    """
    totals, parents = frame.count_groups(level), frame.geography.parents[level]
    first = frame.geography.first_child[level - 1]
    children = np.diff(first)[:, np.newaxis]
    no_price = np.zeros((1, noisy.shape[1]))

    def project_onto_sums(values: Reals) -> Reals:
        """Return the nearest values whose sums over children are ``above``."""
        return values + ((above - np.add.reduceat(values, first[:-1])) / children)[parents]

    def project_onto_totals(rows: slice, values: Reals) -> Reals:
        """Return the nearest values of at least 0 of some areas that sum to their numbers of groups."""
        prices = np.zeros(len(values))
        are_leaves = True  # so that areas have no prices of their own
        parent_rows = np.zeros_like(parents[rows])
        compute_total_prices(values, no_price, parent_rows, no_price, are_leaves, totals[rows], prices)
        return np.maximum(values + prices[:, np.newaxis], 0.0)

    return project_onto_intersection(noisy.astype(np.float64), project_onto_sums, project_onto_totals)


@dataclass(frozen=True)
class CumulativeNearest(GroupSizeMechanism):
    """The mechanism M_c: noisy cumulative counts, then integer least squares over those of the areas of all levels.

    The result is optimal on small trees and near the optimum on large trees. The source fixes the last cumulative count
    of the top area. Here it is G_r, the public number of groups, in every area r.

    References:
        [fioretto2019hierarchical, section 9, Model 2]
    """

    name: ClassVar[str] = "cumulative_nearest"
    query: ClassVar[Query] = "cumulative"

    def estimate_curves(self, frame: Frame, noisy: Sequence[Counts]) -> list[Counts]:
        """Return the estimated cumulative counts of every level, in the shapes of the noisy ones."""
        return fit_whole_curves(frame, noisy)

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Return the histograms of all levels; see :meth:`GroupSizeMechanism.estimate`. ``scale`` is not read."""
        check_noisy(frame, self.list_level_queries(frame.geography.depth), frame.levels, noisy)
        levels = zip(self.estimate_curves(frame, noisy), map(frame.count_groups, frame.levels), strict=True)
        return [np.diff(counts, prepend=0, append=totals[:, np.newaxis]) for counts, totals in levels]


@dataclass(frozen=True)
class CumulativeRelaxed(CumulativeNearest):
    """The baseline M_c^r: as ``cumulative_nearest`` over the reals. Each cumulative count is rounded by itself.

    After the rounding, children need not sum to their parent.

    References:
        [fioretto2019hierarchical, sections 9 and 11]
    """

    name: ClassVar[str] = "cumulative_relaxed"
    adds_up: ClassVar[bool] = False

    def estimate_curves(self, frame: Frame, noisy: Sequence[Counts]) -> list[Counts]:
        """Return the estimated cumulative counts of every level, rounded half up."""
        return [np.floor(curves + 0.5).astype(np.int64) for curves in fit_real_curves(frame, noisy)]


_MAKERS = (
    *(Naive, Sizes, SizesPosterior, Cumulative, MixedQueries, BottomUp, BottomUpPosterior),  # [kuo2018countofcounts]
    *(Histogram, HistogramRelaxed, CumulativeDP, TopDown),  # [fioretto2019hierarchical]
    *(CumulativeNearest, CumulativeRelaxed),
)
MECHANISMS: Registry[GroupSizeMechanism] = Registry("group sizes", {maker.name: maker for maker in _MAKERS})

MIN_BIAS_RATIO = 150
"""Smallest s m / L^2 at which the biases of leaf areas outweigh the extra noise of measuring further levels.

s is the noise scale, m the number of leaf areas per top area, and L the number of levels; see
:func:`choose_default_mechanism`.
"""

MIN_AVERAGING_RATIO = 200
"""Smallest ratio of a top area's number of groups to sqrt(K), for a top code K, at which noise averages out there."""

MIN_GROUPS_PER_SIZE = 30
"""Smallest ratio of a top area's groups to the top code at which cumulative counts have smaller errors than sizes."""

MAX_NOISE_PER_STEP = 2
"""Largest ratio of noise scale to step height at which a step in a leaf's cumulative counts stands out from noise."""


def choose_default_mechanism(frame: Frame, unit: PrivacyUnit, epsilon: Fraction) -> GroupSizeMechanism:
    """Return the mechanism that a rule selects for a table from public numbers alone.

    - If the noise is strong, so that biases of leaf areas add up, and many groups of a top area have the same size, all
      levels are measured: by cumulative counts if a top area has many groups for every size, else by sorted sizes.
    - Otherwise, the leaf areas alone are measured: by cumulative counts if the step that groups of one size form in
      them stands out from the noise, else by sorted sizes.

    ``docs/explanation/group-sizes.md`` gives the reasons, and states for which data the choice is wrong. ``epsilon`` is
    the whole budget.
    """
    scale = unit.differing_units / float(epsilon)  # of cumulative counts and of sorted sizes
    tops, leaves, depth = frame.geography.size(1), len(frame.groups), frame.geography.depth
    root_of_top_code = math.sqrt(frame.top_code)
    groups = int(frame.groups.sum())
    has_large_biases = scale * (leaves / tops) / depth**2 >= MIN_BIAS_RATIO
    noise_averages_out = groups / tops / root_of_top_code >= MIN_AVERAGING_RATIO
    if depth > 1 and has_large_biases and noise_averages_out:
        return Cumulative() if groups / tops >= MIN_GROUPS_PER_SIZE * frame.top_code else SizesPosterior()
    step_height = groups / leaves / root_of_top_code  # typical number of groups of one size in a leaf area
    return BottomUpPosterior("cumulative" if scale <= MAX_NOISE_PER_STEP * step_height else "sizes")
