"""Why a data frame must never hold noise: five ways in which Spark draws it again (spec 8, section 2).

All but the last test show, on the version of Spark that is installed, what the protocol of parts is for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

PARTS = list(range(8))


@dataclass(frozen=True)
class Seen:
    """What a process of silent_redraws.py saw.

    Attributes:
        draws: values by part, in the order in which they were drawn.
        result: the value of each part that came out.
        error: what Spark said, if it failed.
    """

    draws: dict[int, list[int]]
    result: dict[int, int]
    error: str

    @property
    def number(self) -> int:
        return sum(map(len, self.draws.values()))

    @property
    def first(self) -> list[int]:
        """Parts whose first draw came out."""
        return [part for part, value in self.result.items() if value == self.draws[part][0]]

    @property
    def later(self) -> list[int]:
        """Parts of which another draw came out."""
        return [part for part, value in self.result.items() if value in self.draws[part][1:]]


@pytest.fixture(scope="module")
def told(spark_process: Callable, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(spark_process("silent_redraws", tmp_path_factory.mktemp("spark")).stdout)
    return facts


@pytest.fixture(scope="module")
def seen(told: dict[str, Any]) -> dict[str, Seen]:
    return {
        name: Seen(
            {part: [value for drawn, value in case["draws"] if drawn == part] for part in PARTS},
            {int(part): value for part, value in case["result"].items()},
            case["error"],
        )
        for name, case in told["cases"].items()
    }


def test_two_actions_draw_twice(seen: dict[str, Seen]) -> None:
    """Counted, then written: what was written is other noise than what was counted, and nobody is told."""
    case = seen["two_actions"]
    assert not case.error
    assert case.number == 16
    assert sorted(case.later) == PARTS


def test_a_cache_does_not_keep_noise(seen: dict[str, Seen]) -> None:
    """An executor is killed between two actions on a cached data frame: some of its values are others afterwards."""
    case = seen["cache_and_lost_executor"]
    assert not case.error
    assert case.number == 8 + len(case.later) > 8
    assert sorted(case.first + case.later) == PARTS


def test_a_lost_executor_mixes_two_draws(seen: dict[str, Seen]) -> None:
    """Killed while the data are read, without the checksums of Spark 4.3: one result of both draws, and no error."""
    case = seen["without_checksums"]
    assert not case.error
    assert case.number > 8
    assert case.first
    assert case.later
    assert sorted(case.first + case.later) == PARTS


def test_the_checksums_see_the_second_draw_after_it_is_made(seen: dict[str, Seen]) -> None:
    """As Spark 4.3 comes: the job is given up, when the noise has been drawn twice."""
    case = seen["lost_executor_while_reducers_read"]
    assert case.number > 8
    assert "indeterminate" in case.error
    assert not case.result


def test_a_failed_task_draws_again(seen: dict[str, Seen]) -> None:
    """With the four tries that clusters have by default: the third draw of one part comes out."""
    case = seen["exception_after_the_draw"]
    assert not case.error
    assert [len(case.draws[part]) for part in PARTS] == [1, 1, 1, 3, 1, 1, 1, 1]
    assert case.result[3] == case.draws[3][2]
    assert case.later == [3]


def test_such_a_session_is_refused(told: dict[str, Any]) -> None:
    """A master of several machines, and no word of tries: Spark's own default is four."""
    assert told["refused"] == "OD-SPARK-RETRIES"
