"""The command ``od-release purge``: remove the copies of records of published releases."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from od_assets.cli.options import Json


def purge(
    older_than: Annotated[
        int, typer.Option("--older-than", min=0, help="Only releases published at least so many days ago.")
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the files; remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
    as_json: Json = False,
) -> None:
    """Remove the copies of records, with their ids, that published releases left in the confidential folder.

    Published releases stay, and `od-release verify` needs no records. To run such a release again, its file of records
    must be the same as before. What else the confidential folder has stays, such as counts and measurements. With
    --json, nothing is removed without --yes.
    """
    from od_assets.resources.folders import Folders
    from od_assets.terminal import console

    folders = Folders()
    found = folders.kept_records(older_than)
    if not as_json and not found:
        console.print("No published release has a copy of its records.")
        return
    if not as_json:
        for key, file in found.items():
            console.print(f"{key}: {file}", soft_wrap=True)
        console.print(
            "To run one of these releases again, you need its file of records, unchanged. Verification needs none.",
            soft_wrap=True,
        )
    removed = not dry_run and bool(found) and (yes or (not as_json and typer.confirm("Remove these copies?")))
    if removed:
        with folders.ledger_chain.exclusive():
            folders.purge(older_than)
    if as_json:
        files = [{"release": str(key), "file": str(file)} for key, file in found.items()]
        typer.echo(json.dumps({"removed": removed, "files": files}, indent=2))
    else:
        console.print(f"{len(found)} removed." if removed else "Nothing was removed.")
