"""The command ``od-release plan``: print the planned budget and noise of a release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from od_assets.cli.options import Json, Period, Release
from od_assets.terminal import console


def plan(
    release: Release,
    period: Period = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Add the exact noise and charge of every step, and all conversions.")
    ] = False,
    page: Annotated[
        Path | None, typer.Option(help="HTML file to write the planning page to, on which people choose settings.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print what a release would spend and what could be read in it. Reads no record and spends nothing."""
    from od_assets.cli.declared_series import declared_series
    from od_assets.cli.planning_page import write_planning_page
    from od_assets.cli.printing import print_guarantee, print_plan
    from od_assets.runs.period_status import planned_period

    component = declared_series(release)
    settings, period = component.settings(), planned_period(component, period)
    planned = settings.plan(settings.read_geography(), period)
    if page is not None:
        write_planning_page(settings, planned, page)
    guarantee = settings.kind.guarantee(planned, planned.spent)
    if as_json:
        levels = planned.to_frame().to_dict("records")
        facts = {**planned.facts(), "levels": levels, "guarantee": guarantee, "row": settings.columns.row}
        typer.echo(json.dumps(facts, indent=2))
        return
    print_plan(settings, planned, verbose=verbose)
    print_guarantee(guarantee)
    if page is not None:
        console.print(f"Planning page: {page}", soft_wrap=True)
