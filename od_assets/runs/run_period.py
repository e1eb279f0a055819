"""Run one period with its Dagster job, in this process and with the project's own Dagster instance."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd

from od_assets.components.declarations import load_definitions
from od_assets.components.series import Series
from od_assets.failures import failure_lines
from od_assets.resources.arrivals import arrival
from od_assets.resources.warehouse import Warehouse
from od_assets.runs.progress import by_step, followed, number_of_steps
from od_assets.series.settings import SeriesSettings
from od_core.errors import OdError
from od_core.ledger.entries import DRAWING, MEASURED
from od_core.ledger.ledger import Ledger
from od_core.ledger.lock import exclusive
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import Period
from od_core.privacy.accounting import float_above
from od_core.privacy.budget import Spent
from od_core.privacy.plan import Plan
from od_core.publication.bundle_integrity import CERTIFICATE


def silent(job: dg.JobDefinition) -> dict[str, Any]:
    """Return the run configuration with which a job logs nothing to the console; a project may have other loggers."""
    return {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}} if "console" in job.loggers else {}


@dataclass(frozen=True)
class Released:
    """A summary of a published release.

    Attributes:
        contents: content of the release, such as ``flows``.
        spent: budget that the release has spent.
        levels: its levels and their noise.
    """

    contents: str
    spent: Spent
    levels: pd.DataFrame


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run for one period.

    Attributes:
        facts: public JSON-ready dictionary: the certificate and the balance, or the failures.
        released: summary of the release; None if it is not published.
    """

    facts: dict[str, Any]
    released: Released | None


def chosen_periods(component: Series, period: str | None, *, every: bool) -> list[str]:
    """Return the ended periods to release: the given period, or all if ``every``, or by default the newest.

    Raises:
        OdError: the given period is not an ended period of the series, or no period has ended.
    """
    periods = [each.text for each in component.checked_periods().ended()]
    if not periods:
        raise _no_period(f"no period of {component.name} has ended")
    if every:
        return periods
    if period is not None and period not in periods:
        raise _no_period(f"{period!r} is not an ended period of {component.name} ({periods[0]} to {periods[-1]})")
    return [period or periods[-1]]


def planned_period(component: Series, period: str | None) -> str:
    """Return the period to plan for: the given period, or by default the newest ended one.

    A plan needs no records. So if no period has ended yet, the first period is allowed and is the default.

    Raises:
        OdError: as in :func:`chosen_periods`.
    """
    periods = component.checked_periods()
    first = periods.first.text
    if period in (None, first) and not periods.ended():
        return first
    return chosen_periods(component, period, every=False)[0]


def run_period(component: Series, period: str, *, quiet: bool) -> Outcome:
    """Run the release job for one period, and return the outcome. Show progress on standard error unless ``quiet``."""
    settings = component.settings()
    key = settings.key(period)
    job = load_definitions().resolve_job_def(f"{component.name}_release")
    warehouse = Warehouse()
    ledger = warehouse.ledger
    before = ledger.level_kinds(key).count(MEASURED)
    with exclusive(Path(os.environ["DAGSTER_HOME"])):  # otherwise two processes may create Dagster's tables at once
        instance = dg.DagsterInstance.get()
    with instance:
        run_id = str(uuid.uuid4())
        name = str(key)
        bar = followed(instance, run_id, name, by_step(name), number_of_steps(job), transient=True)
        with nullcontext() if quiet else bar:
            result = job.execute_in_process(
                partition_key=settings.periods.partition(Period(period)),
                instance=instance,
                raise_on_error=False,
                run_id=run_id,
                run_config=silent(job),
                tags={"od/launched_by": "od-release"},
            )
        failures = [] if result.success else failure_lines(result.all_events) or ["the run did not start"]
    if not result.success:
        return Outcome({"release": str(key), "published": False, "failures": failures}, None)
    drawn = ledger.level_kinds(key).count(MEASURED) - before
    balance = ledger.balance(settings.domain.name, period)
    bundle = warehouse.bundle(key)
    facts = json.loads((bundle / CERTIFICATE).read_text(encoding="utf-8"))
    kind = settings.kind
    release = kind.open(bundle)
    released = Released(kind.contents, release.spent, kind.summary(release))
    facts |= {
        "published": True,
        "drawn": drawn,
        "cap_rho": float_above(balance.cap),
        "left_rho": float(balance.left),
        f"{kind.contents.replace(' ', '_')}_by_level": released.levels.to_dict("records"),
        "bundle": str(bundle),
        "database": str(warehouse.database),
    }
    return Outcome(facts, released)


def period_status(component: Series, ledger: Ledger) -> list[dict[str, Any]]:
    """Return the :func:`release_status` of every ended period of a series.

    The field ``settings_changed`` has the names of the settings that were changed since the release was begun.
    """
    settings = component.settings()
    rows = []
    planned = _plans(settings)
    for period in settings.periods.ended():
        try:
            left = ledger.balance(settings.domain.name, period.text).left
        except OdError:  # the first release declares the domain in the ledger
            left = settings.domain.cap.allowed_rho()
        key = settings.key(period.text)
        row = release_status(ledger, key, left)
        if row["state"] != "not begun" and (plan := planned(period.text)) is not None:
            row["settings_changed"] = ledger.changed_settings(key, settings.domain.name, plan)
        waits = arrival(settings, period).waits
        rows.append(row | {"state": "waits", "waits_for": waits} if waits and row["state"] == "not begun" else row)
    return rows


def release_status(ledger: Ledger, key: ReleaseKey, left: Fraction | None = None) -> dict[str, Any]:
    """Return the state of a release, its measured levels, the rho that it spent, and what its data set has left.

    The field ``settings_changed`` is None: without a declaration, it is not known.

    Args:
        ledger: the ledger.
        key: the release.
        left: remaining rho of the data set in the period, or None if its declaration is gone.
    """
    kinds = ledger.level_kinds(key)
    return {
        "release": str(key),
        "state": "published" if ledger.is_published(key) else "begun" if kinds else "not begun",
        "settings_changed": None,
        "waits_for": None,
        "measured_levels": f"{kinds.count(MEASURED)} of {len(kinds)}" if kinds else "none",
        "interrupted_levels": kinds.count(DRAWING),
        "rho_spent": float(sum((charge.as_rho for _, charge in ledger.charges(key)), start=Fraction(0))),
        "data_set_rho_left": None if left is None else float(left),
    }


def _plans(settings: SeriesSettings[Any, Any]) -> Callable[[str], Plan | None]:
    """Return a function that plans a period, or returns None if a file is missing or a setting cannot be planned."""

    @cache
    def geography() -> Any:
        return settings.read_geography()

    def planned(period: str) -> Plan | None:
        try:
            return settings.plan(geography(), period)
        except OdError:  # doctor states the fault; what was released is listed all the same
            return None

    return planned


def _no_period(message: str) -> OdError:
    return OdError("OD-PERIOD", message, next_step="choose one of the declared periods")
