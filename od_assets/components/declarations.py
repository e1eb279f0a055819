"""Find the declarations of a project that Dagster cannot load."""

import warnings
from pathlib import Path
from typing import Any

import dagster as dg

from od_assets.components.od_site import OdWarehouse
from od_assets.components.series import series_definitions
from od_assets.series.reading import (
    COMPARISON,
    DECLARATION,
    RELEASES,
    SITE,
    WAREHOUSE,
    comparison,
    component_type,
    declaration,
    declaration_files,
    read_declaration,
    read_site,
    refuse_wrong_type,
)
from od_assets.series.series import Series
from od_core.errors import OdError


def refuse_broken(path: Path) -> None:
    """Raise OdError if a declaration cannot be parsed, does not fit its component, or is refused by Dagster."""
    refuse_wrong_type(path)
    stated, name = component_type(path), path.parent.name
    if stated in RELEASES:
        refuse_unloadable(declaration(name))
    elif stated == COMPARISON:
        comparison(name)
    elif stated == SITE:
        read_site(path)
    elif stated == WAREHOUSE:
        read_declaration(path, OdWarehouse)


def broken_declarations() -> dict[Path, OdError]:
    """Return the fault of every broken declaration of the project, by its file, in the order of their paths."""
    faults = {}
    for path in declaration_files():
        try:
            refuse_broken(path)
        except OdError as error:
            faults[path] = error
    return faults


def refuse_broken_declarations() -> None:
    """Raise OdError with the first broken declaration of the project, if there is one."""
    for fault in broken_declarations().values():
        raise fault


def refuse_unloadable(series: Series[Any, Any]) -> None:
    """Raise OdError if Dagster refuses the definitions of a series, such as its owners, cron lines or deadlines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about beta and preview parts of Dagster
        try:
            series_definitions(series)
        except (dg.DagsterError, ValueError) as error:
            message = f"{series.name}/{DECLARATION}: {error}"
            raise OdError("OD-CONFIG", message, next_step="correct the declaration") from None
