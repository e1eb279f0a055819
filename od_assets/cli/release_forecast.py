"""Forecast the errors of a declared release from public tables only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from od_assets.project import current_project, releases_folder
from od_assets.series.settings import SeriesSettings
from od_core.errors import OdError
from od_core.evaluation.forecast import (
    ALL_SIZES,
    CLASS_NAMES,
    COLUMNS,
    EPSILONS,
    RUNS,
    TOTALS,
    forecast,
    synthetic_table,
)
from od_core.evaluation.known_flows import KnownFlows
from od_core.evaluation.simulation import TOO_WIDE, with_epsilon
from od_core.flows.plan import ReleasePlan
from od_core.flows.publishing.kind import FLOWS
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.budget import exact_fraction
from od_core.privacy.plan import Plan
from od_core.publication.read_back import certificate_of
from od_core.published.opening import published_bundles

_PLACE = [*COLUMNS[:3], "breakdown"]
"""Columns that identify a row; the last one is there only if the release has segments."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """The expected errors of a series at the declared epsilon and at other values of epsilon.

    Attributes:
        release: name of the series.
        table: name of the table that is taken as the true flows.
        is_synthetic: whether that table is synthetic; otherwise it is published.
        source: sentences on that table and its consequences for the forecast.
        runs: number of simulated releases at each epsilon.
        errors: table with the columns epsilon, rho and declared, followed by the columns of
            :func:`od_core.evaluation.forecast.forecast`.
    """

    release: str
    table: str
    is_synthetic: bool
    source: str
    runs: int
    errors: pd.DataFrame

    def facts(self) -> dict[str, Any]:
        """Return the forecast as a JSON-ready dictionary."""
        return {
            "release": self.release,
            "table": self.table,
            "is_synthetic": self.is_synthetic,
            "source": self.source,
            "runs": self.runs,
            "forecast": json.loads(self.errors.to_json(orient="records", double_precision=15)),
        }

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return tables to print, by title: errors by level, by number of trips of a flow, and by epsilon."""
        declared, whole = self.errors["declared"], self.errors["size_class"] == ALL_SIZES
        place = [name for name in _PLACE if name in self.errors]
        by_level = self.errors[declared & whole][[*place, *COLUMNS[4:]]]
        by_size = _by(self.errors[declared & ~whole], "size_class")
        against = _by(self.errors[whole], "epsilon").rename(
            columns=lambda name: f"epsilon {name:g}" if name not in _PLACE else name
        )
        return {
            f"{self.release}: expected errors over all cells of a level": by_level,
            "Mean absolute error by the number of trips of a cell": by_size[
                [*place, *(name for name in CLASS_NAMES if name in by_size)]
            ],
            "Mean absolute error over all cells, by epsilon": against,
        }

    def write(self, folder: Path) -> None:
        """Write the table to ``forecast.csv`` and a figure to ``forecast.svg``; create the folder if needed."""
        from od_core.evaluation.figures import draw_forecast

        folder.mkdir(parents=True, exist_ok=True)
        self.errors.to_csv(folder / "forecast.csv", index=False, lineterminator="\r\n")
        totals = self.errors[self.errors["breakdown"] == TOTALS] if "breakdown" in self.errors else self.errors
        draw_forecast(totals, folder / "forecast.svg")


