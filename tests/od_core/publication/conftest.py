"""How these tests draw: what is published does not depend on where noise is drawn."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def quick_draws(opendp_in_process: None) -> None:
    """Let releases that ask for OpenDP's noise start no processes."""
