"""Ten releases of one period against a cap that allows four."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from fractions import Fraction

import pytest

from od_core import OdError
from od_core.ledger.release_key import ReleaseKey
from od_core.noise.opendp import OpenDPNoise
from tests.faults.publisher import publish
from tests.faults.worker import BY_SEGMENT, RHO, charges_of, declare, released, side_file, watched
from tests.od_core.ledger.ledger_rows import charged, ledger_at, rows


@pytest.mark.usefixtures("engine")
def test_a_cap_for_four_publishes_four_and_draws_for_no_other(tmp_path, monkeypatch):
    """Room for a little less than a fifth; the numbers are said, and six refusals leave no trace."""
    ledger, left = declare(tmp_path, 5 * RHO - Fraction(1, 100)), RHO - Fraction(1, 100)
    for revision in range(1, 5):
        publish(tmp_path, key=ReleaseKey("commuters", "2001-06", revision))
    history = rows(ledger.path)
    for revision in range(5, 11):
        key = ReleaseKey("commuters", "2001-06", revision)
        monkeypatch.setattr(OpenDPNoise, "draw", watched(side_file(tmp_path, str(key))))
        with pytest.raises(OdError, match="OD-LEDGER-CAP") as refused:
            publish(tmp_path, key=key)
        for needed in (RHO, 4 * RHO):
            assert _six_digits(needed, ROUND_CEILING) in refused.value.message
        assert _six_digits(left, ROUND_FLOOR) in refused.value.message
        assert refused.value.spent == "nothing was spent"
        assert refused.value.next_step
        assert not side_file(tmp_path, str(key)).exists()
        assert not (tmp_path / "confidential" / str(key)).exists()
        assert rows(ledger.path) == history
    published = [f"r{revision}" for revision in range(1, 5)]
    assert {path.name for path in (tmp_path / "releases").iterdir()} == {*published, *(f"{r}.zip" for r in published)}
    assert charged(ledger.path) == 4 * RHO


def _six_digits(value: Fraction, rounding: str) -> str:
    return f"{Context(6, rounding).divide(value.numerator, value.denominator).normalize():f}"


@pytest.mark.usefixtures("engine")
def test_a_cap_that_allows_all_queries_but_one_by_segment_draws_none(tmp_path, monkeypatch):
    """All queries of a release are reserved together, those by segment, too; the cap is then used up to the last."""
    ledger = declare(tmp_path, RHO - min(charges_of(BY_SEGMENT).values()))
    monkeypatch.setattr(OpenDPNoise, "draw", watched(side_file(tmp_path, BY_SEGMENT)))
    history = rows(ledger.path)
    with pytest.raises(OdError, match="OD-LEDGER-CAP") as refused:
        released(ledger, BY_SEGMENT)
    assert refused.value.spent == "nothing was spent"
    assert not side_file(tmp_path, BY_SEGMENT).exists()
    assert not (tmp_path / "confidential" / BY_SEGMENT).exists()
    assert rows(ledger.path) == history
    declare(tmp_path, RHO, "the whole release")
    release = released(ledger_at(ledger.path), BY_SEGMENT)
    assert [step.number for step in release.plan.steps] == list(charges_of(BY_SEGMENT))
    assert charged(ledger.path) == RHO
