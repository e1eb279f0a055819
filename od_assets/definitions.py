"""Entry point of the code location: loads everything below ``defs``."""

import warnings
from pathlib import Path

import dagster as dg

# Dagster says so of every job, wherever one is resolved: docs/decisions/0002-dagster.md.
warnings.filterwarnings("ignore", "Parameter `owners` of", dg.BetaWarning)

# Great Expectations imports PySpark where it is installed; no data frame of pandas meets it here.
warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)


@dg.definitions
def defs() -> dg.Definitions:
    """All releases, resources and jobs of the project."""
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
