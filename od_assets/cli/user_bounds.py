"""Print what bounds of a user's trips would cut and how large the errors would be, for ``od-release plan --bounds``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from od_assets.cli.declare import as_mapping, as_number
from od_assets.cli.printing import print_table, text
from od_assets.cli.target_plan import plan_of_flows, public_table
from od_assets.series.series import Series
from od_assets.terminal import console, print_json
from od_core import OdError, Plan, PrivacyUnit
from od_core.evaluation.forecast import RUNS, UserTrips, bound_errors, described_users, usual_bounds, with_bounds


def bounds_of(
    series: Series[Any, Any], plan: Plan, users: list[str], table: str | None, bounds: list[str], runs: int | None
) -> dict[str, Any]:
    """Return the errors of a series with some bounds, and the best ones. Reads no record, and spends nothing.

    For the texts of ``users``, see :func:`described_users`; those of ``bounds`` are such as ``m=10,c=1``.

    Raises:
        OdError: the series does not release flows of users, or not by measuring every level; an option is refused; or
            the noise is too large for simulations.
    """
    plan = plan_of_flows(series, plan, "bounds of users' trips", "choose max_trips by od-release plan")
    if plan.unit.kind == "trip" or plan.has_threshold:
        message = "bounds of trips are compared for units of users, and mechanisms that measure every level"
        raise OdError("OD-BOUNDS-UNIT", message, next_step="declare unit user, user_period or user_year")
    if not users or (runs is not None and runs < 1):
        step = "give --users, as in --users '60: 2x9 4x1', and at least one run"
        raise OdError("OD-BOUNDS-USERS", "it is not stated how users travel, or there are no runs", next_step=step)
    known, source = public_table(series, plan, table)
    trips = UserTrips.drawn(known, plan, list(map(described_users, users)))
    periods = len(series.domain.periods_of_year(series.periods.first)) if plan.unit.max_trips_year else 1
    rows = [
        bound_errors(with_bounds(plan, unit, periods), trips, trips.counted_by(unit, periods), runs or RUNS)
        for unit in ([_unit(plan.unit, each) for each in bounds] or usual_bounds(plan.unit, periods))
    ]
    return {
        **{"release": series.name, "source": f"{source} {text('bounds.drawn')}", "periods": periods},
        **{"users": int(trips.user.max()) + 1, "trips": len(trips.rank), "levels": plan.tree.level_names},
        **{"bounds": rows, "best": _best(rows, "error")},
        "best_of_people": _best([row for row in rows if row["c"] == 1], "error_of_counted"),
    }


def _best(rows: list[dict[str, Any]], figure: str) -> dict[str, Any] | None:
    return min(rows, key=lambda row: (round(row[figure][-1], 2), row["cut"]), default=None)


def print_bounds(found: dict[str, Any], *, as_json: bool) -> None:
    """Print the result of :func:`bounds_of`."""
    advice = text("bounds.advice", **found)
    if as_json:
        print_json(found | {"advice": advice})
        return
    print_table("bounds", found["bounds"])
    for sentence in (text("bounds.columns", **found), found["source"], f"\n{advice}"):
        console.print(sentence, soft_wrap=True)


def _unit(unit: PrivacyUnit, stated: str) -> PrivacyUnit:
    """Return a unit with the stated bounds. Without c there is no pair cap; m and M are the declared ones."""
    given = {name: as_number(number) for name, number in as_mapping(stated).items()}
    if not given.keys() <= {"m", "c", "M"}:
        raise OdError("OD-BOUNDS-GRID", f"{stated!r} are no bounds", next_step="give, for example, --bound m=10,c=1")
    m, most = given.get("m", unit.max_trips), given.get("M", unit.max_trips_year)
    return replace(unit, max_trips=m, max_trips_pair=given.get("c"), max_trips_year=most)  # type: ignore[arg-type]  # it checks
