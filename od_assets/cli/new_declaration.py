"""Write the first declaration of a release and of its data set from answers to a few questions.

No budget is spent. The components and the plan check whether the answers fit together.
"""

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from od_assets.cli.declaration_files import already_there, make_file, removed_if_refused, write_text, yaml_block
from od_assets.cli.init_questions import Answers, Fields, declared_by_answers
from od_assets.components.project import refuse_unloadable
from od_assets.project import current_project
from od_assets.resources.folders import Folders
from od_assets.runs.period_status import planned_period
from od_assets.series.flows import FlowSeries
from od_assets.series.reading import WAREHOUSE, declaration, declarations_of, declared_by
from od_assets.series.series import Series
from od_core import BudgetExceeded, Plan, ReleaseKey
from od_core.periods import LENGTHS, Period
from od_core.privacy.accounting import text_above
from od_core.privacy.person_year import alike

ROOM = 5
"""Number of releases that a computed cap allows, with room for lost draws and other tables of the same records."""

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

    If the project has no warehouse yet, declare it, too. Return the written files, and the number of areas by level.

    Raises:
        OdError: one of the files exists already, or the declaration or its plan is refused.
    """
    places = places_of(name)
    with removed_if_refused() as made:
        first = dict.fromkeys(("name", "owners", "trips", "geography", "periods"), None)
        release = first | {"domain": name} | declared_by_answers(answers, fields) | {"name": name}
        fits = declared_by(release, FlowSeries, f"{name}/defs.yaml")
        periods, data_set = fits.stated_periods, {"name": name} | declared_by_answers(answers, {}, "domain")
        cap = data_set.pop("cap", {})
        every, start = periods.every, periods.first.partition("--")[0]  # of a span
        data_set["elementary_period"] = every if every in LENGTHS else str(Period(start).length)
        data_set["cap"] = cap if "rho" in cap else _NOTHING_YET
        fitting = fits.model_dump(by_alias=True, exclude_defaults=True)
        text = f"type: od_assets.components.OdRelease\n\nattributes:\n{yaml_block(_kept(release, fitting), indent=2)}"
        make_file(places[1], yaml_block(data_set), made)
        make_file(places[0], text, made)
        warehouse = current_project().defs / "warehouse" / "defs.yaml"
        if not declarations_of(WAREHOUSE):
            make_file(warehouse, f"type: {WAREHOUSE}\nattributes: {{}}\n", made)
        found = declaration(name)
        geography, period = found.read_geography(), planned_period(found, None)
        enough = _usual_cap(found, found.plan_without_cap(geography, period), answers["epsilon"])
        if data_set["cap"] == _NOTHING_YET:
            data_set["cap"] = enough | ({"reason": answers["reason"]} if answers["reason"] else {})
            write_text(places[1], yaml_block(data_set))
        found = declaration(name)
        try:
            found.plan(geography, period)
        except BudgetExceeded as error:
            step = f"leave --cap out, for a cap of {enough['rho']}, or give a larger --cap or a smaller --epsilon"
            raise error.changed(next_step=step) from None
        Folders().hold_to_declared(found.domain)  # releases of a data set of this name may be charged already
        refuse_unloadable(found)  # a declaration with a fault would stop the whole project from loading
    return [*places, *({warehouse} & {*made})], geography.area_counts


def _usual_cap(series: Series[Any, Any], plan: Plan, epsilon: str) -> dict[str, str]:
    """Return the cap of :func:`cap_above`, and its reason; under unit ``user_year``, for a year of such plans."""
    rho, span = plan.charge.as_rho, f"per {series.domain.elementary_period}"
    if plan.unit.kind == "user_year":
        rho = alike(plan.unit, plan.spent, len(series.domain.periods_of_year(series.periods.first)))
        span = "of each period of a year"
    elif plan.unit.kind == "user":
        span = "in all periods together"
    reason = f"room for five releases {span} at epsilon {epsilon}, including lost draws"
    return {"rho": cap_above(rho), "reason": reason}


def cap_above(rho: Fraction) -> str:
    """Return ``ROOM`` times the rho of one plan, rounded up to three significant digits, as decimal text.

    >>> cap_above(Fraction("0.019215"))
    '0.0961'
    """
    return f"{Decimal(text_above(ROOM * rho, 3)):f}"


def _kept(stated: Mapping[str, Any], fitting: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of ``stated`` that are also in ``fitting``, with the values in ``fitting``.

    ``fitting`` has the validated values, without values that equal the default.
    """
    return {
        name: _kept(value, fitting[name]) if isinstance(fitting[name], dict) else fitting[name]
        for name, value in stated.items()
        if name in fitting
    }
