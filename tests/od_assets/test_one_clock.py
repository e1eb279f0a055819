"""A data set has one clock: that of its first release that states one."""

from __future__ import annotations

from tests.od_assets.conftest import Project, failure_text, records


def test_releases_of_one_data_set_count_the_same_days(project: Project) -> None:
    """Flows by one clock and group sizes by another would charge a trip near midnight to two months; drawn is none."""
    project.write_records(records())
    months = {"first": "2001-01", "last": "2001-02"}
    flows = project.component(periods=months | {"time_zone": "Europe/Oslo"})
    assert project.run(flows).success
    other = project.group_sizes(periods=months | {"time_zone": "America/New_York"})
    assert "OD-DOMAIN-CONFLICT" in failure_text(project.run(other))
    assert not list((project.var / "confidential/departures").rglob("noisy_measurement*"))
