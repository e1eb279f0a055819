"""release_flows with a ledger: charged once, replayed ever after, and refused rather than redrawn."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from od_core import Budget, Cap, OdError, PrivacyDomain, PrivacyUnit, ReleaseKey, release_flows
from od_core.noise.opendp import OpenDPNoise
from tests.od_core.doubles import SeededNoise
from tests.od_core.ledger import ledger_rows
from tests.od_core.ledger.ledger_rows import FLOWS, GEOGRAPHY, TRIP, charged, ledger_at, rows, states

R1 = "commuters/2001-06/r1"

pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.representatives("*sqlite*")]


def released(ledger, release_id=R1, flows=FLOWS, **changes):
    given = {"unit": TRIP, "budget": Budget(rho=Fraction(3, 7), delta="1e-8", shares="uniform")} | changes
    return release_flows(flows, GEOGRAPHY, ledger=ledger, release_id=release_id, **given, fault_threshold=0)


@pytest.fixture
def ledger(tmp_path):
    ledger = ledger_at(tmp_path / "ledger.sqlite")
    ledger.declare(PrivacyDomain("commuters", TRIP, Cap(rho=Fraction(1)), "a table and one correction"))
    return ledger


@pytest.fixture
def drawn(monkeypatch):
    """Sizes of all draws that the real backend is asked for."""
    sizes, draw = [], OpenDPNoise.draw

    def counted(self, variance, level, first, size):
        sizes.append((level, size))
        return draw(self, variance, level, first, size)

    monkeypatch.setattr(OpenDPNoise, "draw", counted)
    return sizes


def assert_same(one, other):
    pd.testing.assert_frame_equal(one.flows, other.flows)
    pd.testing.assert_frame_equal(one.measurements, other.measurements)
    assert one.spent == other.spent
    assert one.plan.digest == other.plan.digest


@pytest.mark.representatives("*unbounded")
@pytest.mark.parametrize("neighbours", ["bounded", "unbounded"])
def test_a_release_is_charged_once_and_replayed(tmp_path, drawn, neighbours):
    """Twice in this process and with new objects: same tables, same rows, no further draw; the noise is real."""
    ledger, unit = ledger_at(tmp_path / "ledger.sqlite"), PrivacyUnit("trip", neighbours)
    ledger.declare(PrivacyDomain("commuters", unit, Cap(rho=Fraction(1)), "a table and one correction"))
    first = released(ledger, unit=unit)
    levels = [level for level, _ in drawn]
    assert levels == ([0, 1, 2, 3, 4] if neighbours == "unbounded" else [1, 2, 3, 4])
    assert [size for level, size in drawn if level == 1] == [2]
    history = rows(ledger.path)
    for again in (ledger, ledger_at(ledger.path)):
        assert_same(released(again, unit=unit), first)
    assert len(drawn) == len(levels)
    assert rows(ledger.path) == history
    assert charged(ledger.path) == first.spent.rho == Fraction(3, 7)
    assert first.spent.levels == (Fraction(3, 7) / len(levels),) * len(levels)
    assert set(states(ledger.path, R1).values()) == {"MEASURED"}
    assert first.has_guarantee
    ledger_rows.assert_chain(ledger.path)


def test_another_revision_is_drawn_and_charged_again(ledger, drawn):
    """Its noise is its own; the third one passes the cap, and draws and keeps nothing."""
    first, second = released(ledger), released(ledger, "commuters/2001-06/r2")
    assert len(drawn) == 8
    assert not np.array_equal(first.measurements["noisy"], second.measurements["noisy"])
    assert charged(ledger.path) == 2 * Fraction(3, 7)
    before = rows(ledger.path)
    with pytest.raises(OdError, match="OD-LEDGER-CAP:"):
        released(ledger, "commuters/2001-06/r3")
    assert (len(drawn), rows(ledger.path)) == (8, before)
    assert not (ledger.path.parent / "confidential/commuters/2001-06/r3").exists()
    assert_same(released(ledger), first)
    assert_same(released(ledger, "commuters/2001-06/r2"), second)


REFUSED = {
    "OD-NOISE-UNCERTIFIED": {"noise": SeededNoise(1)},
    "OD-RELEASE-KEY": {"release_id": "commuters/2001-06"},
    "OD-DOMAIN-CONFLICT": {"unit": PrivacyUnit("trip", "unbounded")},
    "OD-TRIPS-WEIGHTS": {"unit": PrivacyUnit("user_period", "bounded", "person", 2), "flows": FLOWS.assign(person="p")},
    "OD-TRIPS-FAULTS": {"flows": FLOWS.assign(origin="nowhere")},
}


@pytest.mark.parametrize("code", REFUSED)
def test_what_is_refused_writes_and_draws_nothing(ledger, drawn, code):
    before = rows(ledger.path)
    with pytest.raises(OdError, match=f"{code}:"):
        released(ledger, **REFUSED[code])
    assert rows(ledger.path) == before
    assert drawn == []
    assert not list(ledger.path.parent.rglob("*.parquet"))


def test_a_lost_draw_stands_in_what_was_spent(ledger, drawn, monkeypatch):
    """A draw that ends in an error is paid for; the release says so, and is the same ever after."""
    draw = OpenDPNoise.draw

    def fails_at_three(self, variance, level, first, size):
        noise = draw(self, variance, level, first, size)
        if level == 3:
            raise MemoryError
        return noise

    monkeypatch.setattr(OpenDPNoise, "draw", fails_at_three)
    with pytest.raises(MemoryError):
        released(ledger)
    monkeypatch.setattr(OpenDPNoise, "draw", draw)
    release, quarter = released(ledger), Fraction(3, 28)
    assert [level for level, _ in drawn] == [1, 2, 3, 3, 4]
    assert release.spent.levels == (quarter, quarter, 2 * quarter, quarter)
    assert release.spent.rho == charged(ledger.path) == 5 * quarter
    assert release.plan.spent.rho == Fraction(3, 7)
    assert release.spent.epsilon_tight > release.plan.spent.epsilon_tight
    assert_same(released(ledger), release)


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "a/2001", "a/2001/r0", "a/2001/r01", "a/2001/1", "A/2001/r1", "a/../r1", "a/2001/r1/r1", "a//r1"),
        *("a b/2001/r1", "a/2001-06\n/r1", "a/2001/r-1", "a/2001/r1\n", "a/x/r1"),
    ],
)
def test_a_key_is_one_plain_name(text):
    with pytest.raises(OdError) as refused:
        ReleaseKey.parse(text)
    assert refused.value.code in {"OD-RELEASE-KEY", "OD-PERIOD-TEXT"}


@pytest.mark.parametrize("revision", [0, -1, True, 1.0, "1", None])
def test_a_revision_is_a_whole_number(revision):
    with pytest.raises(OdError, match="OD-RELEASE-KEY"):
        ReleaseKey("a", "2001", revision)


def test_the_backends_that_drew_are_read_from_the_ledger(ledger):
    """A setting that changed between two levels is told, not the setting of the last run."""
    key = ReleaseKey.parse(R1)
    assert released(ledger, noise="table").noise == "table"
    assert released(ledger, noise="opendp").noise == "table"  # replayed: OpenDP drew nothing
    assert ledger.read_noise_backends(key) == "table"
    second = "commuters/2001-06/r2"
    released(ledger, release_id=second, noise="opendp")
    assert ledger.read_noise_backends(ReleaseKey.parse(second)) == "opendp"
