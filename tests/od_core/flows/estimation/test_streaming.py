"""A release does not tell how its work was cut: the same files, byte for byte, for any pieces and any threads."""

import hashlib

import pytest

from od_core import Budget, InfTDA, PrivacyUnit, ReleaseKey, plan_release, release_flows
from od_core.flows.release import run_plan
from od_core.geography import flow_tree
from od_core.ledger import measurements as noisy_vector
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.measurements import begin_release
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counting import count_trips
from tests.od_core.doubles import ListedNoise
from tests.od_core.ledger.ledger_rows import declared

KEY = ReleaseKey("flights", "2001-06")
WORK = [(1 << 17, "1"), (1 << 17, "2"), (500, "1"), (500, "2"), (61, "3")]


@pytest.mark.representatives("destination")
@pytest.mark.parametrize("order", ["destination", "origin"])
def test_the_same_noise_gives_the_same_files_for_any_pieces_and_threads(
    tmp_path, monkeypatch, flights, airport_geography, order
):
    """Noise is a function of level and position. Measurement files of several row groups, and the leaves."""
    monkeypatch.setattr(noisy_vector, "ROW_GROUP", 3000)
    noise = ListedNoise([int((k * k * 7919) % 9) - 4 for k in range(997)])
    budget = Budget(epsilon=1, delta="1e-8")
    given = {"unit": PrivacyUnit("trip"), "budget": budget, "mechanism": "inftda", "acceptance": NO_FAULTS}
    plan = plan_release(airport_geography, **given, tree=order)
    trips = count_trips(flights["2001-06"], plan.tree, one_row_a_trip=True)
    found = set()
    for number, (chunk, threads) in enumerate(WORK):
        monkeypatch.setattr(flow_tree, "CHILDREN_AT_ONCE", chunk)
        monkeypatch.setenv("OD_THREADS", threads)
        folder = tmp_path / str(number)
        ledger = declared(folder, "flights", plan.unit)
        confidential = ConfidentialFolder(folder / "confidential")
        measurements = begin_release(confidential, ledger, KEY, "flights", plan, trips)
        release = run_plan(plan, trips, noise, measurements)
        assert sum(len(m.noisy) for m in release.measured) > 20_000
        files = sorted(folder.rglob("noisy_measurement_*.parquet"))
        assert len(files) == 8
        digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
        leaves = release.leaves.origin, release.leaves.destination, release.leaves.trips
        found.add((*digests, *(column.tobytes() for column in leaves)))
    assert len(found) == 1


class FailsOnce(InfTDA):
    """A mechanism that fails at the first piece of level 2, and at no other."""

    failed = False

    def project(self, noisy, totals, offsets):
        if len(totals) > 1 and not FailsOnce.failed:
            FailsOnce.failed = True
            raise ValueError("not now")
        return super().project(noisy, totals, offsets)


def test_an_estimate_that_fails_does_not_lose_the_draw(tmp_path, flights, airport_geography, monkeypatch):
    """The measurement is kept first; the next call estimates it from its file, and draws and charges nothing."""
    monkeypatch.setattr(FailsOnce, "failed", False)
    ledger = declared(tmp_path, "flights", PrivacyUnit("trip"))
    asked = {"unit": PrivacyUnit("trip"), "budget": Budget(epsilon=1, delta="1e-8"), "mechanism": FailsOnce()}
    asked |= {"ledger": ledger, "release_id": str(KEY), "noise": "table", "fault_threshold": 0, "one_row_a_trip": True}
    with pytest.raises(ValueError, match="not now"):
        release_flows(flights["2001-06"], airport_geography, **asked)
    release = release_flows(flights["2001-06"], airport_geography, **asked)
    assert release.spent.rho == release.plan.spent.rho
    assert ledger.record(KEY).lost_draws == 0
    assert int(release.flows["trips"].sum()) == len(flights["2001-06"])
