"""The command ``od-release verify``: recompute published releases and compare them with the published files."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.text import Text

from od_assets.cli.options import Json
from od_assets.terminal import WRONG, console


def verify(
    release: Annotated[
        str | None, typer.Argument(help="Release, such as us_flights/2001-06/r1, or a series; all if left out.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Recompute published releases from their measurements, and compare them with bundle, database and ledger."""
    from od_assets.resources.verify import verified

    rows = verified(release)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        for row in rows:
            found = "verified" if row["verified"] else Text("NOT VERIFIED", style=WRONG)
            console.print(f"{row['release']}:", found)
            for part, fault in row["faults"].items():
                console.print(f"  {part}: {fault}", soft_wrap=True)
            if "next_step" in row:
                console.print(f"  next step: {row['next_step']}", soft_wrap=True)
        console.print(f"{sum(row['verified'] for row in rows)} of {len(rows)} releases verified.")
    if not all(row["verified"] for row in rows):
        raise typer.Exit(1)
