"""Forecast the errors of a declared release from public tables only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from od_assets.cli.public_tables import public_table, source_of
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
)
from od_core.evaluation.known_flows import KnownFlows
from od_core.evaluation.simulation import TOO_WIDE, with_epsilon
from od_core.flows.plan import ReleasePlan
from od_core.privacy.budget import exact_fraction
from od_core.privacy.plan import Plan

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
    source = source_of(settings, key, table)
    if plan.segments is not None:
        source += " The trips are divided among the categories of a breakdown at random, with equal chances."
    if left_out:
        source += f" Left out, because the noise is wider than the backend draws: epsilon {', '.join(left_out)}."
    return Forecast(settings.name, table.name, key is None, source, runs, errors)


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
