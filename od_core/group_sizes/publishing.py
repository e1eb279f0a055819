"""Stage, report and publish releases of group sizes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, takewhile, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from markupsafe import Markup

from od_core.geography.geography import Geography, find_finest_level
from od_core.group_sizes.groups import Counts, Frame, GroupSizes
from od_core.group_sizes.intervals import list_interval_cells
from od_core.group_sizes.plan import MAX_MISS_PROBABILITY, MEASURED, GroupSizePlan, NumberStep, compute_top_code_margin
from od_core.group_sizes.release import GroupSizeRelease, estimate_release, follow_steps, measure_plan
from od_core.languages import message, translate
from od_core.ledger.measurements import NoisyVector
from od_core.ledger.staged_files import StagedTable
from od_core.meaning.subject import Subject
from od_core.privacy.accounting import round_up_to_float
from od_core.privacy.budget import Spent
from od_core.privacy.plan import LaplaceStep, Step, with_fields
from od_core.privacy.stability import compute_laplace_reach, compute_laplace_variance
from od_core.publication.certificate import (
    Certificate,
    format_confidence,
    has_intervals,
    read_bundle_format,
    read_subject,
)
from od_core.publication.certify import describe_guarantee
from od_core.publication.columns import CONFIDENCE, make_public_table
from od_core.publication.kind import ReleaseContext, TableKind
from od_core.publication.number_formats import (
    Scale,
    find_places_of_largest,
    format_class,
    format_number,
    iterate_one_three_ten,
    list_size_classes,
)
from od_core.publication.read_back import (
    make_changed_data_error,
    read_certificate_and_tables,
    read_spent_budget,
    refuse_other_plan,
)
from od_core.publication.tables import (
    BundleFile,
    build_published_geography,
    make_areas_files,
    make_areas_table,
    make_table_files,
)
from od_core.publication.templates import render_data, render_markup, render_template

_CELLS_SCHEMA = pa.schema([("level", pa.int32()), ("area", pa.int32()), ("size", pa.int64()), ("groups", pa.int64())])
"""Columns of stored histograms, one row per entry above 0. Levels and areas are numbers."""


class StagedGroupSizes(StagedTable[GroupSizePlan, GroupSizes, GroupSizeRelease]):
    """The stored files of one release: the true sizes, and the unpublished histograms.

    The table of histograms identifies levels and areas by their numbers.
    """

    counted_name = "group_sizes"
    table_name = "histograms"

    def read_counted_input(self, _build_plan: GroupSizePlan) -> GroupSizes:
        """Read the true sizes of all groups; see :meth:`StagedTable.read_counted_input`."""
        table = pq.read_table(self.locate_file(self.counted_name))
        return GroupSizes(*(np.array(column) for column in table.columns))  # two columns in an earlier version

    def make_counted_table(self, counted: GroupSizes) -> pa.Table:
        """Return the true groups as a table: area (number), size and groups (number of groups) of each row."""
        return pa.table({"area": counted.area, "size": counted.size, "groups": counted.groups})

    def make_table(self, release: GroupSizeRelease) -> pa.Table:
        """Return the released histograms as a table of their entries above 0, top level first."""
        batches = []
        for level in release.frame.levels:
            area, size, groups = release.list_cells(level)
            batches.append(pa.record_batch([np.full(len(area), level), area, size, groups], _CELLS_SCHEMA))
        return pa.Table.from_batches(batches, _CELLS_SCHEMA)


def _render_texts(plan: GroupSizePlan, certificate: Certificate | None = None) -> dict[str, str]:
    """Return texts on a plan or a release by name, for its guarantee and its codebook (``group_sizes_notes.yaml``).

    ``certificate`` is that of the release; None for a plan.
    """
    texts: dict[str, str] = render_data(
        "group_sizes_notes.yaml",
        plan=plan,
        margin=compute_top_code_margin,
        missed=MAX_MISS_PROBABILITY,
        certificate=certificate,
        interval=certificate is not None and has_intervals(certificate),
    )
    return texts


FIRST_WITH_EXACT_ENDS = 7
"""First format of bundles with exact intervals from noisy sizes. Bundles of earlier formats have Wilson's intervals."""


def _use_stated_interval_ends(release: GroupSizeRelease, certificate: Certificate) -> GroupSizeRelease:
    """Return the release with the kind of intervals that its bundle format has: exact ones, or Wilson's before."""
    return with_fields(release, exact=read_bundle_format(certificate) >= FIRST_WITH_EXACT_ENDS)


