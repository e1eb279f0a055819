"""The command ``od-release doctor``: find faults of the installation, the declarations and an input."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from od_assets.cli.options import Json


def doctor(
    name: Annotated[str | None, typer.Argument(help="Declaration; all if left out.")] = None,
    period: Annotated[str | None, typer.Option(help="Also check the budget and the input of this period.")] = None,
    as_json: Json = False,
) -> None:
    """Check the installation, the declarations and an input, and print all faults. Changes and spends nothing."""
    from od_assets.cli.diagnosis import diagnosis
    from od_assets.cli.printing import print_findings

    findings = diagnosis(name, period)
    if as_json:
        typer.echo(json.dumps([finding.facts() for finding in findings], indent=2))
    else:
        print_findings(findings)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
