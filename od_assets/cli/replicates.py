"""The command ``od-release replicates``: write tables that show how certain a result of a published release is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from od_assets.cli.options import Json, NamedRelease


def replicates(
    release: NamedRelease,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Number of tables.")] = 100,
    to: Annotated[
        Path | None, typer.Option(help="Folder to write. By default, one below the folder of the project's output.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write replicates of a published release: tables that spread around its estimate as this does around the truth.

    Run your own model on each of them, to see how certain its results are, as with replicate weights in survey
    statistics. They are made from the public bundle alone: no record is read and no budget is charged. They are the
    same on every call.
    """
    from od_assets.cli.named_bundles import refuse_lost
    from od_assets.project import current_project, releases_folder
    from od_assets.terminal import console
    from od_core.published.derived import named_release
    from od_core.published.replicates import write_replicates

    var = current_project().var
    place = releases_folder(var)
    key = named_release(place, release)
    refuse_lost(key)
    folder = to or var / "replicates" / key.folder
    files = write_replicates(place, key, number, folder)
    if as_json:
        typer.echo(json.dumps({"release": str(key), "folder": str(folder), "files": files}, indent=2))
        return
    console.print(f"{number:,} replicate{'s' * (number != 1)} of {key}. Nothing was charged.")
    console.print(f"Folder: {folder} ({', '.join(files)})", soft_wrap=True)