def open_group_sizes(bundle: str | Path) -> GroupSizeRelease:
    """Read a published bundle of a group-size table, and return its release.

    The table is estimated again from the noisy measurements in the bundle, and compared with the published histograms.

    Raises:
        OdError: the folder is not a bundle of a group-size table, or its files do not match its certificate.
    """
    names = ("areas", "groups_by_area", "noisy_measurements", "histogram")
    certificate, (areas, groups, measurements, histogram) = read_certificate_and_tables(bundle, names)
    plan = _build_plan(certificate["plan"], areas, groups, certificate.get("geography_versions", {}).get("areas"))
    level_names = plan.frame.geography.level_names

    def read(step: LaplaceStep, frame: Frame) -> NoisyVector:
        """Return the published noisy values of a step."""
        table = groups if isinstance(step, NumberStep) else measurements
        noisy = table.loc[table["level"] == level_names[step.level], "noisy"].to_numpy(dtype=np.int64)
        if len(noisy) != frame.count_query_values(plan.query_of(step), step.level).sum():
            raise make_changed_data_error("noisy measurements")
        return NoisyVector.from_arrays([noisy])

    measured = follow_steps(plan, read)
    release = estimate_release(plan, measured, spent=read_spent_budget(plan, certificate), noise=certificate["noise"])
    if not release.histogram.equals(histogram.astype(release.histogram.dtypes)):
        raise make_changed_data_error("histogram")
    if release.frame.measured and not release.numbers.equals(groups.astype(release.numbers.dtypes)):
        raise make_changed_data_error("numbers of groups")
    return release


def _build_plan(
    facts: Mapping[str, Any], areas: pd.DataFrame, groups: pd.DataFrame, version: str | None
) -> GroupSizePlan:
    """Return the plan of a bundle with the given facts, and with its tables of areas and of numbers of groups.

    ``version`` is that of the geography; None if it has none. Raises OdError if the areas or the numbers of groups are
    not those of a bundle, or this version of the software plans something else.
    """
    geography = build_published_geography(areas, facts["geography"], facts.get("unknown_zone"), version)
    per_area = None
    if "groups_share" not in facts:
        numbers = groups["groups"].to_numpy()
        has_each_area_once = Counter(groups["area"]) == Counter(geography.zones)
        if not has_each_area_once or numbers.dtype.kind != "i" or (numbers < 0).any():  # `Frame` would blame the caller
            raise make_changed_data_error("numbers of groups")
        per_area = groups.set_index("area")["groups"].loc[list(geography.zones)].to_numpy(dtype=np.int64)
    plan = GroupSizePlan.from_facts(facts, geography, per_area)
    refuse_other_plan(plan, facts)
    return plan


# Report. The words and the layout are in the templates.

MAX_LISTED_AREAS = 24
"""Largest number of areas that the report shows one by one."""

_LIST_OF_GROUPS = message("the list of groups, and with it the number of groups of every area")

BAND_TITLE = message("Share of the groups with at most each number of members")
"""Title of the chart of :func:`_render_band_chart`."""

_LONGEST_BAR = 420
"""Length of the longest bar of a chart, in units of the picture."""

_LEFT, _TOP, _WIDTH, _HEIGHT = 84, 14, 600, 250
"""Position and size of the chart with the band, within its picture."""


def _render_band_chart(release: GroupSizeRelease) -> Markup:
    """Return the chart of the share of groups of at most each size, with intervals, as SVG.

    The position of size j on the axis is proportional to log(1 + j).
    """
    least, groups = release.frame.least_sizes, int(release.frame.groups.sum())
    top_code, cells = int(least[-1]), list_interval_cells(release.frame)
    released_groups = int(release.histograms_of(0).sum())  # at which the released line ends
    released, lower, upper = (values[0] for values in release.bound_groups_at_most(0, cells))

    def compute_positions(sizes: Sequence[int]) -> list[float]:
        """Return the horizontal positions of sizes on the picture."""
        positions: list[float] = (_LEFT + _WIDTH * np.log1p(sizes) / (np.log1p(top_code) or 1)).tolist()
        return positions

    def format_points(numbers: Counts, number_at_top_code: int) -> list[str]:
        """Return the points of a line through numbers of groups, as SVG has them."""
        shares = np.append(numbers, number_at_top_code) / groups
        heights = (_TOP + _HEIGHT * (1 - shares.clip(0, 1))).tolist()
        positions = compute_positions([*least[cells].tolist(), top_code])
        return [f"{x:.1f},{y:.1f}" for x, y in zip(positions, heights, strict=True)]

    steps = [0, *takewhile(lambda step: step <= top_code, iterate_one_three_ten())]
    return render_markup(
        "band_chart.svg",
        title=translate(BAND_TITLE),
        left=_LEFT,
        right=_LEFT + _WIDTH,
        bottom=_TOP + _HEIGHT,
        heights={percent: _TOP + _HEIGHT * (1 - percent / 100) for percent in (0, 25, 50, 75, 100)},
        steps=dict(zip(steps, compute_positions(steps), strict=True)),
        band=[*format_points(lower, groups), *format_points(upper, groups)[::-1]],
        line=format_points(released, released_groups),
    )


