"""``od-release report`` on published releases, in this process."""

import webbrowser

import pytest

from od_assets.cli.published import find_newest_report
from od_assets.project import find_current_project
from tests.od_assets.cli.commands import printed
from tests.published_flights import KEYS


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    """Addresses that the browser was asked to open."""
    addresses: list[str] = []
    monkeypatch.setattr(webbrowser, "open", addresses.append)
    return addresses


def test_the_newest_report_is_printed_and_opened_where_there_is_a_display(published_flights, monkeypatch, opened):
    monkeypatch.setenv("OD_VAR", str(published_flights))
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    older, newer = (published_flights.resolve() / "releases" / str(key) / "report.html" for key in sorted(KEYS))
    for arguments in (["us_flights"], ["us_flights", "--period", max(KEYS).period]):
        assert printed("report", *arguments) == f"{newer}\n"
    assert opened == []
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert printed("report", "us_flights", "--period", min(KEYS).period) == f"{older}\n"
    assert opened == [older.as_uri()]


def test_without_a_published_release_the_next_command_is_named(published_flights, monkeypatch, refused, opened):
    assert refused("report").startswith("OD-RELEASE-ABSENT: no release is published here")
    assert not find_current_project().var.exists()
    monkeypatch.setenv("OD_VAR", str(published_flights))
    monkeypatch.setenv("DISPLAY", ":0")
    said = refused("report", "us_flights", "--period", "1999-01")
    assert said.startswith("OD-RELEASE-ABSENT: no release of us_flights for 1999-01 is published here")
    assert "next: od-release run us_flights --period 1999-01]" in said
    assert "no release of us_departures is published here" in refused("report", "us_departures")
    assert "(did you mean 'us_flights'?)" in refused("report", "us_flihgts")
    assert opened == []


def test_without_a_name_the_release_that_was_measured_last_is_chosen(tmp_path):
    for key, at in {"b/2001-01/r1": "2001-02-01T00:00:01+00:00", "a/2001-02/r1": "2001-02-01T00:00:02+00:00"}.items():
        bundle = tmp_path / key
        bundle.mkdir(parents=True)
        (bundle / "certificate.json").write_text(f'{{"release": "{key}", "measured_at": "{at}"}}', encoding="utf-8")
        (bundle / "report.html").write_bytes(b"")
    assert find_newest_report(tmp_path, None, None) == tmp_path / "a/2001-02/r1/report.html"
    assert find_newest_report(tmp_path, None, "2001-01") == tmp_path / "b/2001-01/r1/report.html"