def forecast_of(
    settings: SeriesSettings[Any, Any], plan: Plan, epsilons: Sequence[str] | None = None, runs: int | None = None
) -> Forecast:
    """Return the forecast of a declared plan. It reads no record, true count or ledger, and spends nothing.

    Args:
        settings: settings of the series.
        plan: plan of one period.
        epsilons: further values of epsilon; None takes :data:`od_core.evaluation.forecast.EPSILONS`, except those
            whose noise is too wide to draw.
        runs: see :func:`od_core.evaluation.forecast.forecast`.

    Raises:
        OdError: the series does not release flows; or as in :func:`od_core.evaluation.forecast.forecast`.
    """
    if not isinstance(plan, ReleasePlan):
        raise OdError(
            "OD-FORECAST-KIND",
            f"{settings.name} is a release of {settings.kind.contents}; forecasts are available only for flows",
            next_step="see docs/explanation/group-sizes.md or docs/explanation/stops.md for measured errors",
        )
    key, table = public_table(settings, plan)
    runs = RUNS if runs is None else runs
    declared = plan.spent.epsilon if plan.budget.epsilon is None else plan.budget.epsilon
    made, left_out = [_at(plan, float(declared), table, runs, declared=True)], []
    for epsilon in epsilons or EPSILONS:
        exact = exact_fraction("epsilon", epsilon)
        if exact == plan.budget.epsilon:
            continue
        try:
            made.append(_at(with_epsilon(plan, exact), float(exact), table, runs, declared=False))
        except OdError as error:
            if epsilons or error.code != TOO_WIDE:
                raise
            left_out.append(epsilon)
    errors = pd.concat(made).sort_values("epsilon", kind="stable", ignore_index=True)
    source = _source(settings, key, table)
    if plan.segments is not None:
        source += " The trips are divided among the categories of a breakdown at random, with equal chances."
    if left_out:
        source += f" Left out, because the noise is wider than the backend draws: epsilon {', '.join(left_out)}."
    return Forecast(settings.name, table.name, key is None, source, runs, errors)


def public_table(settings: SeriesSettings[Any, Any], plan: ReleasePlan) -> tuple[ReleaseKey | None, KnownFlows]:
    """Return the newest published flows of the data set over the areas of the plan, or else a synthetic table.

    Releases of the series itself are preferred to those of other series. Releases without trips are skipped, because
    they do not show the errors of flows.

    Returns:
        The key of the release (None for a synthetic table) and the table.
    """
    origin, destination, found = plan.tree.origin, plan.tree.destination, []
    for key, folder in published_bundles(releases_folder(current_project().var)).items():
        try:
            certificate = certificate_of(folder)
        except OdError:
            continue  # verification reports faults of bundles
        is_of_data_set = (certificate.get("format"), certificate.get("data_set")) == (
            FLOWS.format,
            settings.domain.name,
        )
        if not is_of_data_set or certificate["contents"]["trips"] == 0:
            continue
        if certificate["geographies"] == {"origin": origin.digest, "destination": destination.digest}:
            found.append((key.release == settings.name, key.period, key.revision, key, folder))
    if not found:
        return None, synthetic_table(origin, destination)
    key, folder = max(found)[-2:]
    flows = FLOWS.open(folder).flows
    return key, KnownFlows.from_frame(str(key), "public", flows[flows["trips"] > 0], origin, destination)


def _source(settings: SeriesSettings[Any, Any], key: ReleaseKey | None, table: KnownFlows) -> str:
    """Return sentences on the table that is taken as the true flows, and its consequences for the forecast."""
    spends = "No budget was spent, and no confidential data was read."
    if key is not None:
        return (
            f"The published flows of {key} serve as the true flows. They contain noise, so the number of cells of each"
            " size is that of a noisy table, and the errors over all cells of the finest levels are somewhat too large."
            f" {spends}"
        )
    is_one = table.truth.tree.origin.digest == table.truth.tree.destination.digest
    made_from = "by a gravity model on the list" if is_one else "with random sizes of zones on the lists"
    return (
        f"Data set {settings.domain.name!r} has no published release of these areas, so a synthetic table serves as the"
        f" true flows: {table.trips.total:,} trips on {len(table.trips.rank):,} pairs of zones, generated"
        f" {made_from} of areas alone. The errors of cells with trips are similar for any table. The errors of cells"
        f" without trips, the number of cells of each size and the errors over all cells depend on that table. {spends}"
    )


def _at(plan: ReleasePlan, epsilon: float, table: KnownFlows, runs: int, *, declared: bool) -> pd.DataFrame:
    found = forecast(plan, table, runs)
    for place, (name, value) in enumerate(
        {"epsilon": epsilon, "rho": float(plan.charge.as_rho), "declared": declared}.items()
    ):
        found.insert(place, name, value)
    return found


def _by(errors: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return mean absolute errors with one row per level and one column per value of ``column``."""
    place = [name for name in _PLACE if name in errors]
    wide = errors.pivot_table(index=place, columns=column, values="mean_abs_error", sort=False)
    return wide.reset_index().rename_axis(columns=None)
