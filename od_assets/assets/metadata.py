"""What may stand in asset metadata: a list of names, so that nothing confidential slips in (spec 6)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import dagster as dg
import pandas as pd

from od_core import Release, ReleasePlan
from od_core.archive.balance import Balance
from od_core.plan import Step
from od_core.privacy.accounting import float_above

ALLOWED = frozenset(
    {
        "areas",
        "bundle",
        "cap_rho",
        "dagster/row_count",
        "delta",
        "destination_level",
        "epsilon",
        "guarantee",
        "largest_flows",
        "left_rho",
        "level",
        "levels",
        "measured_cells",
        "origin_level",
        "public_cells",
        "release",
        "releases",
        "rho",
        "sensitivity_squared",
        "spent_rho",
        "standard_deviation",
        "trips",
        "unit",
        "variance",
        "violations",
    }
)
"""Public facts, noised values, and counts of violations in what is published; never a count of true records."""


def allowed(**metadata: Any) -> dict[str, Any]:
    """The metadata, every name of which must be allowed."""
    names = {name.replace("__", "/"): value for name, value in metadata.items()}
    if not names.keys() <= ALLOWED:
        raise KeyError(f"not allowed as metadata: {sorted(names.keys() - ALLOWED)}")
    return names


def step_metadata(plan: ReleasePlan, step: Step) -> dict[str, Any]:
    """What a level is and costs."""
    origin_level, destination_level = plan.tree.level_names[step.level]
    return allowed(
        level=step.level,
        origin_level=origin_level,
        destination_level=destination_level,
        public_cells=plan.tree.cells(step.level),
        sensitivity_squared=step.sensitivity_squared,
        variance=float_above(step.variance),
        standard_deviation=float_above(step.variance) ** 0.5,
        rho=float_above(step.rho),
    )


def release_metadata(release: Release, balance: Balance) -> dict[str, Any]:
    """What a release promises, has spent, and shows first."""
    return allowed(
        unit=f"{release.plan.unit.kind}, {release.plan.unit.neighbours}",
        epsilon=float_above(release.spent.epsilon),
        delta=float_above(release.spent.delta),
        rho=float_above(release.spent.rho),
        trips=int(release.leaves.trips.sum()),
        cap_rho=float_above(balance.cap),
        spent_rho=float_above(balance.spent),
        left_rho=_float_below(balance.left),
        levels=_table(flows_by_level(release)),
        largest_flows=_table(release.flows.nlargest(10, "trips")),
    )


def flows_by_level(release: Release) -> pd.DataFrame:
    """Public pairs, released flows and noise of every level of the flow tree."""
    plan = release.plan
    rows = []
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


def _table(frame: pd.DataFrame) -> dg.TableMetadataValue:
    """A table with its schema stated, so that it may also be empty."""
    schema = dg.TableSchema(columns=[dg.TableColumn(str(name), str(kind)) for name, kind in frame.dtypes.items()])
    records = [
        dg.TableRecord({str(name): value for name, value in row.items()})
        for row in frame.astype(object).to_dict("records")
    ]
    return dg.MetadataValue.table(records, schema=schema)


def _float_below(value: Fraction) -> float:
    return -float_above(-value)
