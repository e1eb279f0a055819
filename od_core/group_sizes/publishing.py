"""Stage and publish releases of group sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from markupsafe import Markup

from od_core.geography.geography import Geography
from od_core.group_sizes.groups import Frame, GroupSizes
from od_core.group_sizes.mechanisms import MECHANISMS
from od_core.group_sizes.plan import MISSED, GroupSizePlan, LaplaceStep, TopCodeEstimate, margin, plan_group_sizes
from od_core.group_sizes.release import GroupSizeRelease, cells, estimated, frame_of, measure_plan
from od_core.group_sizes.report import group_size_pictures, group_size_report
from od_core.ledger.measurements import Measurements, NoisyVector
from od_core.ledger.staged_files import StagedTable
from od_core.noise.sources import NoiseSource
from od_core.privacy.accounting import float_above, text_above
from od_core.privacy.budget import Budget, Spent
from od_core.privacy.neighbours import Acceptance
from od_core.privacy.plan import Step
from od_core.privacy.unit import PrivacyUnit
from od_core.publication import columns
from od_core.publication.certificate import Certificate, has_intervals
from od_core.publication.columns import CONFIDENCE
from od_core.publication.guarantee import pure_sentences
from od_core.publication.kind import ReleaseContext, TableKind
from od_core.publication.read_back import certificate_and_tables, changed, refuse_other_plan, stated_spent
from od_core.publication.tables import BundleFile, areas_files, areas_table, public_files, published_geography

_CELLS = pa.schema([("level", pa.int32()), ("area", pa.int32()), ("size", pa.int64()), ("groups", pa.int64())])


class StagedGroupSizes(StagedTable[GroupSizePlan, GroupSizes, GroupSizeRelease]):
    """The stored files of one release: the true sizes, and the unpublished histograms.

    The table of histograms identifies levels and areas by their numbers.
    """

    counted_name = "group_sizes"
    table_name = "histograms"

    def counted(self, _plan: GroupSizePlan) -> GroupSizes:
        """Read the true sizes of all groups; see :meth:`StagedTable.counted`."""
        table = pq.read_table(self.path(self.counted_name))
        return GroupSizes(np.array(table["area"]), np.array(table["size"]))

    def counted_table(self, counted: GroupSizes) -> pa.Table:
        """Return a table with the area and size of each group; see :meth:`StagedTable.counted_table`."""
        return pa.table({"area": counted.area, "size": counted.size})

    def table_of(self, release: GroupSizeRelease) -> pa.Table:
        """Return a table of the histogram entries above 0, top level first; see :meth:`StagedTable.table_of`."""
        batches = []
        for level, table in zip(release.frame.levels, release.histograms, strict=True):
            area, size = np.nonzero(table)
            cells = [np.full(len(area), level), area, size, table[area, size]]
            batches.append(pa.record_batch([pa.array(c, f.type) for c, f in zip(cells, _CELLS, strict=True)], _CELLS))
        return pa.Table.from_batches(batches, _CELLS)


class GroupSizeKind(TableKind[GroupSizePlan, GroupSizes, GroupSizeRelease]):
    """The functions that certify, write, store, read and verify releases of group-size tables.

    Whenever a bundle is read, the table is estimated again from the published noisy measurements.
    """

    contents = "group sizes"
    format = "od-release group-size certificate 1"
    schema = "database/group_sizes.sql"
    facts_table = "group_size_releases"
    staging = StagedGroupSizes

    def facts(self, release: GroupSizeRelease) -> dict[str, Any]:
        """Return the facts of a certificate that only group-size tables have, such as levels and invariants."""
        plan, frame = release.plan, release.frame
        return {
            "contents": {"groups": int(frame.groups.sum()), "areas": len(frame.groups), "top_code": frame.top_code},
            "interval": str(CONFIDENCE),
            "levels": [
                {
                    "level": step.level,
                    "area_level": frame.geography.level_names[step.level],
                    "sensitivity": step.sensitivity,
                    "scale": float_above(step.scale),
                    "scale_exact": str(step.scale),
                    "epsilon_exact": str(step.epsilon),
                    "measured_cells": len(noisy),
                }
                for step, noisy in release.measured
            ],
            "invariants": [
                "the list of groups, and with it the number of groups of every area",
                *(["the top code"] if plan.top_code_estimate is None else []),
            ],
            "promises": {"adds_up": plan.mechanism.adds_up, "keeps_totals": plan.mechanism.keeps_totals},
            "geographies": {"areas": frame.geography.digest},
            "geography_versions": {"areas": frame.geography.version},
        }

    def guarantee(self, plan: GroupSizePlan, spent: Spent) -> dict[str, str]:
        """Return the sentences of a plan's guarantee by name; see :meth:`od_core.publication.kind.Kind.guarantee`."""
        public = "which groups there are, and in which areas"
        sentences = pure_sentences(plan.unit, spent, plan.acceptance, public=public)
        return sentences | {"input": sentences["input"] + _top_coded(plan)}

    def summary(self, release: GroupSizeRelease) -> pd.DataFrame:
        """Return a table with one row per level.

        A row has the numbers of areas, groups and released members, the largest released size, and the noise scale if
        the level was measured.
        """
        frame, scales = release.frame, {step.level: step.scale for step in release.plan.steps}
        sizes = np.arange(frame.top_code + 1)
        return pd.DataFrame(
            [
                {
                    "level": frame.geography.levels[level - 1],
                    "areas": len(table),
                    "groups": int(table.sum()),
                    "largest_size": int(sizes[table.any(axis=0)].max(initial=0)),
                    "members": int(table.sum(axis=0) @ sizes),
                    "noise_scale": "-" if level not in scales else f"{float_above(scales[level]):.6g}",
                }
                for level, table in zip(frame.levels, release.histograms, strict=True)
            ]
        )

    def files(self, release: GroupSizeRelease, certificate: Certificate) -> list[BundleFile]:
        """Return the files of the histograms, the intervals, the numbers of groups, the measurements and the areas."""
        frame = release.frame
        return [
            *public_files("histogram", release.histogram, columns.HISTOGRAM, "Groups of each size, at every level."),
            *(_interval_files(release) if has_intervals(certificate) else []),
            *public_files(
                "groups_by_area",
                groups_by_area(frame),
                columns.GROUPS_BY_AREA,
                "The public number of groups of every zone.",
            ),
            *public_files(
                "noisy_measurements",
                release.measurements,
                columns.GROUP_MEASUREMENTS,
                "The noisy measurements, for users who make their own estimates.",
            ),
            *areas_files(areas_table(frame.geography)),
        ]

    def notes(self, _release: GroupSizeRelease, certificate: Certificate) -> list[str]:
        """Return the codebook's notes on the top code and on the intervals."""
        top_code = certificate["contents"]["top_code"]
        return [
            f"The top code is {top_code:,}: groups of more members count as groups of {top_code:,}.",
            *([_INTERVALS] if has_intervals(certificate) else []),
        ]

    def report(
        self, release: GroupSizeRelease, certificate: Certificate, context: ReleaseContext[GroupSizeRelease]
    ) -> str:
        """Return the report of a release as HTML; see :meth:`od_core.publication.kind.Kind.report`."""
        return group_size_report(release, certificate, context)

    def pictures(self, release: GroupSizeRelease, certificate: Certificate) -> Mapping[str, Markup]:
        """Return the report's bar chart of group sizes, as SVG by title."""
        return group_size_pictures(release, certificate)

    def open(self, bundle: Path) -> GroupSizeRelease:
        """Return the release in a bundle's folder; see :func:`open_group_sizes`."""
        return open_group_sizes(bundle)

    def measure(
        self, plan: GroupSizePlan, counted: GroupSizes, noise: NoiseSource, measurements: Measurements
    ) -> Sequence[tuple[Step, NoisyVector]]:
        """Return each step of a plan with its noisy values; see :func:`od_core.group_sizes.release.measure_plan`."""
        return measure_plan(plan, counted, noise, measurements)

    def estimate(
        self,
        plan: GroupSizePlan,
        measured: Sequence[tuple[LaplaceStep, NoisyVector]],
        *,
        spent: Spent,
        noise: str | None,
    ) -> GroupSizeRelease:
        """Return the release that the plan's mechanism estimates from the noisy values of all steps."""
        return estimated(plan, measured, spent=spent, noise=noise)

    def measured(self, release: GroupSizeRelease) -> Sequence[tuple[Step, NoisyVector]]:
        """Return each step of a release with its noisy values."""
        return release.measured

    def invariants(self, release: GroupSizeRelease) -> Iterator[str]:
        """Yield a message for each negative number of groups and for each sum that breaks the mechanism's guarantee."""
        mechanism, frame = release.plan.mechanism, release.frame
        for level, table in zip(frame.levels, release.histograms, strict=True):
            below = release.below(level)
            if (table < 0).any():
                yield f"level {level} has a negative number of groups"
            if mechanism.keeps_totals and not np.array_equal(table.sum(axis=1), frame.totals(level)):
                yield f"level {level} has an area whose histogram does not sum to its number of groups"
            if mechanism.adds_up and below is not None and not np.array_equal(table, below):
                yield f"level {level} differs from the sum of the level below"

    def row(self, release: GroupSizeRelease) -> dict[str, Any]:
        """Return the values for the columns ``groups`` and ``geography`` of the table ``group_size_releases``."""
        frame = release.plan.frame
        return {"groups": int(frame.groups.sum()), "geography": frame.geography.digest}

    def geographies(self, release: GroupSizeRelease) -> list[Geography]:
        """Return a list with the one geography of a release."""
        return [release.plan.frame.geography]

    def tables(self, release: GroupSizeRelease, certificate: Certificate) -> Mapping[str, pa.Table]:
        """Return the rows for the tables of the release database, by table, without the column ``release``."""
        frames = {"group_sizes": release.histogram, "group_size_measurements": release.measurements}
        if has_intervals(certificate):
            frames |= {"group_size_intervals": release.at_most(), "group_member_intervals": release.members}
        return {name: pa.Table.from_pandas(frame, preserve_index=False) for name, frame in frames.items()}


