"""Publish group-size tables: certificate, bundle, release database, and reading them back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from od_core.errors import OdError
from od_core.flows.publishing.read_bundle import geography_of
from od_core.group_sizes.groups import Frame
from od_core.group_sizes.mechanisms import mechanism_named
from od_core.group_sizes.plan import GroupSizePlan, LaplaceStep, plan_group_sizes
from od_core.group_sizes.release import GroupSizeRelease, cells, estimated, frame_of
from od_core.group_sizes.report import group_size_pictures, group_size_report
from od_core.group_sizes.top_code import MISSED, TopCodeEstimate, margin
from od_core.ledger.measurements import NoisyVector
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.accounting import float_above, text_above
from od_core.privacy.budget import Budget, Spent
from od_core.privacy.neighbours import Acceptance
from od_core.privacy.unit import PrivacyUnit
from od_core.publication import columns
from od_core.publication.bundle_integrity import CERTIFICATE
from od_core.publication.certificate import pure_sentences
from od_core.publication.database import Contents, differing_entry, differing_tables, release_facts, store
from od_core.publication.kind import BundleFile, Kind, Look
from od_core.publication.tables import areas_files, areas_table, public_files

GROUPS_INVARIANT = "the list of groups, and with it the number of groups of every area"


def group_size_facts(release: GroupSizeRelease) -> dict[str, Any]:
    """Return the facts of a certificate that only group-size tables have."""
    plan, frame = release.plan, release.frame
    return {
        "contents": {"groups": int(frame.groups.sum()), "areas": len(frame.groups), "top_code": frame.top_code},
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
        "invariants": [GROUPS_INVARIANT, *(["the top code"] if plan.top_code_estimate is None else [])],
        "promises": {"adds_up": plan.mechanism.adds_up, "keeps_totals": plan.mechanism.keeps_totals},
        "geographies": {"areas": frame.geography.digest},
        "geography_versions": {"areas": frame.geography.version},
    }


def group_size_sentences(plan: GroupSizePlan, spent: Spent) -> dict[str, str]:
    """Return what is protected, against whom, and what is not, in sentences whose numbers are rounded up."""
    public = "which groups there are, and in which areas"
    sentences = pure_sentences(plan.unit, spent, plan.acceptance, public=public)
    return sentences | {"input": sentences["input"] + _top_coded(plan)}


def _top_coded(plan: GroupSizePlan) -> str:
    """Return how large groups are counted and, if the top code is estimated, how it was found."""
    if plan.top_code_estimate is None:
        return f" Groups of more members than {plan.frame.top_code:,} count as groups of as many."
    step, most = plan.steps[0], plan.top_code_estimate.most
    return (
        " Groups of more members than the top code, which stands among the contents, count as groups of as many. It is"
        " estimated: it is a noisy measurement of the largest group, one of those that are published and"
        f" charged (epsilon {text_above(step.epsilon)} of the whole), with {margin(step.scale):,} added, and kept"
        f" between 1 and {most:,}. A largest group of up to {most:,} members is above it with a probability of at most"
        f" {MISSED}."
    )


def group_size_files(release: GroupSizeRelease, _certificate: dict[str, Any]) -> list[BundleFile]:
    """Return the files of the histograms, of the measurements, of the public numbers of groups, and of the areas."""
    frame = release.frame
    return [
        *public_files("histogram", release.histogram, columns.HISTOGRAM, "Groups of each size, at every level."),
        *public_files(
            "groups_by_area", groups_by_area(frame), columns.GROUPS_BY_AREA, "Groups of every zone, which are public."
        ),
        *public_files(
            "noisy_measurements",
            release.measurements,
            columns.GROUP_MEASUREMENTS,
            "What was measured, with its noise: for those who make their own estimates.",
        ),
        *areas_files(areas_table(frame.geography)),
    ]


def group_size_notes(_release: GroupSizeRelease, certificate: dict[str, Any]) -> list[str]:
    """Return what a user of the files must know, apart from their columns."""
    top_code = certificate["contents"]["top_code"]
    return [f"The top code is {top_code:,}: groups of more members count as groups of {top_code:,}."]


def groups_by_area(frame: Frame) -> pd.DataFrame:
    """Return the public number of groups of every leaf area: area, groups."""
    return pd.DataFrame({"area": list(frame.geography.zones), "groups": frame.groups})


def open_group_sizes(bundle: str | Path) -> GroupSizeRelease:
    """Open a published group-size table, which is estimated again from the noisy measurements in its bundle.

    Raises:
        OdError: The folder is not a bundle of such a table, or its files do not fit its certificate.
    """
    folder = Path(bundle)
    try:
        stated = json.loads((folder / CERTIFICATE).read_text(encoding="utf-8"))
        names = ("areas", "groups_by_area", "noisy_measurements", "histogram")
        areas, groups, measurements, histogram = (pd.read_parquet(folder / f"{name}.parquet") for name in names)
    except (OSError, ValueError):
        raise OdError(
            "OD-RELEASE-ABSENT",
            f"{folder.name} is not a whole bundle of a group-size table",
            next_step="name a published release",
        ) from None
    plan = _plan(stated["plan"], areas, groups, stated.get("geography_versions", {}).get("areas"))
    level_names = plan.frame.geography.level_names
    measured: list[tuple[LaplaceStep, NoisyVector]] = []
    for step in plan.steps:
        noisy = measurements.loc[measurements["level"] == level_names[step.level], "noisy"].to_numpy(dtype=np.int64)
        if len(noisy) != cells(frame_of(plan, measured), plan.mechanism.query, step.level):
            raise _changed("noisy measurements")
        measured.append((step, NoisyVector.in_memory([noisy])))
    levels = tuple(Fraction(rho) for rho in stated["spent"]["rho_by_level_exact"])
    release = estimated(plan, measured, spent=plan.spent_on(levels), noise=stated["noise"])
    if not release.histogram.equals(histogram.astype(release.histogram.dtypes)):
        raise _changed("histogram")
    return release


def _plan(facts: dict[str, Any], areas: pd.DataFrame, groups: pd.DataFrame, version: str | None) -> GroupSizePlan:
    geography = geography_of(areas, facts["geography"], facts.get("unknown_zone"), version)
    top_code = facts["top_code"]
    per_area = groups.set_index("area")["groups"].reindex(list(geography.zones)).to_numpy(dtype=np.int64)
    plan = plan_group_sizes(
        geography,
        per_area,
        unit=PrivacyUnit(facts["unit"], facts["neighbours"]),
        budget=Budget(facts["epsilon"]),
        mechanism=mechanism_named(facts["mechanism"], **facts["mechanism_options"]),
        top_code=TopCodeEstimate.from_facts(top_code) if isinstance(top_code, dict) else top_code,
        acceptance=Acceptance.from_facts(facts["acceptance"]),
    )
    if json.loads(json.dumps(plan.facts())) != facts:
        raise _changed("plan")
    return plan


def _changed(what: str) -> OdError:
    return OdError(
        "OD-BUNDLE-CHANGED",
        f"the published {what} are not what the certificate and the noisy measurements give",
        next_step="restore the release, or read it with the software that the certificate names",
    )


# The release database.


_SCHEMA = """
CREATE TABLE IF NOT EXISTS group_size_releases (
    release VARCHAR PRIMARY KEY, series VARCHAR, period VARCHAR, revision BIGINT, mechanism VARCHAR, unit VARCHAR,
    neighbours VARCHAR, epsilon DOUBLE, groups BIGINT, geography VARCHAR, measured_at VARCHAR, certificate VARCHAR);
