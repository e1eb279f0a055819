"""What the tests of sums and of model-assisted flows share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def three_months(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three published months, of which the second has another budget. Not to be changed."""
    from od_core import Budget
    from tests.od_core.published.test_sums import KEYS, release

    root = tmp_path_factory.mktemp("three_months")
    for key in KEYS:
        release(root, key, budget=Budget(rho="1/2" if key == KEYS[1] else 2, delta="1e-8"))
    return root
