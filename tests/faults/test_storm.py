"""Fifty kills at random times, 25 with each kind of ledger, from the first draw to the last rename."""

from __future__ import annotations

from fractions import Fraction

import pandas as pd

from od_core import open_release
from od_core.ledger.release_key import ReleaseKey
from od_core.published.verification import Published, verify_release
from tests.faults.account import assert_account, assert_resumed, charges, measurement_files
from tests.faults.publisher import publish
from tests.faults.worker import declare, released
from tests.od_core.ledger.ledger_rows import charged, rows, states

CAP = Fraction(100)


def assert_whole(folder, ledger, release_id) -> None:
    """Bundle and database hold what the measurements give."""
    expected = released(ledger, release_id)
    revision = ReleaseKey.parse(release_id).revision
    for back in (open_release(folder / f"releases/r{revision}"), open_release(folder / "release.duckdb", release_id)):
        pd.testing.assert_frame_equal(back.flows, expected.flows)
        pd.testing.assert_frame_equal(back.measurements, expected.measurements)


def test_a_storm_of_kills_never_draws_for_nothing(tmp_path, started, monkeypatch, engine):
    """No draw without its charge, no level measured twice, nothing measured lost, nothing half public."""
    ledger, seed = declare(tmp_path, CAP), {"sqlite": 7, "postgresql": 8}[engine]
    output, errors = started("storm", tmp_path, 25, seed).communicate(timeout=500)
    assert output.split().count("killed") == 25, errors
    assert charged(ledger.path) <= CAP
    releases = {row["release"] for row in rows(ledger.path) if row["kind"] == "DRAWING"}
    assert len(releases) >= 2
    seen = [path for path in (tmp_path / "releases").iterdir() if not path.name.startswith(".")]
    public = [path.name for path in seen if path.is_dir()]
    assert {f"{name}.zip" for name in public} <= {path.name for path in seen}
    for revision in public:
        assert_whole(tmp_path, ledger, f"commuters/2001-06/{revision}")
    for release_id in releases:
        assert_account(tmp_path, release_id)
        files = measurement_files(tmp_path, release_id)
        lost: list[int] = []
        for level, state in states(ledger.path, release_id).items():
            draws = charges(tmp_path, level, release_id)
            adopted = f"noisy_measurement_{level}.draw_{draws}.parquet" in files
            lost += [level] * (draws - 1 + (state == "DRAWING" and not adopted))
        assert_resumed(tmp_path, monkeypatch, lost=lost, release_id=release_id)
        key = ReleaseKey.parse(release_id)
        publish(tmp_path, key=key)
        bundle, measurements = tmp_path / f"releases/r{key.revision}", tmp_path / "confidential" / key.folder
        published = Published(key, bundle, tmp_path / "release.duckdb", ledger, measurements)
        assert [finding.fault for finding in verify_release(published)] == [None] * 7
    assert {row["release"] for row in rows(ledger.path) if row["kind"] == "PUBLISHED"} == releases
    assert charged(ledger.path) <= CAP
