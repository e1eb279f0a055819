"""The command ``od-release plan``: print the planned budget and noise of a release."""

from __future__ import annotations

import json

import typer

from od_assets.cli.options import Json, Period, Release
from od_assets.cli.printing import console, conversion_text, print_frame, print_guarantee, spent_text


def plan(release: Release, period: Period = None, as_json: Json = False) -> None:
    """Print the budget that a release would spend, and the noise of every level. Reads no record and spends nothing."""
    from od_assets.components.declarations import declaration
    from od_assets.runs.run_period import planned_period  # Dagster takes half a second to import

    component = declaration(release)
    settings, period = component.settings(), planned_period(component, period)
    planned = settings.plan(settings.read_geography(), period)
    spent, domain = planned.spent, settings.domain
    guarantee = settings.kind.guarantee(planned, spent)
    if as_json:
        levels = planned.to_frame().to_dict("records")
        facts = {**planned.facts(), "levels": levels, "guarantee": guarantee, "row": settings.columns.row}
        typer.echo(json.dumps(facts, indent=2))
        return
    print_frame(f"{release}: what one period measures", planned.to_frame())
    console.print(
        f"A release spends {spent_text(spent)}.{conversion_text(planned)} The cap of data set"
        f" {domain.name!r} is rho {float(domain.cap.allowed_rho()):.6g}"
        f" {'for all periods' if domain.unit.kind == 'user' else f'per {domain.elementary_period}'}.\n"
        f"Meaning of a row of the records: {settings.columns.row}.\n"
    )
    print_guarantee(guarantee)
