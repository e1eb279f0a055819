"""The command ``od-release init``: declare a new release."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from od_assets.cli.init_questions import Question, asks, further_fields
from od_assets.cli.plan import plan
from od_assets.terminal import console


def init(
    name: Annotated[
        str, typer.Argument(help="Name of the release and of its data set: lower-case letters, digits, _.")
    ],
    records: Annotated[str | None, typer.Option(help=asks("records"))] = None,
    reader: Annotated[str | None, typer.Option(help=asks("reader"))] = None,
    origin: Annotated[str | None, typer.Option(help=asks("origin"))] = None,
    destination: Annotated[str | None, typer.Option(help=asks("destination"))] = None,
    date: Annotated[str | None, typer.Option(help=asks("date"))] = None,
    trips: Annotated[str | None, typer.Option(help=asks("trips"))] = None,
    zones: Annotated[str | None, typer.Option(help=asks("zones"))] = None,
    levels: Annotated[str | None, typer.Option(help=asks("levels"))] = None,
    prefixes: Annotated[str | None, typer.Option(help=asks("prefixes"))] = None,
    names: Annotated[str | None, typer.Option(help=asks("names"))] = None,
    coordinates: Annotated[str | None, typer.Option(help=asks("coordinates"))] = None,
    every: Annotated[str | None, typer.Option(help=asks("every"))] = None,
    first: Annotated[str | None, typer.Option(help=asks("first"))] = None,
    last: Annotated[str | None, typer.Option(help=asks("last"))] = None,
    time_zone: Annotated[str | None, typer.Option(help=asks("time_zone"))] = None,
    unit: Annotated[str | None, typer.Option(help=asks("unit"))] = None,
    column: Annotated[str | None, typer.Option(help=asks("column"))] = None,
    one_row_a_trip: Annotated[str | None, typer.Option(help=asks("one_row_a_trip"))] = None,
    max_trips: Annotated[str | None, typer.Option(help=asks("max_trips"))] = None,
    max_trips_year: Annotated[str | None, typer.Option(help=asks("max_trips_year"))] = None,
    id_pattern: Annotated[str | None, typer.Option(help=asks("id_pattern"))] = None,
    neighbours: Annotated[str | None, typer.Option(help=asks("neighbours"))] = None,
    epsilon: Annotated[str | None, typer.Option(help=asks("epsilon"))] = None,
    delta: Annotated[str | None, typer.Option(help=asks("delta"))] = None,
    cap: Annotated[str | None, typer.Option(help=asks("cap"))] = None,
    reason: Annotated[str | None, typer.Option(help=asks("reason"))] = None,
    settled_seconds: Annotated[str | None, typer.Option(help=asks("settled_seconds"))] = None,
    owner: Annotated[str | None, typer.Option(help=asks("owner"))] = None,
    further: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other field, such as geography.unknown=264; can be given more than once."),
    ] = None,
) -> None:
    """Declare a new release: ask for the missing options, write its files, and print its plan. Releases nothing."""
    from od_assets.cli.init_answers import answered
    from od_assets.cli.new_declaration import initialize, places_of

    given = {
        "records": records,
        "reader": reader,
        "origin": origin,
        "destination": destination,
        "date": date,
        "trips": trips,
        "zones": zones,
        "levels": levels,
        "prefixes": prefixes,
        "names": names,
        "coordinates": coordinates,
        "every": every,
        "first": first,
        "last": last,
        "time_zone": time_zone,
        "unit": unit,
        "column": column,
        "one_row_a_trip": one_row_a_trip,
        "max_trips": max_trips,
        "max_trips_year": max_trips_year,
        "id_pattern": id_pattern,
        "neighbours": neighbours,
        "epsilon": epsilon,
        "delta": delta,
        "cap": cap,
        "reason": reason,
        "settled_seconds": settled_seconds,
        "owner": owner,
    }
    places_of(name)  # refuses a taken name before any question
    fields = further_fields(further or [])
    ask = _asked if sys.stdin.isatty() else None
    answers = answered(given, ask, lambda line: console.print(line, soft_wrap=True), fields)
    written = initialize(name, answers, fields)
    areas = ", ".join(f"{number} {level}" for level, number in written.area_counts.items())
    files = "\n".join(map(str, written.files))
    console.print(f"Areas: {areas}.\nWritten:\n{files}\n", soft_wrap=True)
    plan(name)


def _asked(question: Question) -> str:
    """Ask a question at the terminal, after its advice, and return the answer."""
    if question.advice:
        console.print(question.advice, style="dim")
    answer: str = typer.prompt(question.asks, default=question.default or "", show_default=bool(question.default))
    return answer
