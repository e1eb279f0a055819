"""Plan and forecast releases: ``od-release plan`` and ``forecast``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from od_assets.cli.options import Json, Period, Release
from od_assets.terminal import console
from od_core.errors import OdError


def plan(
    release: Release,
    period: Period = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Add the exact noise and charge of every step, and all conversions.")
    ] = False,
    target: Annotated[
        list[str] | None,
        typer.Option(help="Target, such as 'state x state: flows >= 1000 within 5 % in 90 %'; can be repeated."),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(help="Public table for the targets: a published release, a file, or synthetic."),
    ] = None,
    runs: Annotated[int, typer.Option(help="Number of releases to simulate for the targets; 0 for none.")] = 200,
    to: Annotated[Path | None, typer.Option(help="File for the declaration with the budget for the targets.")] = None,
    page: Annotated[
        Path | None, typer.Option(help="HTML file to write the planning page to, on which people choose settings.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print what a release would spend and what could be read in it, or the smallest budget for targets.

    Reads no record and spends nothing.
    """
    from od_assets.cli.planning_page import write_planning_page
    from od_assets.cli.printing import print_guarantee, print_plan
    from od_assets.resources.folders import Folders
    from od_assets.runs.period_status import planned_period
    from od_assets.series.reading import declaration

    _refuse_options(target, table, to, page)
    series = declaration(release)
    period = planned_period(series, period)
    planned = series.plan(series.read_geography(), period)
    Folders().hold_to_declared(series.domain)
    if target:
        from od_assets.cli.target_plan import print_target_plan, target_plan, write_declaration

        found = target_plan(series, planned, target, table, runs)
        if as_json:
            typer.echo(json.dumps(found.facts(), indent=2))
        else:
            print_target_plan(found)
        if to is not None:
            write_declaration(found, to)
        return
    if page is not None:
        write_planning_page(series, planned, page)
    guarantee = series.kind.guarantee(planned, planned.spent)
    if planned.unit.max_trips_year is not None:
        from od_core.publication.guarantee import year_sentence

        periods = len(series.domain.periods_of_year(series.periods.first))
        guarantee["year"] = year_sentence(planned.unit, planned.spent, periods)
    if as_json:
        levels = planned.to_frame().to_dict("records")
        facts = {**planned.facts(), "levels": levels, "guarantee": guarantee, "row": series.columns.row}
        typer.echo(json.dumps(facts, indent=2))
        return
    print_plan(series, planned, verbose=verbose)
    print_guarantee(guarantee)
    if page is not None:
        console.print(f"Planning page: {page}", soft_wrap=True)


def _refuse_options(target: list[str] | None, table: str | None, to: Path | None, page: Path | None) -> None:
    """Raise OdError if options are given that have no effect with, or without, targets."""
    if not target and (table is not None or to is not None):
        name = "--to" if table is None else "--table"
        raise OdError("OD-TARGET", f"{name} is for targets, and there is no target", next_step="add --target")
    if target and page is not None:
        raise OdError(
            "OD-TARGET",
            "a planning page begins with the declared budget, and not with that for targets",
            next_step="declare the budget for the targets with --to, and make the page after that",
        )


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
    from od_assets.cli.tables import print_frame
    from od_assets.cli.target_plan import forecast_of
    from od_assets.runs.period_status import planned_period
    from od_assets.series.reading import declaration

    series = declaration(release)
    period = planned_period(series, period)
    found = forecast_of(series, series.plan(series.read_geography(), period), epsilon, runs)
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
