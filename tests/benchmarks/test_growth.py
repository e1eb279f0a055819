"""Growth of what a series stores."""

from benchmarks.growth import bytes_of_releases

_BLOCK = 256 * 1024
"""Bytes of a block of DuckDB."""


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
