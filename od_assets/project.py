"""Where things are: the project's root, and the folder of everything that is written."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg


def project_root() -> Path:
    """The checkout: from ``OD_PROJECT``, or the nearest folder above with a workspace.yaml of this project."""
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
    """Everything that the project writes: from ``OD_VAR``, or ``var`` in the project."""
    stated = os.environ.get("OD_VAR")
    return Path(stated).resolve() if stated else project_root() / "var"


DAGSTER_SETTINGS = Path(__file__).parent / "dagster.yaml"
"""Dagster's settings, as the project has them."""


def dagster_home(var: Path) -> Path:
    """Dagster's home in the folder of everything that is written."""
    return var / "dagster"


# Where the source of a definition is, found at load: Dagster shows it beside the definition, and opens it.


def with_sources(assets: Sequence[dg.AssetsDefinition]) -> Sequence[Any]:
    """The assets, each with the file and line of the function that makes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # docs/decisions/0002-dagster.md
        return dg.with_source_code_references(assets)


def source_of(file: str) -> dict[str, dg.CodeReferencesMetadataValue]:
    """Metadata that says which file a definition stands in."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        references = dg.CodeReferencesMetadataValue(code_references=[dg.LocalFileCodeReference(file_path=file)])
    return {"dagster/code_references": references}
