"""Broken variants of the library, which tests must find."""

from __future__ import annotations

import pytest

from od_core.privacy.neighbours import Neighbours, Standing


def forget_that_a_record_may_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the relation know counted records alone, as if each were replaced by another that is counted."""
    monkeypatch.setattr(Neighbours, "may_have", lambda _, standing: standing is Standing.COUNTED)
