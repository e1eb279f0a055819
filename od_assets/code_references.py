"""Attach source locations to Dagster definitions, so that the UI shows them."""

import warnings
from collections.abc import Sequence
from typing import Any

import dagster as dg


def with_sources(assets: Sequence[dg.AssetsDefinition]) -> Sequence[Any]:
    """Return the assets, each with the file and line of its function."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # docs/decisions/0002-dagster.md
        return dg.with_source_code_references(assets)


def source_of(file: str) -> dict[str, dg.CodeReferencesMetadataValue]:
    """Return Dagster metadata that names the source file of a definition."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        references = dg.CodeReferencesMetadataValue(code_references=[dg.LocalFileCodeReference(file_path=file)])
    return {"dagster/code_references": references}
