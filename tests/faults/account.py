"""What must hold of draws, charges and measurement files, whatever happened."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from od_core.files.durable import compute_file_digest
from od_core.noise.opendp import OpenDPNoise
from tests.faults.worker import R1, RHO, charges_of, released, side_file, watched
from tests.od_core.ledger.ledger_rows import assert_chain, charged, ledger_at, reservations, rows, states


def drawn(folder, release_id=R1) -> Counter:
    """How often each step asked for random bits, in all processes."""
    side = side_file(folder, release_id)
    return Counter(map(int, side.read_text().split())) if side.exists() else Counter()


def measurement_files(folder, release_id=R1) -> dict[str, str]:
    place = folder / "confidential" / release_id
    return {path.name: compute_file_digest(path) for path in place.glob("noisy_measurement_*.parquet")}


def charges(folder, level, release_id=R1) -> int:
    return len(reservations(folder / "ledger.sqlite", level=level, release=release_id))


def assert_account(folder, release_id=R1) -> None:
    """No more draws than charges of any step; every measured one has the file that the ledger vouches for."""
    path, files = folder / "ledger.sqlite", measurement_files(folder, release_id)
    assert_chain(path)
    for level in charges_of(release_id):
        assert drawn(folder, release_id)[level] <= charges(folder, level, release_id)
    measured = [row for row in rows(path) if row["kind"] == "MEASURED" and row["release"] == release_id]
    assert len({row["level"] for row in measured}) == len(measured)
    for row in measured:
        assert files[f"noisy_measurement_{row['level']}.draw_{row['draw']}.parquet"] in row["content"]


def assert_resumed(folder, monkeypatch, *, lost: Sequence[int] = (), release_id=R1) -> None:
    """The release comes to its end, charged for the plan and the lost draws, and is the same ever after.

    ``lost`` has the number of a step for each of its lost draws; no other step is drawn or charged again.
    """
    monkeypatch.setattr(OpenDPNoise, "draw", watched(side_file(folder, release_id)))
    before, kept, path = drawn(folder, release_id), measurement_files(folder, release_id), folder / "ledger.sqlite"
    costs = charges_of(release_id)
    release = released(ledger_at(path), release_id)
    assert release.spent.rho == charged(path, release=release_id) == RHO + sum(costs[level] for level in lost)
    for level, rho in costs.items():
        assert charged(path, release=release_id, level=level) == (1 + lost.count(level)) * rho
    assert set(states(path, release_id).values()) == {"MEASURED"}
    assert measurement_files(folder, release_id).items() >= kept.items()
    for level in costs:
        has_file = any(name.startswith(f"noisy_measurement_{level}.") for name in kept)
        assert drawn(folder, release_id)[level] - before[level] == (0 if has_file else 1)
    assert_account(folder, release_id)
    draws, history = drawn(folder, release_id), rows(path)
    again = released(ledger_at(path), release_id)
    pd.testing.assert_frame_equal(again.measurements, release.measurements)
    pd.testing.assert_frame_equal(again.flows, release.flows)
    for name, trips in release.segments.items():
        assert np.array_equal(again.segments[name], trips)
    assert (drawn(folder, release_id), rows(path)) == (draws, history)
