"""The command ``od-release ui``: start the Dagster UI behind its guard."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from od_assets.project import prepare_dagster_home, project_root


def ui(
    port: Annotated[
        int, typer.Option(help="Port on this machine, reachable only from this machine; 0 chooses a free port.")
    ] = 3000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Name of a proxy in front of the UI, such as od.example.org; can be given more than once."),
    ] = None,
) -> None:
    """Start the Dagster UI and its daemon with the project's run history. Access requires the printed address."""
    prepare_dagster_home()
    os.chdir(project_root())
    modules = ["-m", "od_assets.cli.whole_session", sys.executable, "-m", "od_assets.cli.ui_server"]
    os.execv(sys.executable, [sys.executable, *modules, str(port), *(allow_host or [])])  # noqa: S606  # our own command
