"""The command ``od-release compare``: print the changes between two published releases."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from od_assets.cli.options import Json
from od_assets.terminal import console


def compare(
    before: Annotated[
        str, typer.Argument(help="Release, such as us_flights/2001-05/r1, or its bundle (a folder or .zip).")
    ],
    after: Annotated[str, typer.Argument(help="The later release, with the same areas.")],
    level: Annotated[
        str | None, typer.Option(help="Level of origins and destinations; the coarsest if left out.")
    ] = None,
    origin_level: Annotated[str | None, typer.Option(help="Level of the origins, if it differs.")] = None,
    destination_level: Annotated[str | None, typer.Option(help="Level of the destinations, if it differs.")] = None,
    segment: Annotated[
        str | None, typer.Option(help="Breakdown, such as mode, to compare the flows in each category.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of the largest changes to print.")] = 20,
    as_json: Json = False,
) -> None:
    """Print the largest changes of flows between two releases, and mark those larger than their uncertainty."""
    from od_assets.cli.release_changes import compared
    from od_assets.cli.tables import print_frame

    found = compared(before, after, origin_level or level, destination_level or level, segment)
    if as_json:
        typer.echo(json.dumps(found.facts(top), indent=2))
        return
    print_frame(
        f"{found.after} against {found.before}: {found.origin_level} to {found.destination_level}", found.largest(top)
    )
    console.print(
        f"{found.significant} of {len(found.changes)} changes are larger than their uncertainty (marked *): 0 is"
        f" outside their 90 % interval. Of the pairs that did not change, up to one in ten is also marked.{found.note}",
        soft_wrap=True,
    )
