"""The ledger grants the rounds of a band: a lost draw costs its level's rho once a round, however many parts it had."""

import numpy as np
import pytest

from od_core import Ledger, OdError, ReleaseKey
from od_core.flows.parts import PartMeasurements, charge_rounds, record_measured
from od_core.ledger.measurements import DurableMeasurements, NoisyVector
from od_core.ledger.object_store import LocalStore, name_part_file
from tests.od_core.ledger.ledger_rows import assert_chain, charged, domain, small_plan, states

KEY = ReleaseKey("commuters", "2001-06")
PLAN = small_plan()
BAND = PLAN.steps[1:]
LEVELS = [step.level for step in BAND]


@pytest.fixture
def store(tmp_path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    return begun(tmp_path, cap=10)


def begun(folder, cap) -> Ledger:
    ledger = Ledger(folder / "ledger.sqlite")
    ledger.declare(domain(cap))
    ledger.reserve(KEY, "commuters", PLAN)
    return ledger


def keep(store, step, part: int, rounds: int = 1) -> None:
    PartMeasurements(store, part, {step.level: rounds}).draw_once(step, lambda: [np.arange(part + 1)])


def all_kept(ledger, store, *parts: int) -> dict[int, int]:
    """The rounds of a band, after which some parts of every level of it were kept."""
    rounds = charge_rounds(ledger, KEY, BAND, store, "opendp")
    for step in BAND:
        for part in parts:
            keep(store, step, part)
    return rounds


def claim(store, step, part: int, number: int = 1) -> None:
    store.create_if_absent(f"claims/{step.level}.{part:05d}.{number}", b"x")


def test_all_levels_of_a_band_begin_before_any_task(ledger, store):
    assert charge_rounds(ledger, KEY, BAND, store, "opendp") == dict.fromkeys(LEVELS, 1)
    assert states(ledger.path, str(KEY)) == {PLAN.steps[0].level: "RESERVED"} | dict.fromkeys(LEVELS, "DRAWING")
    assert charged(ledger.path) == PLAN.spent.rho


def test_a_run_that_ended_before_any_claim_costs_nothing(ledger, store):
    charge_rounds(ledger, KEY, BAND, store, "opendp")
    keep(store, BAND[0], 0)
    assert charge_rounds(ledger, KEY, BAND, store, "opendp") == dict.fromkeys(LEVELS, 1)
    assert charged(ledger.path) == PLAN.spent.rho


@pytest.mark.parametrize("parts", [1, 50])
def test_lost_parts_cost_their_level_once_a_round(ledger, store, parts):
    charge_rounds(ledger, KEY, BAND, store, "opendp")
    lost, whole = BAND[1], BAND[0]
    keep(store, whole, 0)
    for part in range(parts):
        claim(store, lost, part)
    assert charge_rounds(ledger, KEY, BAND, store, "opendp")[lost.level] == 2
    assert charged(ledger.path) == PLAN.spent.rho + lost.rho
    # The second round is used by nobody, so that there is no third.
    assert charge_rounds(ledger, KEY, BAND, store, "opendp")[lost.level] == 2
    claim(store, lost, 0, 2)
    rounds = charge_rounds(ledger, KEY, BAND, store, "opendp")
    assert rounds == dict.fromkeys(LEVELS, 1) | {lost.level: 3}
    assert charged(ledger.path) == PLAN.spent.rho + 2 * lost.rho
    assert_chain(ledger.path)


def test_the_cap_refuses_another_round(tmp_path, store):
    ledger = begun(tmp_path, PLAN.spent.rho + BAND[0].rho / 2)
    charge_rounds(ledger, KEY, BAND, store, "opendp")
    claim(store, BAND[0], 4)
    with pytest.raises(OdError, match="OD-LEDGER-CAP"):
        charge_rounds(ledger, KEY, BAND, store, "opendp")
    assert charged(ledger.path) == PLAN.spent.rho


def test_a_release_stays_in_its_store(ledger, store, tmp_path):
    """Whichever store was marked first: also if the run ended between the mark and the entry of the draw."""
    other = LocalStore(tmp_path / "other")
    ledger.reserve(ReleaseKey("commuters", "2001-07"), "commuters", PLAN)
    charge_rounds(ledger, ReleaseKey("commuters", "2001-07"), BAND, other, "opendp")  # marks the other store
    charge_rounds(ledger, KEY, BAND[:1], store, "opendp")
    for begun in (BAND, BAND[1:]):  # of a later band, no level has begun
        for elsewhere in (other, LocalStore(tmp_path / "new")):
            with pytest.raises(OdError, match="OD-STORE-OTHER"):
                charge_rounds(ledger, KEY, begun, elsewhere, "opendp")
    assert charge_rounds(ledger, KEY, BAND, store, "opendp") == dict.fromkeys(LEVELS, 1)


def test_a_draw_that_goes_on_with_other_noise_names_both(ledger, store):
    charge_rounds(ledger, KEY, BAND, store, "opendp")
    for _ in range(2):
        assert charge_rounds(ledger, KEY, BAND, store, "table") == dict.fromkeys(LEVELS, 1)
    assert ledger.read_noise_backends(KEY) == "opendp, table"
    assert len(ledger.list_begun_draws(KEY)) == 2 * len(BAND)
    assert charged(ledger.path) == PLAN.spent.rho
    assert_chain(ledger.path)


@pytest.mark.parametrize("left", ["claim", "file"])
def test_parts_that_the_ledger_knows_nothing_of_are_refused(ledger, store, left):
    if left == "claim":
        claim(store, BAND[0], 0)
    else:
        store.create_if_absent(name_part_file(BAND[0].level, 0), b"x")
    with pytest.raises(OdError, match="OD-LEDGER-ROLLED-BACK"):
        charge_rounds(ledger, KEY, BAND, store, "opendp")


def test_a_measured_level_is_read_back_part_after_part(ledger, store, tmp_path):
    rounds = all_kept(ledger, store, 1, 0, 2)
    record_measured(ledger, KEY, BAND, store, rounds, 3)
    record_measured(ledger, KEY, BAND, store, rounds, 3)
    assert states(ledger.path, str(KEY)) == {PLAN.steps[0].level: "RESERVED"} | dict.fromkeys(LEVELS, "MEASURED")
    kept = DurableMeasurements(tmp_path / "folder", ledger, KEY, store=store).read(BAND[0])
    assert isinstance(kept, NoisyVector)
    assert kept.read_values().tolist() == [0, 0, 1, 0, 1, 2]
    assert [piece.tolist() for piece in kept.iterate_pieces([2, 3, 1])] == [[0, 0], [1, 0, 1], [2]]
    assert charge_rounds(ledger, KEY, BAND, store, "opendp") == dict.fromkeys(rounds, 0)


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("lost", ["another store", "an emptied store"])
def test_without_the_store_that_it_was_begun_in_nothing_is_drawn(ledger, store, tmp_path, measured, lost):
    rounds = all_kept(ledger, store, 0)
    if measured:
        record_measured(ledger, KEY, BAND, store, rounds, 3)
    if lost == "an emptied store":
        store.remove("claims")
        store.remove("parts")
    else:
        store = LocalStore(tmp_path / "other")
    with pytest.raises(OdError, match="OD-STORE-OTHER"):
        charge_rounds(ledger, KEY, BAND, store, "opendp")


def test_a_measured_part_that_is_missing_is_not_drawn_again(ledger, store):
    record_measured(ledger, KEY, BAND, store, all_kept(ledger, store, 0), 3)
    store.remove("parts")
    again = charge_rounds(ledger, KEY, BAND, store, "opendp")
    with pytest.raises(OdError, match="OD-MEASUREMENT-ABSENT"):
        PartMeasurements(store, 0, again).draw_once(BAND[0], lambda: [np.arange(1)])


def test_storage_that_creates_what_is_there_is_refused(ledger, tmp_path):
    class Overwriting(LocalStore):
        def create_if_absent(self, name, content, *, durable=True):
            (self.folder / name).unlink(missing_ok=True)
            return super().create_if_absent(name, content, durable=durable)

    with pytest.raises(OdError, match="OD-STORE-UNSAFE"):
        charge_rounds(ledger, KEY, BAND, Overwriting(tmp_path / "bad"), "opendp")
    assert set(states(ledger.path, str(KEY)).values()) == {"RESERVED"}


class ListsLate(LocalStore):
    """A store that does not list what was stored since the last pause."""

    def __init__(self, folder) -> None:
        super().__init__(folder)
        object.__setattr__(self, "late", set())

    def create_if_absent(self, name, content, *, durable=True):
        self.late.add(name)
        return super().create_if_absent(name, content, durable=durable)

    def list(self, prefix):
        return [name for name in super().list(prefix) if name not in self.late]


def test_a_store_that_lists_late_costs_no_round_and_records_no_half(ledger, tmp_path):
    """Files that are there and not listed are neither lost draws nor left out of what the ledger vouches for."""
    store = ListsLate(tmp_path / "store")
    rounds = all_kept(ledger, store, 0, 2)
    with pytest.raises(OdError, match=f"OD-STORE-LISTING: .*_{LEVELS[0]}.part_00000.parquet is one of 2"):
        record_measured(ledger, KEY, BAND, store, rounds, 3)
    store.late -= {name for name in store.late if name.startswith("claims/")}
    assert charge_rounds(ledger, KEY, BAND, store, "opendp") == rounds
    assert set(states(ledger.path, str(KEY)).values()) == {"RESERVED", "DRAWING"}
    store.late.clear()
    record_measured(ledger, KEY, BAND, store, rounds, 3)
    assert charged(ledger.path) == PLAN.spent.rho
    assert len(DurableMeasurements(tmp_path / "folder", ledger, KEY, store=store).read(BAND[0])) == 4


def test_a_part_that_was_changed_or_removed_is_found(ledger, store, tmp_path):
    rounds = all_kept(ledger, store, 0, 1)
    record_measured(ledger, KEY, BAND, store, rounds, 3)
    measurements = DurableMeasurements(tmp_path / "folder", ledger, KEY, store=store)
    (store.folder / name_part_file(LEVELS[0], 1)).unlink()
    with pytest.raises(OdError, match="OD-MEASUREMENT-CHANGED"):
        measurements.read(BAND[0])
    with pytest.raises(OdError, match="OD-MEASUREMENT-CHANGED"):
        record_measured(ledger, KEY, BAND, store, rounds, 3)
    assert len(measurements.read(BAND[1])) == 3


def test_a_level_without_any_part_is_measured_all_the_same(ledger, store, tmp_path):
    """Where nothing is released above, nothing is drawn; the level was set aside, and stays charged."""
    rounds = charge_rounds(ledger, KEY, BAND, store, "opendp")
    record_measured(ledger, KEY, BAND, store, rounds, 3)
    assert len(DurableMeasurements(tmp_path / "folder", ledger, KEY, store=store).read(BAND[0])) == 0
    assert charged(ledger.path) == PLAN.spent.rho
