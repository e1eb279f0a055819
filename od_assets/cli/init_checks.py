"""Check each answer to ``od-release init`` at the terminal where it is given, as its declaration will be checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dagster as dg

from od_assets.cli.init_questions import Answers, Fields, as_list, as_number, as_yaml
from od_assets.cli.init_zones import fitting, refuse_absent_levels, refuse_unfit_zones, zone_table
from od_assets.declared.periods import Arrivals
from od_assets.series.partitions import SINGLE, SeriesPeriods
from od_core.errors import OdError
from od_core.periods import LENGTHS, Period, check_time_zone
from od_core.privacy.budget import Budget
from od_core.privacy.cap import Cap
from od_core.privacy.unit import NEIGHBOUR_RELATIONS, UNIT_KINDS, PrivacyUnit
from od_core.registry import refuse_unknown

_STEP = "choose one of them"


def fault_of_value(flag: str, answers: Answers, settings: Fields) -> OdError | None:
    """Return an error if no declaration could have the answer to a question after the answers before it, or None."""
    try:
        if flag in _CHECKS and answers[flag]:
            _CHECKS[flag](answers[flag], answers)
        if flag in _OF_ZONES and (answers[flag] or flag == "prefixes"):  # a level may need one
            _OF_ZONES[flag](answers, settings)
        if flag == "reason" and answers["cap"] and not answers["reason"].strip():
            raise OdError("OD-DOMAIN-CAP", "a cap of your own needs a reason", next_step="give --reason")
    except OdError as error:
        return error
    return None


def _length(answer: str, _answers: Answers) -> None:
    refuse_unknown("length of periods", answer, (*LENGTHS, SINGLE), code="OD-PERIOD-TEXT", next_step=_STEP)


def _kind(answer: str, _answers: Answers) -> None:
    refuse_unknown("privacy unit", answer, UNIT_KINDS, code="OD-UNIT-UNKNOWN", next_step=_STEP)


def _neighbours(answer: str, _answers: Answers) -> None:
    refuse_unknown("neighbour relation", answer, NEIGHBOUR_RELATIONS, code="OD-UNIT-UNKNOWN", next_step=_STEP)


def _bounds(_answer: str, answers: Answers) -> None:
    """Check the bounds that are given so far. Without that of a year, the unit of a period has the same bound."""
    of_year: dict[str, Any] = {}
    if "max_trips_year" in answers:
        most = as_number(answers["max_trips_year"])
        of_year = {"max_trips_year": most, "id_pattern": answers.get("id_pattern", ".+")}
    PrivacyUnit(
        "user_year" if of_year else "user_period",
        column=answers["column"],
        max_trips=as_number(answers["max_trips"]),  # type: ignore[arg-type]  # checked by PrivacyUnit
        **of_year,
    )


def _seconds(answer: str, _answers: Answers) -> None:
    fitting(Arrivals, {"settled_seconds": as_yaml(answer)}, "arrivals").check(one_file=True)


def _owners(answer: str, _answers: Answers) -> None:
    try:
        dg.AssetSpec("any", owners=as_list(answer))
    except dg.DagsterError:
        step = "give team:name or an e-mail address"
        raise OdError("OD-CONFIG", f"Invalid owner {answer!r}", next_step=step) from None


_CHECKS: dict[str, Callable[[str, Answers], object]] = {
    "every": _length,
    "first": lambda answer, answers: SeriesPeriods(answers["every"], Period(answer), None, None),
    "last": lambda answer, answers: SeriesPeriods(answers["every"], Period(answers["first"]), Period(answer), None),
    "time_zone": lambda answer, _answers: check_time_zone(answer),
    "unit": _kind,
    "max_trips": _bounds,
    "max_trips_year": _bounds,
    "id_pattern": _bounds,
    "neighbours": _neighbours,
    "epsilon": lambda answer, _answers: Budget(epsilon=answer, delta="1e-8"),
    "delta": lambda answer, _answers: Budget(epsilon=1, delta=answer),
    "cap": lambda answer, _answers: Cap(rho=answer),
    "settled_seconds": _seconds,
    "owner": _owners,
}
"""Functions that raise OdError for an answer that no declaration could have after the answers before it, by flag."""

_OF_ZONES: dict[str, Callable[[Answers, Fields], object]] = {
    "zones": lambda answers, _settings: zone_table(answers),
    "levels": refuse_absent_levels,
    "prefixes": refuse_absent_levels,
    "names": refuse_unfit_zones,
    "coordinates": refuse_unfit_zones,
}
"""Functions that raise OdError if an answer does not fit the list of zones, by flag."""