GROUP_SIZES = GroupSizeKind()

_INTERVALS = (
    "The intervals in `cumulative` and `members_by_area` follow from the noisy measurements alone. They were widened"
    " where they did not contain the released number."
)


def _interval_files(release: GroupSizeRelease) -> list[BundleFile]:
    """Return the files of the groups of at most each size, and of the members of every area, with their intervals."""
    return [
        *public_files(
            "cumulative",
            release.at_most(),
            columns.CUMULATIVE,
            "Groups of at most each size, at every level, with their intervals.",
        ),
        *public_files(
            "members_by_area", release.members, columns.MEMBERS, "Members of every area, with their intervals."
        ),
    ]


def _top_coded(plan: GroupSizePlan) -> str:
    """Return sentences on how groups above the top code are counted and how an estimated top code was found."""
    if plan.top_code_estimate is None:
        return f" Groups of more members than {plan.frame.top_code:,} count as groups of as many."
    step, most = plan.steps[0], plan.top_code_estimate.most
    return (
        " Groups of more members than the top code, which stands among the contents, count as groups of that many. It"
        " is estimated: it is a noisy measurement of the largest group, one of those that are published and charged"
        f" (epsilon {text_above(step.epsilon)} of the whole), with {margin(step.scale):,} added, and kept"
        f" between 1 and {most:,}. A largest group of up to {most:,} members is above it with a probability of at most"
        f" {MISSED}."
    )