CREATE TABLE IF NOT EXISTS group_sizes (release VARCHAR, level VARCHAR, area VARCHAR, size BIGINT, groups BIGINT);
CREATE TABLE IF NOT EXISTS group_size_measurements (
    release VARCHAR, level VARCHAR, area VARCHAR, position BIGINT, noisy BIGINT, scale DOUBLE);
"""


def store_group_sizes(database: Path, release: GroupSizeRelease, key: ReleaseKey, certificate: dict[str, Any]) -> None:
    """Add a checked table to the database, in one transaction. Adding the same release again changes nothing.

    Raises:
        OdError: as :func:`od_core.publication.database.store`.
    """
    store(
        database,
        key,
        Contents(
            schema=_SCHEMA,
            facts_table="group_size_releases",
            facts=_row(release, key, certificate),
            geographies=(release.plan.frame.geography,),
            tables=_tables(release),
            checks=certificate["checks"],
        ),
    )


def differing_group_sizes(
    database: Path, release: GroupSizeRelease, key: ReleaseKey, certificate: dict[str, Any]
) -> Iterator[str]:
    """Yield how the database differs from the bundle of a table."""
    row = _row(release, key, certificate)
    areas = [release.plan.frame.geography]
    yield from differing_entry(database, key, "group_size_releases", row, certificate["checks"], areas)
    yield from (f"it holds other {table}" for table in differing_tables(database, key, _tables(release)))


def _tables(release: GroupSizeRelease) -> dict[str, pa.Table]:
    frames: dict[str, pd.DataFrame] = {
        "group_sizes": release.histogram,
        "group_size_measurements": release.measurements,
    }
    return {name: pa.Table.from_pandas(frame, preserve_index=False) for name, frame in frames.items()}


def _row(release: GroupSizeRelease, key: ReleaseKey, certificate: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a release in the table of releases."""
    frame = release.plan.frame
    return {
        **release_facts(release, key, certificate),
        "groups": int(frame.groups.sum()),
        "geography": frame.geography.digest,
    }


# The kind of release.


def _made_anew(public: GroupSizeRelease, _stated: dict[str, Any]) -> tuple[GroupSizeRelease, Mapping[str, Look]]:
    """Return the release unchanged: reading a bundle estimates its table again, and refuses one that differs."""
    return public, {"invariants": lambda: _invariants(public)}


def _invariants(public: GroupSizeRelease) -> Iterator[str]:
    """Check that no number is below 0, and check the sums that the mechanism guarantees."""
    mechanism, frame = public.plan.mechanism, public.frame
    for level, table in zip(frame.levels, public.histograms, strict=True):
        below = public.below(level)
        if (table < 0).any():
            yield f"level {level} has a number of groups below 0"
        if mechanism.keeps_totals and not np.array_equal(table.sum(axis=1), frame.totals(level)):
            yield f"level {level} has an area whose groups are not as many as it has"
        if mechanism.adds_up and below is not None and not np.array_equal(table, below):
            yield f"level {level} is not the sum of the level below"


def _summary(release: GroupSizeRelease) -> pd.DataFrame:
    """Return the areas, groups and released members of every level, with the noise of measured levels."""
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


GROUP_SIZES: Kind[GroupSizeRelease] = Kind(
    contents="group sizes",
    format="od-release group-size certificate 1",
    guarantee=group_size_sentences,
    summary=_summary,
    facts=group_size_facts,
    files=group_size_files,
    notes=group_size_notes,
    report=group_size_report,
    pictures=group_size_pictures,
    store=store_group_sizes,
    open=open_group_sizes,
    measured=lambda release: release.measured,
    made_anew=_made_anew,
    stored=differing_group_sizes,
)
