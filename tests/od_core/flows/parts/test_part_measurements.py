"""A level of a part is drawn once a round, and what is used is what is kept."""

import numpy as np
import pytest

from od_core.errors import OdError
from od_core.flows.parts import PartMeasurements, read_claimed_rounds
from od_core.ledger.object_store import LocalStore, list_part_files, name_part_file
from tests.od_core.ledger.ledger_rows import small_plan

STEP = small_plan().steps[2]
LEVEL = STEP.level


class Draws:
    """Draws that can be told apart, counted."""

    def __init__(self) -> None:
        self.drawn = 0

    def __call__(self):
        self.drawn += 1
        yield np.full(5, self.drawn, dtype=np.int64)


@pytest.fixture
def store(tmp_path) -> LocalStore:
    return LocalStore(tmp_path)


def of_part(store, *, rounds: int = 1, part: int = 3) -> PartMeasurements:
    return PartMeasurements(store, part, {LEVEL: rounds})


def test_a_kept_level_is_read_back_and_never_drawn_again(store):
    draws = Draws()
    first = of_part(store).draw_once(STEP, draws).read_values()
    again = of_part(store, rounds=7).draw_once(STEP, draws).read_values()
    assert draws.drawn == 1
    np.testing.assert_array_equal(first, again)
    assert read_claimed_rounds(store, LEVEL) == {3: 1}


def test_a_claim_that_was_never_kept_is_lost_until_another_round_is_charged(store):
    def dies():
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        of_part(store).draw_once(STEP, dies)
    draws = Draws()
    with pytest.raises(OdError, match=f"OD-LOST-DRAW: step {LEVEL}, level {LEVEL}, of part 3"):
        of_part(store).draw_once(STEP, draws)
    assert draws.drawn == 0
    of_part(store, rounds=2).draw_once(STEP, draws)
    assert draws.drawn == 1
    assert read_claimed_rounds(store, LEVEL) == {3: 2}


def test_each_round_is_drawn_once(store):
    """Three rounds are charged, and three processes die; a fourth draws nothing."""

    def dies():
        raise KeyboardInterrupt
        yield

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            of_part(store, rounds=3).draw_once(STEP, dies)
    with pytest.raises(OdError, match="OD-LOST-DRAW"):
        of_part(store, rounds=3).draw_once(STEP, dies)


def test_one_that_was_taken_for_dead_uses_what_the_other_has_kept(store):
    """It wakes up with its own draw after another one, in the next round, has kept its own."""
    other = Draws()

    def slow():
        kept = of_part(store, rounds=2).draw_once(STEP, other).read_values()
        assert kept.tolist() == [1] * 5
        yield np.full(5, 99, dtype=np.int64)

    used = of_part(store).draw_once(STEP, slow).read_values()
    assert used.tolist() == [1] * 5
    assert len(list_part_files(store, LEVEL)) == 1


def test_parts_do_not_meet(store):
    draws = Draws()
    for part in (0, 1, 12):
        of_part(store, part=part).draw_once(STEP, draws)
    assert draws.drawn == 3
    assert list_part_files(store, LEVEL) == [name_part_file(LEVEL, part) for part in (0, 1, 12)]
    assert read_claimed_rounds(store, LEVEL) == {0: 1, 1: 1, 12: 1}


def test_level_1_is_not_level_11(store):
    PartMeasurements(store, 0, {11: 1, LEVEL: 1}).store.create_if_absent(name_part_file(11, 0), b"x")
    store.create_if_absent("claims/11.00000.1", b"x")
    assert list_part_files(store, 1) == []
    assert read_claimed_rounds(store, 1) == {}
