"""Entry point of the code location: loads everything below ``defs``."""

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    """All releases, resources and jobs of the project."""
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
