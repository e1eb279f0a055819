"""Look at the public list of zones that ``od-release init`` declares.

If its path is wrong, the list may be the records. So its columns are shown only if their names are certainly no record.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, TypeVar

import pandas as pd
from pydantic import ValidationError

from od_assets.cli.init_questions import Answers, Fields, as_list, fill
from od_assets.declared.section import Section, first_fault
from od_assets.declared.series import Zones
from od_assets.project import current_project
from od_core.errors import OdError, nearest_only
from od_core.records.header import is_header
from od_core.records.zone_lists import read_zones

S = TypeVar("S", bound=Section)

_FIRST_ROWS = 1000
"""Number of rows with which the first line of the list is compared."""


def fitting(section: type[S], stated: Any, field: str) -> S:
    """Return a section with the given fields. Raises OdError, which names the field, if they do not fit."""
    try:
        return section.model_validate(stated)
    except ValidationError as error:
        raise OdError("OD-CONFIG", f"{field}.{first_fault(error, section)}", next_step="correct the answer") from None


def zone_table(answers: Answers) -> pd.DataFrame:
    """Return the table in the list of zones. Raises OdError if it cannot be read."""
    return read_zones(current_project().root / answers["zones"])


def found_zones(answers: Answers, _settings: Fields) -> list[str]:
    """Return lines to show, with the columns of the list of zones, or with what is wrong with its file."""
    name = (current_project().root / answers["zones"]).name
    try:
        table = zone_table(answers)
    except OdError as error:
        return [f"{error.message}."]
    columns = [str(column) for column in table.columns]
    if not _may_show(name, table, as_list(answers.get("levels", ""))):
        return [f"{name} has {len(columns)} columns; their names are shown once one of them is named as a level."]
    return [f"{name} has the columns {', '.join(columns)}."]


def further_columns(answers: Answers, settings: Fields) -> list[str]:
    """Return the columns of the list of zones that no answer names; none if the list cannot be read."""
    try:
        zones, columns = _declared(answers, settings), map(str, zone_table(answers).columns)
    except OdError:
        return []
    named = {*zones.levels, *zones.names.values(), *(zones.coordinates or ()), *chain(*zones.joined.values())}
    if zones.parents is not None:
        named |= {zones.parents.area, zones.parents.parent}
    return [column for column in columns if column not in named]


def absent_levels(answers: Answers, settings: Fields) -> list[str]:
    """Return the levels that have no column, and that no other answer or field says how to make."""
    zones = _declared(answers, settings)
    if zones.parents is not None:
        return []
    columns = {*map(str, zone_table(answers).columns), *zones.prefixes, *zones.joined}
    return [level for level in zones.levels if level not in columns]


def refuse_absent_levels(answers: Answers, settings: Fields) -> None:
    """Raise OdError if a level has no column, or if the areas of the levels are not a hierarchy."""
    absent, table = absent_levels(answers, settings), zone_table(answers)
    if not absent:
        refuse_unfit_zones(answers, settings)
        return
    message = f"{answers['zones']} has no column {absent[0]!r}"
    if _may_show(answers["zones"], table, as_list(answers["levels"])):
        columns = tuple(map(str, table.columns))
        message += f"{nearest_only(absent[0], columns)}; it has {', '.join(columns)}"
    step = "name columns of the list"
    if "prefixes" in answers:
        step = f"give the number of the first characters of a zone's code, as in {absent[0]}=3"
    elif may_be_prefixes(answers, settings):
        step += f", or give the same answer again if {absent[0]} is the first characters of a zone's code"
    raise OdError("OD-INIT-COLUMN", message, next_step=step)


def may_be_prefixes(answers: Answers, settings: Fields) -> bool:
    """Return whether all levels without a column may be prefixes of a zone's code. The last level has the codes."""
    return _declared(answers, settings).levels[-1] not in absent_levels(answers, settings)


def refuse_unfit_zones(answers: Answers, settings: Fields) -> None:
    """Raise OdError if the list of zones has no geography as the answers so far declare it."""
    _declared(answers, settings).zone_list().geography(current_project().root)


def _declared(answers: Answers, settings: Fields) -> Zones:
    """Return the list of zones as the answers so far declare it. Raises OdError if they do not fit the section."""
    stated: dict[str, Any] = {}
    fill(stated, answers, settings)
    return fitting(Zones, stated["geography"], "geography")


def _may_show(name: str, table: pd.DataFrame, levels: list[str]) -> bool:
    """Return whether the columns of a file with this name may be shown: they are certainly no record."""
    columns = [str(column) for column in table.columns]
    if name.endswith(".parquet") or any(level in columns for level in levels):
        return True
    return is_header(columns, table.head(_FIRST_ROWS).astype(str).to_numpy().tolist())
