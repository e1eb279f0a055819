"""A PostgreSQL server that goes away while a level is drawn: what was charged is known when it is back."""

import pytest

from od_core import OdError
from od_core.noise.opendp import OpenDPNoise
from tests.faults.account import assert_account, assert_resumed, measurement_files
from tests.faults.worker import RHO, declare, released, side_file, watched
from tests.od_core.ledger.ledger_rows import charged, ledger_at, states


@pytest.mark.parametrize("mode", ["immediate", "fast"])
@pytest.mark.parametrize("level", [1, 3])
def test_a_server_that_ends_during_a_draw_costs_no_further_draw(tmp_path, postgres, monkeypatch, level, mode):
    """The noisy values are in a durable file before the ledger is told, so the next run enters them."""
    postgres.new_ledger(tmp_path)
    ledger, draw = declare(tmp_path, RHO), watched(side_file(tmp_path))

    def draw_and_end(self, variance, at, first, size):
        values = draw(self, variance, at, first, size)
        if at == level:
            postgres.stop(mode)
        return values

    monkeypatch.setattr(OpenDPNoise, "draw", draw_and_end)
    with pytest.raises(OdError, match="OD-LEDGER-UNAVAILABLE:"):
        released(ledger)
    for _ in range(2):
        with pytest.raises(OdError, match="OD-LEDGER-UNAVAILABLE"):
            ledger_at(ledger.path)
    postgres.start()
    at = {k: "MEASURED" if k < level else "DRAWING" if k == level else "RESERVED" for k in (1, 2, 3, 4)}
    assert states(ledger.path, "commuters/2001-06/r1") == at
    assert charged(ledger.path) == RHO
    assert len(measurement_files(tmp_path)) == level
    assert_account(tmp_path)
    assert_resumed(tmp_path, monkeypatch)
