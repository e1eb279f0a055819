"""Write the planning page of a declared release to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from od_assets.cli.declaration_files import write_text
from od_assets.series.series import Series
from od_core.errors import OdError
from od_core.flows.planning_page import planning_page
from od_core.privacy.plan import Plan


def write_planning_page(series: Series[Any, Any], plan: Plan, path: Path) -> None:
    """Write the planning page of a plan. An existing file is replaced.

    Raises:
        OdError: :func:`od_core.flows.planning_page.planning_page` refuses the plan, or the file cannot be written.
    """
    domain = series.domain
    year = domain.periods_of_year(series.periods.first) if domain.unit.kind == "user_year" else ()
    page = planning_page(plan, series.name, domain.cap.allowed_rho(), len(year))
    try:
        write_text(path, page)
    except OSError as error:
        raise OdError(
            "OD-FORECAST-PAGE",
            f"the planning page {str(path)!r} cannot be written: {error.strerror}",
            next_step="name a file in a folder that exists and may be written",
        ) from None
