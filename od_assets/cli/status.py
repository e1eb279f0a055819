"""The command ``od-release status``: print the state of every declared release and period."""

from __future__ import annotations

import json

import pandas as pd
import typer

from od_assets.cli.options import Json
from od_assets.cli.printing import print_frame


def status(as_json: Json = False) -> None:
    """Print the state, the measured levels, and the spent and remaining rho of every declared release and period."""
    from od_assets.components.declarations import declaration
    from od_assets.runs.run_period import period_status  # Dagster takes half a second to import
    from od_assets.series.declared_names import declared_releases

    rows = [row for name in declared_releases() for row in period_status(declaration(name))]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        print_frame("Releases", pd.DataFrame(rows))
