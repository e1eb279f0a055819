"""Where things are: the project's root, and the folder of everything that is written."""

from __future__ import annotations

import os
from pathlib import Path


def project_root() -> Path:
    """The checkout: from ``OD_PROJECT``, or the nearest folder with a workspace.yaml above the present one."""
    if "OD_PROJECT" in os.environ:
        return Path(os.environ["OD_PROJECT"]).resolve()
    here = Path.cwd().resolve()
    for folder in (here, *here.parents):
        if (folder / "workspace.yaml").is_file():
            return folder
    return Path(__file__).resolve().parent.parent


def var_folder() -> Path:
    """Everything that the project writes: from ``OD_VAR``, or ``var`` in the project."""
    return Path(os.environ["OD_VAR"]).resolve() if "OD_VAR" in os.environ else project_root() / "var"
