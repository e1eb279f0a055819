"""Draws of releases by segment: each query is charged once, replayed ever after, and charged again alone if it is lost.

Noise is a function of the query and the position, so that a release that was stopped and resumed must have the same
bytes as one that was not.
"""

import hashlib
from fractions import Fraction
from pathlib import Path

import pytest

from od_core import Budget, Cap, PrivacyDomain, Release, release_flows
from od_core.ledger.measurements import DurableMeasurements
from od_core.noise.opendp import OpenDPNoise
from tests.od_core.doubles import SeededNoise
from tests.od_core.ledger.ledger_rows import FLOWS, GEOGRAPHY, TRIP, assert_chain, charged, ledger_at, rows, states

R1 = "commuters/2001-06/r1"
RHO = Fraction(3, 7)
SEGMENTS = {"mode": ["car", "bus"], "hour": ["am", "pm", "night"]}
TRIPS = FLOWS.assign(mode=["car", "bus", "car", "bus"], hour=["am", "am", "night", "pm"])
NUMBERS = [5, 10, *(number for level in (1, 2, 3, 4) for number in (level, 5 + level, 10 + level))]
"""Numbers of the queries in the order of their draws: level by level, first the total, which n is at the root."""

CELLS = [1, 2, 4, 10, 25]
"""Public nodes of each level: two regions, then five zones, of destinations and of origins."""


class Killed(BaseException):
    """The process ends."""


@pytest.fixture
def drawn(monkeypatch) -> list[tuple[int, int]]:
    """Query and size of all draws; their noise is of the seed."""
    asked: list[tuple[int, int]] = []

    def draw(self, variance, level, first, size):
        asked.append((level, size))
        return SeededNoise(5).draw(variance, level, first, size)

    monkeypatch.setattr(OpenDPNoise, "draw", draw)
    return asked


def ledger_in(folder: Path, cap: Fraction = Fraction(1)):
    ledger = ledger_at(folder / "ledger.sqlite")
    ledger.declare(PrivacyDomain("commuters", TRIP, Cap(rho=cap), "a table by mode and hour"))
    return ledger


def released(ledger, **changes) -> Release:
    given = {"segments": SEGMENTS, "release_id": R1, "flows": TRIPS} | changes
    budget = Budget(rho=RHO, delta="1e-8", shares="uniform")
    given |= {"unit": TRIP, "budget": budget, "ledger": ledger, "fault_threshold": 0}
    return release_flows(given.pop("flows"), GEOGRAPHY, **given)


def content(ledger, release: Release) -> tuple[str, ...]:
    """Digests of the measurement files by the number of their query, and of all released tables."""
    folder = ledger.path.parent / "confidential" / "commuters" / "2001-06" / "r1"
    files = {file.name.split(".")[0]: file.read_bytes() for file in folder.glob("noisy_measurement_*.draw_*.parquet")}
    assert len(files) == len(NUMBERS)
    tables = [release.flows_at("zone", "zone", segment=name, interval=True) for name in SEGMENTS]
    parts = [files[name] for name in sorted(files)] + [table.to_csv().encode() for table in (release.flows, *tables)]
    return tuple(hashlib.sha256(part).hexdigest() for part in parts)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[str, ...]:
    """The content of a release that nothing stopped."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenDPNoise, "draw", lambda _, *asked: SeededNoise(5).draw(*asked))
        ledger = ledger_in(tmp_path_factory.mktemp("undisturbed"))
        return content(ledger, released(ledger))


def test_every_query_is_drawn_and_charged_once_and_replayed(tmp_path, drawn):
    """All are reserved before the first draw and charged alike, to the whole budget; a second call reads all."""
    ledger = ledger_in(tmp_path)
    release = released(ledger)
    first, history, count = content(ledger, release), rows(ledger.path), len(drawn)
    assert [step.number for step in release.plan.steps] == NUMBERS
    asked: dict[int, int] = {}
    for number, size in drawn:
        asked[number] = asked.get(number, 0) + size
    assert list(asked) == NUMBERS
    assert asked == {number: CELLS[number % 5] * (1, 2, 3)[number // 5] for number in NUMBERS}
    assert charged(ledger.path) == release.spent.rho == RHO
    assert release.spent.levels == (RHO / len(NUMBERS),) * len(NUMBERS)
    assert states(ledger.path, R1) == dict.fromkeys(NUMBERS, "MEASURED")
    of_levels = [(row["kind"], row["level"]) for row in history if row["level"] is not None]
    assert of_levels[: len(NUMBERS)] == [("RESERVED", number) for number in NUMBERS]
    assert all(kind != "RESERVED" for kind, _ in of_levels[len(NUMBERS) :])
    assert_chain(ledger.path)
    resumed = ledger_at(ledger.path)
    assert content(resumed, released(resumed)) == first
    assert (rows(ledger.path), len(drawn)) == (history, count)


@pytest.mark.representatives("1", "14")
@pytest.mark.parametrize("lost", [5, 10, 1, 7, 14])
def test_a_lost_draw_is_charged_again_alone(tmp_path, undisturbed, drawn, monkeypatch, lost):
    """A process that ends within a draw pays for this query twice, and for no other."""
    draw = OpenDPNoise.draw

    def fails(self, variance, level, first, size):
        noise = draw(self, variance, level, first, size)
        if level == lost:
            raise Killed
        return noise

    ledger = ledger_in(tmp_path)
    monkeypatch.setattr(OpenDPNoise, "draw", fails)
    with pytest.raises(Killed):
        released(ledger)
    assert charged(ledger.path) == RHO
    monkeypatch.setattr(OpenDPNoise, "draw", draw)
    resumed = ledger_at(ledger.path)
    release, each = released(resumed), RHO / len(NUMBERS)
    order = list(dict.fromkeys(number for number, _ in drawn))
    assert order == NUMBERS
    assert release.spent.levels == tuple(each * (2 if number == lost else 1) for number in NUMBERS)
    assert release.spent.rho == charged(ledger.path) == RHO + each
    assert [row["level"] for row in rows(ledger.path) if row["kind"] == "RESERVED"] == [*NUMBERS, lost]
    assert content(resumed, release) == undisturbed
    assert_chain(ledger.path)


def test_killed_after_each_draw_and_resumed_it_is_the_same_release(tmp_path, undisturbed, drawn, monkeypatch):
    """Killed as often as there are queries, each time after one more is kept: none is drawn or charged twice."""
    once, ledger = DurableMeasurements.draw_once, ledger_in(tmp_path)
    for killed_after in NUMBERS:
        drawn.clear()

        def ends(self, step, draw, killed_after=killed_after):
            values = once(self, step, draw)
            if step.number == killed_after:
                raise Killed
            return values

        with monkeypatch.context() as patch:
            patch.setattr(DurableMeasurements, "draw_once", ends)
            with pytest.raises(Killed):
                released(ledger_at(ledger.path))
        assert {number for number, _ in drawn} == {killed_after}
    drawn.clear()
    release = released(ledger_at(ledger.path))
    assert drawn == []
    assert release.spent.rho == charged(ledger.path) == RHO
    assert content(ledger, release) == undisturbed
