"""What an asset says of its parts while it is at work."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from od_assets.assets.steps import now_and_then, one_of_all


def test_parts_are_told_now_and_then_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = [100.0], []
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    tell = now_and_then(said.append)
    for number, seconds in enumerate((0.5, 1.0, 1.0, 0.5, 5.0), start=1):
        clock[0] += seconds
        tell(number, 5, f"file_{number}.csv")
    assert said == ["3 of 5: file_3.csv", "5 of 5: file_5.csv"]
    assert one_of_all(SimpleNamespace(user_message=said[0])) == (3, 5, "file_3.csv")
    assert one_of_all(SimpleNamespace(user_message="STEP_START")) is None
