"""The command ``od-release disclose``: write the documents that disclose a published release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from od_assets.cli.options import Json


def disclose(
    release: Annotated[
        str, typer.Argument(help="Release, such as us_flights/2001-06/r1, or its bundle (a folder or .zip).")
    ],
    folder: Annotated[
        Path | None, typer.Option(help="Folder to write. By default, one below the folder of the project's output.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the documents that disclose a published release, from its certificate and data package alone.

    They are: an entry for the registry of differential privacy deployments, an evaluation by NIST SP 800-226, a notice
    for the people in the data, a record for a data protection impact assessment, and the provenance in PROV-JSON. What
    only the organisation knows is marked. The same release gives the same bytes.
    """
    from od_assets.cli.named_bundles import bundle_named
    from od_assets.project import current_project
    from od_assets.terminal import console
    from od_core.published.disclosure.documents import DESCRIPTIONS, write_disclosure
    from od_core.published.disclosure.facts import TO_COMPLETE

    bundle = bundle_named(release)
    place = current_project().var / "disclosure" if folder is None else folder
    written = write_disclosure(bundle, place, within=folder is None)
    if as_json:
        typer.echo(json.dumps(written.facts(), indent=2))
        return
    width = max(map(len, DESCRIPTIONS))
    for name, description in DESCRIPTIONS.items():
        console.print(f"{name:<{width}}  {description}", soft_wrap=True)
    console.print(f"{len(written.changed)} of {len(DESCRIPTIONS)} files were written; the others were there already.")
    console.print(f"Folder: {written.folder}", soft_wrap=True)
    console.print(f"Fields that say {TO_COMPLETE!r} are yours. Complete copies: the command replaces these files.")
