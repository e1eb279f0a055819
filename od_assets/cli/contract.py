"""The command ``od-release contract``: print the data contract of a published release."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from od_assets.cli.options import Json


def contract(
    release: Annotated[
        str, typer.Argument(help="Release, such as us_flights/2001-06/r1, or its bundle (a folder or .zip).")
    ],
    as_json: Json = False,
) -> None:
    """Print the data contract of a published release for a data catalogue, in the Open Data Contract Standard."""
    import yaml

    from od_assets.cli.named_bundles import bundle_named
    from od_core.published.contract import data_contract

    found = data_contract(bundle_named(release))
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        typer.echo(yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=120), nl=False)
