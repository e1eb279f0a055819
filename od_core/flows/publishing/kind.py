"""Define releases of flows as a kind of release, whose levels verification recomputes from the measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from od_core.errors import OdError
from od_core.flows.estimation.intervals import refuse_without_intervals
from od_core.flows.estimation.refinement import refine
from od_core.flows.estimation.top_down import estimate, root_of
from od_core.flows.plan import ReleasePlan
from od_core.flows.publishing.flow_database import differing_facts, store_release
from od_core.flows.publishing.flow_files import flow_files, flow_notes
from od_core.flows.publishing.read_bundle import open_flows
from od_core.flows.publishing.report import flow_pictures, flows_report
from od_core.flows.release import Release
from od_core.geography.align import repeated_levels, repetition_sentence
from od_core.geography.flow_tree import Nodes
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.accounting import float_above
from od_core.privacy.budget import Spent
from od_core.publication.certificate import guarantee_sentences
from od_core.publication.columns import CONFIDENCE
from od_core.publication.kind import Kind, Look


def _facts(release: Release) -> dict[str, Any]:
    """Return the facts of a certificate that only releases of flows have."""
    plan = release.plan
    return {
        "contents": {"flows": len(release.leaves), "trips": int(release.leaves.trips.sum())},
        "interval": _interval(release),
        "levels": [
            {
                "level": m.step.level,
                "origin_level": plan.tree.level_names[m.step.level][0],
                "destination_level": plan.tree.level_names[m.step.level][1],
                "sensitivity_squared": m.step.sensitivity_squared,
                "variance": float_above(m.step.variance),
                "variance_exact": str(m.step.variance),
                "rho": float_above(m.step.rho),
                "rho_exact": str(m.step.rho),
                "public_cells": plan.tree.cells(m.step.level),
                "measured_cells": len(m.noisy),
            }
            for m in release.measured
        ],
        "exact": {"trips": int(release.leaves.trips.sum())} if plan.publishes_total else {},
        "invariants": ["the total number of valid trips, n"] if plan.publishes_total else [],
        "geographies": {"origin": plan.tree.origin.digest, "destination": plan.tree.destination.digest},
        "geography_versions": {"origin": plan.tree.origin.version, "destination": plan.tree.destination.version},
        "repeated_levels": {
            "origin": repeated_levels(plan.tree.origin),
            "destination": repeated_levels(plan.tree.destination),
        },
        "mechanism": {"name": plan.mechanism.name, "options": plan.mechanism.options, "tree": plan.tree.order},
    }


def _guarantee(plan: ReleasePlan, spent: Spent) -> dict[str, str]:
    """Return the guarantee in sentences, and which levels are repeated."""
    public = plan.neighbours.public() if plan.publishes_total else []
    repetition = repetition_sentence(plan.tree)
    levels = {} if repetition is None else {"levels": repetition}
    return guarantee_sentences(plan.neighbours, spent, public) | levels


def _interval(release: Release) -> str | None:
    """Return the confidence of the intervals; None if the mechanism has none, or there would be too many."""
    try:
        refuse_without_intervals(release.plan, max(len(m.noisy) for m in release.measured))
    except OdError:
        return None
    return str(CONFIDENCE)


def _made_anew(public: Release, stated: dict[str, Any]) -> tuple[Release, Mapping[str, Look]]:
    levels = _levels(public, stated)
    rebuilt = replace(public, leaves=levels[-1])
    return rebuilt, {"flows": lambda: _flows(public, rebuilt), "invariants": lambda: _invariants(public, levels)}


def _levels(public: Release, stated: dict[str, Any]) -> list[Nodes]:
    """Recompute the estimates of all levels, root first, from the published measurements."""
    plan = public.plan
    nodes = root_of(plan, stated["contents"]["trips"]) if plan.publishes_total else None
    if plan.mechanism.refines:
        return refine(plan, nodes, public.measured)
    levels = [] if nodes is None else [nodes]
    for measurement in public.measured:
        nodes = estimate(plan, measurement.step, nodes, measurement.noisy)
        levels.append(nodes)
    return levels


def _flows(public: Release, rebuilt: Release) -> Iterator[str]:
    """Check that the published leaves follow from the measurements."""
    for name in ("origin", "destination", "trips"):
        if not np.array_equal(getattr(public.leaves, name), getattr(rebuilt.leaves, name)):
            yield f"the {name} column differs from the result of the measurements"


def _invariants(public: Release, levels: Sequence[Nodes]) -> Iterator[str]:
    """Check that the leaves are integers of at least 1, and that the children of every node sum to it."""
    tree = public.plan.tree
    if np.any(public.leaves.trips < 1):
        yield "a flow is below 1"
    for above, below in pairwise([*levels[:-1], public.leaves]):
        if not tree.sums_agree(above, below):
            yield f"level {below.level} does not sum to the level above"


def _stored(database: Path, public: Release, key: ReleaseKey, stated: dict[str, Any]) -> Iterator[str]:
    """Check that the release database holds the same certificate, facts, plan, charge, flows and measurements."""
    yield from differing_facts(database, public, key, stated)
    stored = open_flows(database, str(key))
    if stored.plan.digest != public.plan.digest or stored.spent != public.spent:
        yield "its plan or charge differs"
    yield from (f"its flows are wrong: {fault}" for fault in _flows(stored, public))
    for there, here in zip(stored.measured, public.measured, strict=True):
        if not np.array_equal(there.noisy.values(), here.noisy.values()):
            yield f"its measurements of level {here.step.level} differ"


def _summary(release: Release) -> pd.DataFrame:
    """Return the public pairs, released flows and noise of every level of the flow tree."""
    plan, rows = release.plan, []
    for level, (origin_level, destination_level) in enumerate(release.levels):
        trips = plan.tree.sums_at(release.leaves, *plan.tree.level_pair(level))[2]
        measured = next((step for step in plan.steps if step.level == level), None)
        rows.append(
            {
                "level": level,
                "origin_level": origin_level,
                "destination_level": destination_level,
                "public_pairs": plan.tree.cells(level),
                "flows": len(trips),
                "noise_standard_deviation": 0.0 if measured is None else round(float(measured.variance) ** 0.5, 3),
            }
        )
    return pd.DataFrame(rows)


FLOWS: Kind[Release] = Kind(
    contents="flows",
    format="od-release certificate 1",
    guarantee=_guarantee,
    summary=_summary,
    facts=_facts,
    files=flow_files,
    notes=flow_notes,
    report=flows_report,
    pictures=flow_pictures,
    store=store_release,
    open=open_flows,
    measured=lambda release: [(measurement.step, measurement.noisy) for measurement in release.measured],
    made_anew=_made_anew,
    stored=_stored,
)
