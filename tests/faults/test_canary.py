"""A planted zone and user are found nowhere outside the confidential folder of a job whose disk is full."""

from tests.od_assets.canary import leaks


def test_a_job_on_a_full_disk_holds_nothing_planted(tmp_path, started):
    """The records do not fit; Dagster's own files do."""
    output, errors = started("full_disk_project", tmp_path, 3_000_000).communicate(timeout=300)
    assert "OD-DISK-WRITE" in output, errors
    assert leaks(tmp_path, output + errors) == []
    [detail] = (tmp_path / "var" / "confidential" / "errors").iterdir()
    assert "raw_trips.parquet" in detail.read_text(encoding="utf-8")
