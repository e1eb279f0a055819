"""Where the source of a definition is, found at load: Dagster shows it beside the definition, and opens it."""

import warnings
from collections.abc import Sequence
from typing import Any

import dagster as dg


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
