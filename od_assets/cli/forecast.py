"""The command ``od-release forecast``: print the expected errors of a release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from od_assets.cli.options import Json, Period, Release
from od_assets.terminal import console


def forecast(
    release: Release,
    period: Period = None,
    epsilon: Annotated[
        list[str] | None, typer.Option(help="Epsilon; 0.1, 0.3, 1, 3 and 10 if left out; can be given more than once.")
    ] = None,
    runs: Annotated[int | None, typer.Option(help="Number of simulated releases.")] = None,
    to: Annotated[Path | None, typer.Option(help="Folder to which the table and the figure are written.")] = None,
    as_json: Json = False,
) -> None:
    """Print the expected errors of a release, simulated on data that is already public. Spends nothing."""
    from od_assets.cli.declared_series import declared_series
    from od_assets.cli.release_forecast import forecast_of
    from od_assets.cli.tables import print_frame
    from od_assets.runs.period_status import planned_period

    component = declared_series(release)
    settings, period = component.settings(), planned_period(component, period)
    found = forecast_of(settings, settings.plan(settings.read_geography(), period), epsilon, runs)
    if to is not None:
        found.write(to)
    if as_json:
        typer.echo(json.dumps(found.facts(), indent=2))
        return
    for title, frame in found.tables().items():
        print_frame(title, frame)
    console.print(found.source, soft_wrap=True)
    if to is not None:
        console.print(f"Table and figure: {to}", soft_wrap=True)
