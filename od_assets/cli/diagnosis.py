"""Inspect an installation, its declarations and an input, without changing anything."""

from __future__ import annotations

from functools import partial
from typing import Any

from od_assets.cli import installation_checks as installation
from od_assets.cli.findings import Finding, found
from od_assets.cli.input_checks import inspected
from od_assets.cli.ledger_checks import charged
from od_assets.components.declarations import comparison, declaration, refuse_unloadable
from od_assets.components.series import Series
from od_assets.project import current_project
from od_assets.resources.warehouse import Warehouse
from od_assets.runs.period_status import chosen_periods, planned_period
from od_assets.series.declared_names import declared_comparisons, declared_releases
from od_assets.series.settings import SeriesSettings
from od_core.errors import OdError
from od_core.kernels import cache_folder
from od_core.privacy.accounting import text_above


def diagnosis(name: str | None = None, period: str | None = None) -> list[Finding]:
    """Return the findings on the installation, the declarations and, if a period is given, what a run of it would meet.

    Args:
        name: name of one declaration; None inspects all of them.
        period: period whose budget and input are inspected too; None inspects neither.

    Raises:
        OdError: there is no such declaration, or it has no such period.
    """
    releases, comparisons = declared_releases(), declared_comparisons()
    if name in comparisons:
        releases, comparisons = (), (name,)
    elif name is not None:
        if name not in releases:
            declaration(name)  # raises an error that lists the known names
        releases, comparisons = (name,), ()
    return [
        *of_installation(),
        *(finding for one in releases for finding in of_declaration(one)),
        *(found(f"comparison {one}", partial(_check_comparison, one)) for one in comparisons),
        *installation.code_location(),
        *([] if period is None else _of_inputs(releases, period)),
    ]


def of_installation() -> list[Finding]:
    """Return the findings that do not depend on a declaration."""
    var = current_project().var
    return [
        *installation.python_version(),
        *installation.packages(),
        *installation.compiled_kernels(cache_folder()),
        *installation.noise_backends(),
        *installation.home_of_dagster(var),
        *installation.modes(var),
        *installation.free_disk(var),
        *installation.ledger(Warehouse()),
        *installation.release_lock(var),
        *installation.runs(var),
    ]


def of_declaration(name: str) -> list[Finding]:
    """Return the findings of a declaration, from its YAML to its Dagster definitions.

    If the YAML or the geography has a fault, the parts that depend on it are not inspected.
    """
    what = f"declaration {name}"
    try:
        component = declaration(name)
        settings = component.settings()
    except OdError as error:
        return [Finding.of_error(what, error)]
    return [
        Finding(f"{what}, data set {component.domain}: {settings.columns.row}"),
        *_of_plan(component, settings),
        found(f"assets and schedules of {name}", lambda: refuse_unloadable(component)),
    ]


def _of_plan(component: Series, settings: SeriesSettings[Any, Any]) -> list[Finding]:
    what = f"geography of {component.name}"
    try:
        geography = settings.read_geography()
    except OdError as error:
        return [Finding.of_error(what, error)]
    counts = ", ".join(f"{number} {level}" for level, number in geography.area_counts.items())

    def plan() -> str:
        planned = settings.plan(geography, planned_period(component, None))
        Warehouse.of(settings.project).hold_to_declared(settings.domain)
        asked, cap = text_above(planned.charge.as_rho), text_above(settings.domain.cap.allowed_rho())
        return f"rho {asked} of a cap of {cap}"

    return [Finding(f"{what}: {counts}"), found(f"plan of {component.name}", plan)]


def _check_comparison(name: str) -> None:
    comparison(name).settings()


def _of_inputs(names: tuple[str, ...], period: str) -> list[Finding]:
    """Return findings on budgets and inputs of a period. Raises OdError if none of the named series has the period."""
    inputs: list[Finding] = []
    absent: OdError | None = None
    for name in names:
        try:
            component = declaration(name)
            settings = component.settings()
        except OdError:
            continue  # another finding reports the fault of its declaration
        try:
            chosen_periods(component, period, every=False)
        except OdError as error:
            absent = error
            continue
        inputs += [charged(settings, period), *inspected(settings, period)]
    if not inputs and absent is not None:
        raise absent
    return inputs