def _count_by_size_class(frame: Frame, histograms: Counts) -> tuple[list[str], list[int], Counts]:
    """Return the name and the last cell of each class of sizes, and the groups in each; shape (areas, classes).

    The classes are 0, 1, 2 to 3, 4 to 10 and so on. If there are brackets, a class begins with the first bracket that
    begins in it, and classes without such a bracket are left out. The last class has no upper end, because sizes above
    the top code count as the top code.
    """
    least = frame.least_sizes
    last_sizes = [high for _, high in [(0, 0), *list_size_classes(int(least[-1]))]]
    ends = np.unique(np.searchsorted(least, last_sizes, side="right") - 1)
    lows = least[[0, *(ends[:-1] + 1)]].tolist()
    groups = np.diff(np.cumsum(histograms, axis=1)[:, ends], prepend=0, axis=1)
    names = [format_class(low, following - 1) for low, following in pairwise(lows)]
    return [*names, translate("{number} or more").format(number=format_number(lows[-1]))], ends.tolist(), groups


def _describe_measured_queries(plan: GroupSizePlan) -> str:
    """Return what a release measures, in words, with the levels if they differ."""
    names, queries = plan.frame.geography.level_names, plan.queries
    if len(set(queries.values())) == 1:
        return translate(MEASURED[plan.mechanism.query])
    text = translate("{what} (level {level})")
    return "; ".join(
        text.format(what=translate(MEASURED[query]), level=names[level]) for level, query in queries.items()
    )


def _list_cumulative_counts(release: GroupSizeRelease, cells: list[int]) -> list[tuple[int, int, int]]:
    """Return the number of groups up to each cell of the whole space's histogram, with lower and upper bounds."""
    released, lower, upper = (values[0].tolist() for values in release.bound_groups_at_most(0, np.array(cells)))
    return list(zip(released, lower, upper, strict=True))


def _make_area_tables(release: GroupSizeRelease) -> dict[str, object]:
    """Return the values of the report's tables by area: the groups by size, and the members with intervals.

    The areas are those of the finest level with at most ``MAX_LISTED_AREAS`` areas. If every level has more, they are
    the areas of level 1 with the most groups or members.
    """
    geography = release.frame.geography
    level = find_finest_level(geography, MAX_LISTED_AREAS)
    labels, groups = geography.labels[level], release.count_groups(level)
    histograms = release.histograms_of(level)
    members = release.bound_members(level)
    most_members = find_places_of_largest(members[0], MAX_LISTED_AREAS)
    most_groups = find_places_of_largest(histograms.sum(axis=1), MAX_LISTED_AREAS)
    class_names, _, by_class = _count_by_size_class(release.frame, histograms[most_groups])
    cells = [[(number, "") for number in row] for row in by_class.tolist()]  # no number is marked
    listed_members = np.stack(members, axis=1)[most_members].tolist()
    return {
        "name": geography.level_names[level],
        "most": MAX_LISTED_AREAS if len(groups) > MAX_LISTED_AREAS else None,
        "members": [
            (labels[area], int(groups[area]), members_of_area)
            for area, members_of_area in zip(most_members, listed_members, strict=True)
        ],
        "columns": class_names,
        "rows": list(zip([labels[area] for area in most_groups], cells, by_class.sum(axis=1).tolist(), strict=True)),
        "scale": Scale.from_maximum(int(by_class.max())),
    }


