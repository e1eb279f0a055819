"""The command ``od-release compare-mechanisms``: compare mechanisms on synthetic or public data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from od_assets.project import prepare_dagster_home
from od_assets.terminal import console, printable


def compare_mechanisms(
    comparison: Annotated[
        str | None, typer.Argument(help="Declared comparison; that of the documentation if left out.")
    ] = None,
    flows: Annotated[Path | None, typer.Option(help="Your own table: origin, destination, trips.")] = None,
    zones: Annotated[Path | None, typer.Option(help="Its zone list, one row a zone.")] = None,
    levels: Annotated[str, typer.Option(help="Level columns of the zone list, coarse to fine, as region,zone.")] = "",
    trips: Annotated[str | None, typer.Option(help="Column of counts; leave out for one row per trip.")] = None,
    one_row_a_trip: Annotated[
        bool,
        typer.Option("--one-row-a-trip", help="Each row is one trip, even if other columns may hold numbers of trips."),
    ] = False,
    marked: Annotated[
        str | None, typer.Option(help="public or synthetic; other data cannot be used for a comparison.")
    ] = None,
    mechanism: Annotated[
        list[str] | None, typer.Option(help="Compare only this mechanism; can be given more than once.")
    ] = None,
    epsilon: Annotated[
        list[str] | None, typer.Option(help="Epsilon; 0.1, 1 and 10 if left out; can be given more than once.")
    ] = None,
    runs: Annotated[int | None, typer.Option(help="Number of runs for each mechanism and epsilon.")] = None,
    to: Annotated[Path | None, typer.Option(help="Folder to which tables and figures are copied.")] = None,
) -> None:
    """Compare the errors of mechanisms on synthetic or public data. Run it again to resume a stopped comparison."""
    from od_assets.runs.run_comparison import declared_or_given, run_comparison

    component = declared_or_given(comparison, flows, zones, levels, trips, marked, one_row_a_trip=one_row_a_trip)
    choices = {"mechanisms": mechanism, "epsilons": epsilon, "runs": runs}
    component = component.model_copy(update={name: choice for name, choice in choices.items() if choice}).checked()
    prepare_dagster_home()
    outcome = run_comparison(component, to)
    if outcome.failures:
        for line in outcome.failures:
            typer.echo(printable(line), err=True)
        raise typer.Exit(1)
    console.print(f"Tables and figures: {outcome.folder}", soft_wrap=True)
