"""Choose the periods of a series, and describe the state of their releases. Imports no Dagster."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import TypedDict

from od_assets.resources.arrivals import check_arrival
from od_assets.resources.folders import Folders
from od_assets.series.series import G, P, Series
from od_core import OdError, Plan, ReleaseKey
from od_core.ledger.chain import DRAWING, MEASURED
from od_core.ledger.ledger import Ledger, ReleaseState
from od_core.periods import Period
from od_core.privacy.budget import Measure


class ReleaseStatus(TypedDict):
    """The state of a release as ``od-release status`` lists it; see :func:`read_release_status`."""

    release: str
    state: str
    settings_changed: Sequence[str] | None
    waits_for: str | None
    measured_levels: str
    interrupted_levels: int
    rho_spent: float
    data_set_rho_left: float | None
    data_set_epsilon_left: float | None


def choose_periods(series: Series[P, G], period: str | None, *, every: bool) -> list[str]:
    """Return the ended periods to release: all if ``every``, otherwise the given period, by default the newest.

    Raises OdError if the given period is not an ended period of the series, or no period has ended.
    """
    periods = [ended.text for ended in series.periods.list_ended_periods()]
    if not periods:
        raise _make_period_error(f"no period of {series.name} has ended")
    if every:
        return periods
    if period is not None and period not in periods:
        raise _make_period_error(f"{period!r} is not an ended period of {series.name} ({periods[0]} to {periods[-1]})")
    return [period or periods[-1]]


def refuse_without_file(series: Series[P, G], period: str) -> None:
    """Raise OdError if the newest ended period, ``period``, has no file yet; name the newest period that has one.

    Nothing is raised if the release has begun, since its records are copied already.
    """
    folders = Folders()
    if (folders.confidential.path / series.key(period).folder).exists():
        return
    arrivals = [check_arrival(series, ended) for ended in reversed(series.periods.list_ended_periods())]
    if arrivals[0].waits is None or arrivals[0].changed is not None:
        return
    newest = next((arrival.key.period for arrival in arrivals if arrival.changed is not None), None)
    step = "see trips.files in its declaration" if newest is None else f"release that one: --period {newest}"
    others = "no period has a file" if newest is None else f"the newest period that has a file is {newest}"
    raise OdError("OD-FILE-ABSENT", f"{series.name} {period}: {arrivals[0].waits}; {others}", next_step=step)


def choose_period_to_plan(series: Series[P, G], period: str | None) -> str:
    """Return the period to plan for: the given period, or by default the newest ended one.

    A plan needs no records. So if no period has ended yet, the first period is allowed and is the default. Raises
    OdError as :func:`choose_periods` does.
    """
    periods = series.periods
    first = periods.first.text
    if period in (None, first) and not periods.list_ended_periods():
        return first
    return choose_periods(series, period, every=False)[0]


def list_release_statuses(
    declared: Sequence[Series[P, G]], ledger: Ledger, states: Mapping[str, ReleaseState]
) -> list[ReleaseStatus]:
    """Return the :func:`read_release_status` of every ended period of some series.

    The state ``waits`` is that of a release whose file has not arrived. The field ``settings_changed`` has the names of
    the settings that were changed since the release was begun; None if its plan cannot be made any more.

    Args:
        states: what the ledger knows of each release that has begun, by its key as text.
    """
    ended = {series.name: series.periods.list_ended_periods() for series in declared}
    left = _read_remaining_budgets(declared, ended, ledger)
    rows = []
    for series in declared:
        plan_period = _make_planner(series)
        domain_name = series.domain.name
        for period in ended[series.name]:
            key = series.key(period.text)
            row = read_release_status(key, states.get(str(key)), left[domain_name][period.text])
            if row["state"] != "not begun":
                plan = plan_period(period)
                row["settings_changed"] = None if plan is None else ledger.list_changed_settings(key, domain_name, plan)
            else:
                waits = check_arrival(series, period).waits
                if waits is not None:
                    row |= {"state": "waits", "waits_for": waits}
            rows.append(row)
    return rows


Remaining = tuple[Measure, Fraction]
"""The measure of a data set's cap, rho or epsilon, and how much of the cap is left."""


def _read_remaining_budgets(
    declared: Sequence[Series[P, G]], ended: Mapping[str, Sequence[Period]], ledger: Ledger
) -> dict[str, dict[str, Remaining]]:
    """Return what the data sets of some series have left, by name of the data set and period.

    ``ended`` has the ended periods by name of the series. Each data set is read once for all of its series.
    """
    domains = {series.domain.name: series.domain for series in declared}
    left: dict[str, dict[str, Remaining]] = {}
    for name, domain in domains.items():
        periods: set[str] = set()
        for series in declared:
            if series.domain.name == name:
                periods |= {period.text for period in ended[series.name]}
        try:
            balances = ledger.find_balances(name, periods)
            left[name] = {period: (balance.measure, balance.left) for period, balance in balances.items()}
        except OdError:  # the ledger does not know the data set before its first release
            unused = domain.cap.compute_usage([])
            left[name] = dict.fromkeys(periods, (unused.measure, unused.cap))
    return left


def read_release_status(key: ReleaseKey, state: ReleaseState | None, left: Remaining | None = None) -> ReleaseStatus:
    """Return the state of a release: ``not begun``, ``begun``, ``published`` or ``withdrawn``, and its spending.

    Args:
        state: what the ledger knows of the release; None if it is not begun.
        left: what its data set has left; None if it is not known, because the release is not declared any more.
    """
    state = state or ReleaseState()
    amounts = {} if left is None else {left[0]: float(left[1])}
    phase = "begun" if state.kinds else "not begun"
    if state.is_withdrawn:
        phase = "withdrawn"
    if state.is_published:
        phase = "published"
    return {
        "release": str(key),
        "state": phase,
        "settings_changed": None,
        "waits_for": None,
        "measured_levels": f"{state.kinds.count(MEASURED)} of {len(state.kinds)}" if state.kinds else "none",
        "interrupted_levels": state.kinds.count(DRAWING),
        "rho_spent": float(state.rho),
        "data_set_rho_left": amounts.get("rho"),
        "data_set_epsilon_left": amounts.get("epsilon"),
    }


def _make_planner(series: Series[P, G]) -> Callable[[Period], Plan | None]:
    """Return a function that returns the plan of a period; None if the period cannot be planned.

    Periods with the same number of days and the same public files share a plan.
    """
    read_geography_once = cache(series.read_geography)
    plans: dict[tuple[int, tuple[str, ...]], Plan | None] = {}  # by number of days and files

    def plan_period(period: Period) -> Plan | None:
        days_and_files = period.days, series.name_plan_files(period.text)
        if days_and_files not in plans:
            try:
                plans[days_and_files] = series.plan_without_cap(read_geography_once(), period.text)
            except OdError:  # doctor states the fault; what was released is listed all the same
                plans[days_and_files] = None
        return plans[days_and_files]

    return plan_period


def _make_period_error(message: str) -> OdError:
    """Return the error for a period that a series cannot release."""
    return OdError("OD-PERIOD", message, next_step="choose one of the declared periods")