class GroupSizeKind(TableKind[GroupSizePlan, GroupSizes, GroupSizeRelease]):
    """The functions that certify, write, store, read and verify releases of group-size tables.

    Whenever a bundle is read, the table is estimated again from the published noisy measurements.
    """

    contents = "group sizes"
    format = "od-release group-size certificate 1"
    schema = "database/group_sizes.sql"
    facts_table = "group_size_releases"
    staging = StagedGroupSizes

    def facts(self, release: GroupSizeRelease, _subject: Subject) -> dict[str, object]:
        """Return the facts that only certificates of group sizes have, such as the levels and the invariants."""
        plan, frame = release.plan, release.frame
        return {
            "contents": {
                "groups": int(release.count_groups(0)[0]),
                "areas": len(frame.groups),
                "top_code": int(frame.least_sizes[-1]),
            },
            "interval": None if frame.measured else str(CONFIDENCE),
            "levels": [
                {
                    "level": step.level,
                    "area_level": frame.geography.level_names[step.level],
                    **({"measured": "numbers of groups"} if isinstance(step, NumberStep) else {}),
                    "sensitivity": step.sensitivity,
                    "scale": round_up_to_float(step.scale),
                    "scale_exact": str(step.scale),
                    "epsilon_exact": str(step.epsilon),
                    "measured_cells": len(noisy),
                }
                for step, noisy in release.measured
            ],
            "invariants": [
                *(
                    []
                    if frame.measured
                    else [translate("the list of groups, and with it the number of groups of every area")]
                ),
                *([translate("the top code")] if plan.top_code_estimate is None else []),
                *([translate("the brackets of sizes")] if frame.brackets else []),
            ],
            "promises": {"adds_up": plan.mechanism.adds_up, "keeps_totals": plan.keeps_totals},
            "geographies": {"areas": frame.geography.digest},
            "geography_versions": {"areas": frame.geography.version},
        }

    def describe_guarantee(self, plan: GroupSizePlan, spent: Spent, subject: Subject) -> dict[str, str]:
        """Return the sentences of a plan's guarantee by name, with what is public about the groups."""
        public = [] if plan.frame.measured else [translate("which groups there are, and in which areas")]
        sentences = describe_guarantee(subject, spent, plan.acceptance, public=public)
        return sentences | {"input": f"{sentences['input']} {_render_texts(plan)['input']}"}

    def make_summary(self, release: GroupSizeRelease) -> pd.DataFrame:
        """Return a table with one row per level.

        A row has the numbers of areas, groups and released members, the largest released size, and the noise scale if
        the level was measured.
        """
        frame, scales = release.frame, {step.level: step.scale for step in release.plan.steps}
        sizes = frame.least_sizes
        rows = []
        for level, histograms in zip(frame.levels, release.histograms, strict=True):
            rows.append(
                {
                    "level": frame.geography.levels[level - 1],
                    "areas": len(histograms),
                    "groups": int(histograms.sum()),
                    "largest_size": int(sizes[histograms.any(axis=0)].max(initial=0)),
                    "members": int(histograms.sum(axis=0) @ sizes),
                    "noise_scale": f"{round_up_to_float(scales[level]):.6g}" if level in scales else "-",
                }
            )
        return pd.DataFrame(rows)

    def list_files(self, release: GroupSizeRelease, certificate: Certificate) -> list[BundleFile]:
        """Return the files of the histograms, the intervals, the numbers of groups, the measurements and the areas."""
        release, frame = _use_stated_interval_ends(release, certificate), release.frame
        nouns = read_subject(certificate).nouns
        tables = {"histogram": release.histogram}
        if has_intervals(certificate):
            tables |= {"cumulative": release.at_most(), "members": release.members}
        if frame.measured:
            tables["measured_groups"] = release.numbers
        else:
            tables["groups_by_area"] = pd.DataFrame({"area": list(frame.geography.zones), "groups": frame.groups})
        tables["group_measurements"] = release.measurements
        files = []
        for key, rows in tables.items():
            files += make_table_files(make_public_table(key, nouns), rows)
        return [*files, *make_areas_files(make_areas_table(frame.geography))]

    def list_notes(self, release: GroupSizeRelease, certificate: Certificate) -> list[str]:
        """Return the codebook's notes on the top code and on the intervals."""
        return _render_texts(release.plan, certificate)["notes"].splitlines()

    def render_report(
        self, release: GroupSizeRelease, certificate: Certificate, context: ReleaseContext[GroupSizeRelease]
    ) -> str:
        """Return the report of a release as HTML; see :meth:`od_core.publication.kind.Kind.render_report`."""
        release = _use_stated_interval_ends(release, certificate)
        interval = format_confidence(certificate)
        histograms = release.histograms_of(0)
        frame, groups = release.frame, int(release.count_groups(0)[0])
        least = frame.least_sizes.tolist()
        median_cell = int(np.searchsorted(np.cumsum(histograms), (groups + 1) // 2))
        names, ends, (by_class,) = _count_by_size_class(frame, histograms)
        up_to_ends, up_to_median, band = list[tuple[int, int, int]](), None, None
        if interval is not None:
            up_to_ends = _list_cumulative_counts(release, ends[:-1])
            band = _render_band_chart(release)
            if median_cell < frame.top_code:
                (up_to_median,) = _list_cumulative_counts(release, [median_cell])
        return render_template(
            "group_sizes_report.html",
            certificate=certificate,
            interval=interval,
            groups=groups,
            bounds=[int(ends[0]) for ends in release.bound_numbers(0)] if frame.measured else None,
            top_code=least[-1],
            brackets=frame.brackets,
            members=[int(values[0]) for values in release.bound_members(0)],
            middle=least[median_cell] if median_cell < len(least) else None,
            up_to_middle=up_to_median,
            classes=list(zip_longest(names, by_class.tolist(), up_to_ends)),
            band=band,
            band_title=translate(BAND_TITLE),
            areas=_make_area_tables(release),
            measured=_describe_measured_queries(release.plan),
            geography=release.frame.geography,
            errors=[
                (step, math.sqrt(compute_laplace_variance(step.scale)), compute_laplace_reach(step.scale))
                for step in release.plan.steps
                if step in release.plan.level_steps or isinstance(step, NumberStep)
            ],
            context=context,
        )

    def render_pictures(self, release: GroupSizeRelease, certificate: Certificate) -> dict[str, Markup]:
        """Return charts of the sizes of all groups as SVG by title: numbers and, with intervals, a band."""
        title = translate("Groups by their size")
        names, _, (by_class,) = _count_by_size_class(release.frame, release.histograms_of(0))
        lengths = _LONGEST_BAR * by_class / (by_class.max() or 1)
        rows = list(zip(names, by_class.tolist(), lengths.tolist(), strict=True))
        pictures = {title: render_markup("bars.svg", title=title, rows=rows)}
        if has_intervals(certificate):
            pictures[translate(BAND_TITLE)] = _render_band_chart(_use_stated_interval_ends(release, certificate))
        return pictures

    def list_metadata(self, release: GroupSizeRelease) -> dict[str, object]:
        """Return the number of groups, the top code and the mechanism."""
        groups, top_code = int(release.count_groups(0)[0]), int(release.frame.least_sizes[-1])
        return {"groups": groups, "top_code": top_code, "mechanism": release.plan.mechanism.name}

    open = staticmethod(open_group_sizes)
    measure = staticmethod(measure_plan)
    estimate = staticmethod(estimate_release)

    def list_measurements(self, release: GroupSizeRelease) -> Sequence[tuple[Step, NoisyVector]]:
        """Return each step of a release with its noisy values."""
        return release.measured

    def check_invariants(self, release: GroupSizeRelease) -> Iterator[str]:
        """Yield a message for each negative number of groups and for each sum that breaks the mechanism's guarantee."""
        mechanism, frame = release.plan.mechanism, release.frame
        for level, table in zip(frame.levels, release.histograms, strict=True):
            below = release.sum_child_histograms(level)
            if (table < 0).any():
                yield f"level {level} has a negative number of groups"
            if release.plan.keeps_totals and not np.array_equal(table.sum(axis=1), frame.count_groups(level)):
                yield f"level {level} has an area whose histogram does not sum to its number of groups"
            if mechanism.adds_up and below is not None and not np.array_equal(table, below):
                yield f"level {level} differs from the sum of the level below"

    def make_row(self, release: GroupSizeRelease) -> dict[str, object]:
        """Return the values of a release for its row of the table ``group_size_releases``, by column."""
        return {"groups": int(release.count_groups(0)[0]), "geography": release.frame.geography.digest}

    def list_geographies(self, release: GroupSizeRelease) -> list[Geography]:
        """Return a list with the one geography of a release."""
        return [release.plan.frame.geography]

    def make_tables(self, release: GroupSizeRelease, certificate: Certificate) -> Mapping[str, pa.Table]:
        """Return the rows for the tables of the release database, by table, without the column ``release``."""
        release = _use_stated_interval_ends(release, certificate)
        frames = {"group_sizes": release.histogram, "group_size_measurements": release.measurements}
        if has_intervals(certificate):
            frames |= {"group_size_intervals": release.at_most(), "group_member_intervals": release.members}
        if release.frame.measured:
            frames["group_numbers"] = release.numbers
        return {name: pa.Table.from_pandas(frame, preserve_index=False) for name, frame in frames.items()}


GROUP_SIZES = GroupSizeKind()