def groups_by_area(frame: Frame) -> pd.DataFrame:
    """Return a table of the public number of groups of every leaf area, with the columns area and groups."""
    return pd.DataFrame({"area": list(frame.geography.zones), "groups": frame.groups})


def open_group_sizes(bundle: str | Path) -> GroupSizeRelease:
    """Read a published bundle of a group-size table, and return its release.

    The table is estimated again from the noisy measurements in the bundle, and compared with the published histograms.

    Raises:
        OdError: the folder is not a bundle of a group-size table, or its files do not match its certificate.
    """
    names = ("areas", "groups_by_area", "noisy_measurements", "histogram")
    stated, (areas, groups, measurements, histogram) = certificate_and_tables(bundle, names)
    plan = _plan(stated["plan"], areas, groups, stated.get("geography_versions", {}).get("areas"))
    level_names = plan.frame.geography.level_names
    measured: list[tuple[LaplaceStep, NoisyVector]] = []
    for step in plan.steps:
        noisy = measurements.loc[measurements["level"] == level_names[step.level], "noisy"].to_numpy(dtype=np.int64)
        if len(noisy) != cells(frame_of(plan, measured), plan.mechanism.query, step.level):
            raise changed("noisy measurements")
        measured.append((step, NoisyVector.in_memory([noisy])))
    release = estimated(plan, measured, spent=stated_spent(plan, stated), noise=stated["noise"])
    if not release.histogram.equals(histogram.astype(release.histogram.dtypes)):
        raise changed("histogram")
    return release


def _plan(facts: dict[str, Any], areas: pd.DataFrame, groups: pd.DataFrame, version: str | None) -> GroupSizePlan:
    geography = published_geography(areas, facts["geography"], facts.get("unknown_zone"), version)
    top_code = facts["top_code"]
    per_area = groups.set_index("area")["groups"].reindex(list(geography.zones)).to_numpy(dtype=np.int64)
    plan = plan_group_sizes(
        geography,
        per_area,
        unit=PrivacyUnit(facts["unit"], facts["neighbours"]),
        budget=Budget(facts["epsilon"]),
        mechanism=MECHANISMS.make(facts["mechanism"], **facts["mechanism_options"]),
        top_code=TopCodeEstimate.from_facts(top_code) if isinstance(top_code, dict) else top_code,
        acceptance=Acceptance.from_facts(facts["acceptance"]),
    )
    refuse_other_plan(plan, facts)
    return plan
