"""Write the first declaration of a release and of its data set from answers to a few questions.

No budget is spent. The components and the plan check whether the answers fit together.
"""

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from od_assets.cli.declaration_files import already_there, make_file, removed_if_refused, write_text, yaml_block
from od_assets.cli.init_questions import Answers, Fields, fill, put, values_of
from od_assets.components.declarations import refuse_unloadable
from od_assets.project import current_project
from od_assets.resources.folders import Folders
from od_assets.runs.period_status import planned_period
from od_assets.series.flows import FlowSeries
from od_assets.series.reading import WAREHOUSE, declaration, declarations_of, declared_by
from od_assets.series.series import Periods, Series
from od_core import BudgetExceeded, Plan, ReleaseKey
from od_core.periods import LENGTHS, Period
from od_core.privacy.accounting import text_above
from od_core.privacy.person_year import alike

ROOM = 5
"""Number of releases that a computed cap allows, with room for lost draws and other tables of the same records."""

_DIGITS = 3
"""Number of significant digits of a computed cap."""

_NOTHING_YET = {"rho": "1e-30", "reason": "no budget may be spent before the cap is computed"}
"""Temporary cap in the file of a data set, until the plan of the release is known."""


def places_of(name: str) -> tuple[Path, Path]:
    """Return the paths of the new files of a release and its data set. Raises OdError for a bad or taken name."""
    ReleaseKey(name, "2001")  # it becomes the name of files
    project = current_project()
    places = project.defs / name / "defs.yaml", project.domains / f"{name}.yaml"
    for path in (places[0].parent, places[1]):
        if path.exists():
            raise already_there(path)
    return places


def initialize(name: str, answers: Answers, fields: Fields) -> tuple[list[Path], dict[str, int]]:
    """Write the declarations of a release and of its data set, if the release can be planned; write both or neither.

    If the project has no warehouse yet, declare it, too.

    Args:
        name: name of the release and of the data set.
        answers: answers to all questions, by flag.
        fields: additional fields of the release's declaration, by path of the field.

    Returns:
        The written files, and the number of areas of the geography by level.

    Raises:
        OdError: one of the files exists already; or the declaration or its plan is refused, in which case the written
            files are removed.
    """
    places = places_of(name)
    with removed_if_refused() as made:
        release = _release(name, answers, fields)
        fits = declared_by(release, FlowSeries, f"{name}/defs.yaml")
        data_set = _data_set(name, answers, fits.stated_periods)
        fitting = fits.model_dump(by_alias=True, exclude_defaults=True)
        text = f"type: od_assets.components.OdRelease\n\nattributes:\n{yaml_block(_kept(release, fitting), indent=2)}"
        make_file(places[1], yaml_block(data_set), made)
        make_file(places[0], text, made)
        warehouse = current_project().defs / "warehouse" / "defs.yaml"
        if not declarations_of(WAREHOUSE):
            make_file(warehouse, f"type: {WAREHOUSE}\nattributes: {{}}\n", made)
        found = declaration(name)
        geography, period = found.read_geography(), planned_period(found, None)
        enough = cap_above(_for_one_cap(found, found.plan_without_cap(geography, period)))
        if data_set["cap"] == _NOTHING_YET:
            data_set["cap"] = {"rho": enough, "reason": answers["reason"] or _reason(answers, data_set)}
            write_text(places[1], yaml_block(data_set))
        found = declaration(name)
        try:
            found.plan(geography, period)
        except BudgetExceeded as error:
            step = f"leave --cap out, for a cap of {enough}, or give a larger --cap or a smaller --epsilon"
            raise error.changed(next_step=step) from None
        Folders().hold_to_declared(found.domain)  # releases of a data set of this name may be charged already
        refuse_unloadable(found)  # a declaration with a fault would stop the whole project from loading
    return [*places, *({warehouse} & {*made})], geography.area_counts


def _for_one_cap(series: Series[Any, Any], plan: Plan) -> Fraction:
    """Return the rho of the releases that one cap must allow: of one period, or of a year under unit ``user_year``."""
    if plan.unit.kind != "user_year":
        return plan.charge.as_rho
    return alike(plan.unit, plan.spent, len(series.domain.periods_of_year(series.periods.first)))


def cap_above(rho: Fraction) -> str:
    """Return ``ROOM`` times the rho of one plan, rounded up to three significant digits, as decimal text.

    >>> cap_above(Fraction("0.019215"))
    '0.0961'
    """
    return f"{Decimal(text_above(ROOM * rho, _DIGITS)):f}"


def _reason(answers: Answers, data_set: Mapping[str, Any]) -> str:
    together = {"user": "in all periods together", "user_year": "of each period of a year"}
    per = together.get(data_set["unit"], f"per {data_set['elementary_period']}")
    return f"room for five releases {per} at epsilon {answers['epsilon']}, including lost draws"


def _release(name: str, answers: Answers, fields: Fields) -> dict[str, Any]:
    """Return the attributes of the release, from the answers and the additional fields."""
    release: dict[str, Any] = dict.fromkeys(("name", "owners", "trips", "geography", "periods"), None) | {
        "domain": name
    }
    fill(release, answers, fields)
    release["name"] = name
    return release


def _data_set(name: str, answers: Answers, periods: Periods) -> dict[str, Any]:
    """Return the declaration of the data set, from the answers and the periods of the release."""
    data_set: dict[str, Any] = {"name": name}
    for field, value in values_of("domain", answers):
        put(data_set, field, value)
    data_set["elementary_period"] = _elementary_period(periods)
    cap = data_set.pop("cap", {})  # put back below, as the last field of the file
    data_set["cap"] = cap if "rho" in cap else _NOTHING_YET
    return data_set


def _elementary_period(periods: Periods) -> str:
    """Return the length of the periods; for a span such as ``2001-01--2001-06``, the length of its first part."""
    every = periods.every
    return every if every in LENGTHS else str(Period(periods.first.partition("--")[0]).length)


def _kept(stated: Mapping[str, Any], fitting: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of ``stated`` that are also in ``fitting``, with the values in ``fitting``.

    ``fitting`` has the validated values, without values that equal the default.
    """
    return {
        name: _kept(value, fitting[name]) if isinstance(fitting[name], dict) else fitting[name]
        for name, value in stated.items()
        if name in fitting
    }
