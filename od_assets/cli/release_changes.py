"""Find the changes between two published releases of flows, for ``od-release compare``."""

import json
from typing import Any

import pandas as pd

from od_assets.resources.folders import Folders
from od_core import OdError, Release, ReleaseKey
from od_core.flows.derived_flows import DerivedFlows
from od_core.flows.publishing.changes import by_other_rule, by_the_bound, changes
from od_core.flows.publishing.flow_tables import labelled
from od_core.publication.certificate import Certificate
from od_core.publication.columns import CONFIDENCE
from od_core.publication.read_back import certificate_of
from od_core.published.opening import bundle_folder, open_bundle


def compared(
    before: str,
    after: str,
    origin_level: str | None = None,
    destination_level: str | None = None,
    segment: str | None = None,
    top: int = 20,
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return the changes between two releases as JSON-ready facts, and the largest ones as a table to print.

    In the table, ``*`` marks changes larger than their uncertainty. Levels that are None are the coarsest ones below
    the whole space. Raises OdError if a release is not published or not of flows, if both are the same, or as
    :func:`od_core.flows.publishing.changes.changes` does.
    """
    (one, old, stated), (other, new, stated_after) = _opened(before), _opened(after)
    if one == other:
        raise OdError(
            "OD-COMPARE-SAME",
            f"both releases are {one}, so there is nothing to compare",
            next_step="name two releases with different periods or revisions",
        )
    tree, note = new.plan.tree, by_the_bound(new.plan.unit.kind) + by_other_rule(stated, stated_after)
    levels = (origin_level or old.plan.tree.origin.levels[0], destination_level or old.plan.tree.destination.levels[0])
    found = changes(old, new, *levels, segment)
    facts = {
        "before": str(one),
        "after": str(other),
        "origin_level": levels[0],
        "destination_level": levels[1],
        "confidence": str(CONFIDENCE),
        "pairs": len(found),
        "significant": int(found["significant"].sum()),
        **({"note": note.strip()} if note else {}),
        "changes": json.loads(found.head(top).to_json(orient="records")),
    }
    numbers = tree.origin.level_number(levels[0]), tree.destination.level_number(levels[1])
    rows = labelled(tree, found.head(top), numbers)
    marks = rows["significant"].map({True: "*", False: ""})
    return facts, rows.drop(columns="significant").assign(**{"": marks})


def _opened(name: str) -> tuple[ReleaseKey, Release, Certificate]:
    """Return the key, the release and its certificate. Raises OdError if the release is absent or not of flows."""
    with bundle_folder(Folders().bundle_named(name)) as folder:
        key, release = open_bundle(folder)
        certificate = certificate_of(folder)
    if isinstance(release, DerivedFlows):
        raise OdError(
            "OD-COMPARE-KIND",
            f"{key} is derived from published releases; two derived tables may share the noise of a release, so only"
            " releases themselves are compared",
            next_step="compare the releases that it is derived from, which its certificate lists as sources",
        )
    if not isinstance(release, Release):
        raise OdError(
            "OD-COMPARE-KIND",
            f"{key} is not a release of flows; only flows can be compared",
            next_step="name two releases of flows",
        )
    return key, release, certificate
