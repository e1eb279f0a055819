"""Load all declarations below ``defs``, as the entry point of Dagster's code location."""

import warnings
from pathlib import Path

import dagster as dg

from od_assets.code_location import load_from_defs_folder

# Dagster warns whenever it resolves a check that a component made (docs/decisions/0002-dagster.md).
warnings.filterwarnings("ignore", "Parameter `execution_type` of", dg.BetaWarning)

# Great Expectations imports PySpark if it is installed; no pandas data frame is passed to PySpark here.
warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)


@dg.definitions
def defs() -> dg.Definitions:
    """Return all releases, resources and jobs of the project; without those whose declaration is broken."""
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
