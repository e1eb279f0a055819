"""The command ``od-release ui``: start the Dagster UI with access control."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from od_assets.project import current_project, dagster_home, prepare_dagster_home, stated_home
from od_core.errors import OdError


def ui(
    port: Annotated[int, typer.Option(help="Port to listen on; 0 chooses a free port.")] = 3000,
    listen: Annotated[
        str, typer.Option(help="Address to listen on; the default is reachable only from this machine.")
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Name of a proxy in front of the UI, such as od.example.org; can be given more than once."),
    ] = None,
    workspace: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Workspace file of a deployment: serve only its pages, beside its code servers and its daemon.",
        ),
    ] = None,
) -> None:
    """Start the Dagster UI and its daemon with the project's run history. Access requires the printed address."""
    if workspace is None and stated_home() not in (None, dagster_home(current_project().var).resolve()):
        raise OdError(
            "OD-UI-HOME",
            "DAGSTER_HOME is that of another Dagster deployment, whose own daemon must not run twice",
            next_step="name its workspace file with --workspace, or start dg dev, or unset DAGSTER_HOME",
        )
    prepare_dagster_home()
    served = "" if workspace is None else str(workspace.resolve())
    os.chdir(current_project().root)
    modules = ["-m", "od_assets.cli.whole_session", sys.executable, "-m", "od_assets.cli.ui_server"]
    os.execv(sys.executable, [sys.executable, *modules, str(port), listen, served, *(allow_host or [])])  # noqa: S606  # our own command
