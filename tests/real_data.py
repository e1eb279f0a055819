"""Real records that are not part of the project: in the folder OD_REAL_DATA, or beside the project in shared/data."""

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("OD_REAL_DATA", Path(__file__).parents[2] / "shared" / "data"))


def real_data(name: str) -> Path:
    """The folder of a data set; the test is skipped where it is not at hand."""
    if not (FOLDER / name).is_dir():
        pytest.skip(f"the real data {name} are not at hand")
    return FOLDER / name
