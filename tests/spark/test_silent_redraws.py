"""Why a data frame must never hold noise: Spark draws it again (spec 8, section 2), and such a session is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

PARTS = list(range(8))


@pytest.fixture(scope="module")
def told(spark_process: Callable, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(spark_process("silent_redraws", tmp_path_factory.mktemp("spark")).stdout)
    return facts


def test_two_actions_draw_twice(told: dict[str, Any]) -> None:
    """Counted, then written: what was written is other noise than what was counted, and nobody is told."""
    assert sorted(part for part, _ in told["draws"]) == sorted(2 * PARTS)
    later = dict(told["draws"][len(PARTS) :])
    assert {int(part): value for part, value in told["result"].items()} == later


def test_such_a_session_is_refused(told: dict[str, Any]) -> None:
    """A master of several machines, and no word of tries: Spark's own default is four."""
    assert told["refused"] == "OD-SPARK-RETRIES"
