"""What tests of several estimators share."""

import pytest

from od_core.flows.estimation import families


@pytest.fixture
def small_levels_learn(monkeypatch):
    """Let levels of any size learn, so that tiny releases do."""
    monkeypatch.setattr(families, "_MIN_CELLS_TO_LEARN", 1)
