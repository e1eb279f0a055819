"""Locate the project's root, its ``var`` folder and Dagster's home."""

from __future__ import annotations

import os
from pathlib import Path

from od_core.files.durable import PUBLIC_FILE_MODE, make_folder, write_durably


def project_root() -> Path:
    """Return the checkout.

    It is the folder in ``OD_PROJECT``; otherwise the nearest folder, from the working directory upwards, with a
    ``workspace.yaml`` of this project; otherwise the folder that contains this package.
    """
    stated = os.environ.get("OD_PROJECT")
    if stated:
        return Path(stated).resolve()
    here = Path.cwd().resolve()
    for folder in (here, *here.parents):
        workspace = folder / "workspace.yaml"
        if workspace.is_file() and "od_assets.definitions" in workspace.read_text(encoding="utf-8"):
            return folder
    return Path(__file__).resolve().parent.parent


def var_folder() -> Path:
    """Return the folder of everything that the project writes: ``OD_VAR``, or ``var`` in the project."""
    stated = os.environ.get("OD_VAR")
    return Path(stated).resolve() if stated else project_root() / "var"


DAGSTER_SETTINGS = Path(__file__).parent / "dagster.yaml"
"""The project's settings of Dagster."""


def dagster_home(var: Path) -> Path:
    """Return Dagster's home below the ``var`` folder."""
    return var / "dagster"


def prepare_dagster_home() -> Path:
    """Create Dagster's home below ``var`` with the project's settings, set ``DAGSTER_HOME`` to it, and return it."""
    home = dagster_home(var_folder())
    make_folder(home)
    settings, present = DAGSTER_SETTINGS.read_bytes(), home / DAGSTER_SETTINGS.name
    if not present.exists() or present.read_bytes() != settings:
        write_durably(present, lambda file: file.write_bytes(settings), mode=PUBLIC_FILE_MODE)
    os.environ["DAGSTER_HOME"] = str(home)
    return home
