"""A publication killed at every point: what can be seen is whole, and the next run ends it without a draw."""

import signal
from fractions import Fraction

import pandas as pd
import pytest

from od_core import ReleaseError, open_release
from od_core.publication.bundle_files import check_bundle
from tests.faults.publisher import KEY, POINTS, publish
from tests.faults.worker import declare, released
from tests.od_core.ledger.ledger_rows import assert_chain, rows

MEANWHILE = "in the zip file"
"""The point that is reached while the database is written."""


def visible(folder):
    """What a reader of the public places finds."""
    places = [path for path in (folder / "releases").glob("*") if not path.name.startswith(".")]
    return {
        path.name: {file.name: file.read_bytes() for file in (path.rglob("*.*") if path.is_dir() else [path])}
        for path in places
    }


def in_database(folder):
    """Return the whole release that a reader of the database finds, or None if there is none."""
    try:
        return open_release(folder / "release.duckdb")
    except ReleaseError:
        return None


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_publication_is_ended_by_the_next_run(tmp_path, started, point):
    ledger = declare(tmp_path, Fraction(1))
    release, measured = released(ledger), rows(ledger.path)
    process = started("publisher", tmp_path, point)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, errors
    seen = visible(tmp_path)
    expected = {"after the rename": {"r1", "r1.zip"}, "before the rename": {"r1.zip"}}
    assert set(seen) == expected.get(point, set())
    assert not ledger.is_published(KEY)
    stored = in_database(tmp_path)
    if point != MEANWHILE:
        assert (stored is not None) == (POINTS.index(point) >= POINTS.index("after the store"))
    if stored is not None:
        pd.testing.assert_frame_equal(stored.measurements, release.measurements)

    for _ in range(2):
        publish(tmp_path)
        assert visible(tmp_path).keys() == {"r1", "r1.zip"}
        assert list(check_bundle(tmp_path / "releases" / "r1")) == []
        assert {path.name for path in (tmp_path / "releases").iterdir()} == {"r1", "r1.zip"}
        assert {name: visible(tmp_path)[name] for name in seen} == seen
        for place in ("releases/r1", "release.duckdb"):
            back = open_release(tmp_path / place)
            pd.testing.assert_frame_equal(back.flows, release.flows)
            pd.testing.assert_frame_equal(back.measurements, release.measurements)
    assert rows(ledger.path)[: len(measured)] == measured
    assert [row["kind"] for row in rows(ledger.path)[len(measured) :]] == ["PUBLISHED"]
    assert_chain(ledger.path)
