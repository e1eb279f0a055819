"""Slopes of growth, against times that follow a known law, and the figure."""

from __future__ import annotations

import pytest

from benchmarks.growth import FAMILIES, bytes_of_releases, slopes

_BLOCK = 256 * 1024
"""Bytes of a block of DuckDB."""


def points(power: float, fixed: float, family: str = "towns") -> list[dict[str, object]]:
    return [
        {"family": family, "cells": cells, "seconds": fixed + 1e-8 * cells**power, "fixed_seconds": fixed}
        for cells in (10**4, 10**6, 10**7, 2 * 10**7)
    ]


def all_families(power: float, fixed: float) -> list[dict[str, object]]:
    return [point for family in FAMILIES for point in points(power, fixed, family)]


@pytest.mark.parametrize("power", [0.5, 1.0, 1.3])
def test_slope_is_the_power(power):
    for row in slopes(all_families(power, fixed=0.0)):
        assert row["slope"] == pytest.approx(power)


def test_fixed_seconds_are_taken_off():
    for row in slopes(all_families(1.0, fixed=0.2)):
        assert row["slope"] < 0.7
        assert row["slope_without_fixed"] == pytest.approx(1.0)


def test_small_points_do_not_count():
    """Of ten thousand cells, at a time far off the line, while the largest have twenty million."""
    off = [point | {"seconds": 100.0} if point["cells"] == 10**4 else point for point in all_families(1.0, 0.0)]
    assert [row["slope"] for row in slopes(off)] == pytest.approx([1.0] * (len(FAMILIES) + 1))
    assert {row["points"] for row in slopes(off)} == {3, 3 * len(FAMILIES)}


def test_a_release_of_two_thousand_trips_takes_little_space():
    """At most 1.5 MB each in thirty, where the logs of all but seven have half a megabyte less than here.

    The database grows by whole blocks, so three releases may have one more than their share.
    """
    few, more = ({row["place"]: row["bytes"] for row in bytes_of_releases(number)} for number in (1, 4))
    places = {"confidential", "dagster, history", "data_docs", "release.duckdb", "releases", "releases, zip files"}
    assert places < more.keys()
    assert (more["all"] - few["all"]) / 3 < 1_500_000 + 500_000 + _BLOCK / 3
    for place in ("data_docs", "confidential"):
        assert (more[place] - few[place]) / 3 < 50_000
