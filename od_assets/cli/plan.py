"""The command ``od-release plan``: print the planned budget and noise of a release."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from od_assets.cli.options import Json, Period, Release


def plan(
    release: Release,
    period: Period = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Add the exact noise and charge of every step, and all conversions.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print what a release would spend and what could be read in it. Reads no record and spends nothing."""
    from od_assets.cli.declared_series import declared_series
    from od_assets.cli.printing import print_guarantee, print_plan
    from od_assets.runs.period_status import planned_period

    component = declared_series(release)
    settings, period = component.settings(), planned_period(component, period)
    planned = settings.plan(settings.read_geography(), period)
    guarantee = settings.kind.guarantee(planned, planned.spent)
    if as_json:
        levels = planned.to_frame().to_dict("records")
        facts = {**planned.facts(), "levels": levels, "guarantee": guarantee, "row": settings.columns.row}
        typer.echo(json.dumps(facts, indent=2))
        return
    print_plan(settings, planned, verbose=verbose)
    print_guarantee(guarantee)
