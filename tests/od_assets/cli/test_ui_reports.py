"""Reports that ``od-release ui`` serves: those of published bundles, to its operator, and nothing else."""

import json
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from od_assets.cli.ui_server import guard_application, with_reports
from od_assets.metadata import REPORTS
from tests.od_assets.cli.asgi import Answer, ask

TOKEN, COOKIE = "t" * 32, "od_release_ui_3000"
KNOWN = {"host": "localhost:3000", "cookie": f"{COOKIE}={TOKEN}"}
KEY = "trips/2001-01/r1"
TEXT, SECRET = "<!DOCTYPE html><p>ü", "records of people"
DAGSTER = Starlette(routes=[Route("/{path:path}", lambda _request: PlainTextResponse("a page of Dagster"))])


@pytest.fixture
def releases(tmp_path) -> Path:
    """A folder of one published bundle, beside what nobody may read."""
    bundle = tmp_path / "releases" / KEY
    bundle.mkdir(parents=True)
    for name in ("report.html", "atlas.html"):
        (bundle / name).write_text(TEXT, encoding="utf-8")
    (bundle / "certificate.json").write_text("{}", encoding="utf-8")
    for place in ("confidential/trips/2001-01/r1", "releases/trips/2001-01/.r2", "releases/.staged/2001-01/r1"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "report.html").write_text(SECRET, encoding="utf-8")
    (tmp_path / "releases" / "trips" / "2001-02").mkdir()
    (tmp_path / "releases/trips/2001-02/r1").symlink_to(tmp_path / "confidential/trips/2001-01/r1")
    (tmp_path / "releases/trips/2001-02/r2").mkdir()
    (tmp_path / "releases/trips/2001-02/r2/report.html").symlink_to(
        tmp_path / "confidential/trips/2001-01/r1/report.html"
    )
    return tmp_path / "releases"


def asked(
    releases: Path,
    path: str,
    method: str = "GET",
    headers: dict[str, str] = KNOWN,
    published: tuple[str, ...] = (KEY, "trips/2001-02/r1", "trips/2001-02/r2"),
) -> Answer:
    """The answer of the whole application."""
    return ask(
        guard_application(with_reports(DAGSTER, releases, lambda: published), TOKEN, COOKIE), method, path, headers
    )


def test_a_release_that_the_ledger_has_not_published_is_not_served(releases):
    """Nor are derived flows of one: a bundle may be left over from a run that failed, or copied here."""
    report = f"{REPORTS}/{KEY}/report.html"
    assert asked(releases, report, published=())[0] == 404
    sources = [{"release": "trips/2000-12/r1"}, {"release": "trips/2000-11/r1"}]
    (releases / KEY / "certificate.json").write_text(json.dumps({"sources": sources}), encoding="utf-8")
    assert asked(releases, report, published=("trips/2000-12/r1",))[0] == 404
    assert asked(releases, report, published=("trips/2000-12/r1", "trips/2000-11/r1"))[::2] == (200, TEXT)


def test_the_report_of_a_published_release_is_read_and_runs_nothing(releases):
    status, headers, body = asked(releases, f"{REPORTS}/{KEY}/report.html")
    assert (status, body, headers["content-type"]) == (200, TEXT, "text/html; charset=utf-8")
    policy = headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "style-src 'unsafe-inline'", "frame-ancestors 'none'"} <= set(policy)
    assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert asked(releases, f"{REPORTS}/{KEY}/report.html", "HEAD")[::2] == (200, "")


def test_the_script_of_an_atlas_runs_apart_from_the_ui(releases):
    """In a sandbox without allow-same-origin, so that it can ask the UI for nothing."""
    status, headers, body = asked(releases, f"{REPORTS}/{KEY}/atlas.html")
    assert (status, body) == (200, TEXT)
    policy = headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "worker-src blob:", "sandbox allow-scripts allow-downloads"} <= set(policy)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/trips",
        "/trips/2001-01/r1",
        "/trips/2001-01/r1/",
        "/trips/2001-01/r1/certificate.json",
        "/trips/2001-01/r1/report.html/",
        "/trips/2001-01/r1/../r1/report.html",
        "/trips/2001-01//r1/report.html",
        "//trips/2001-01/r1/report.html",
        "/../confidential/trips/2001-01/r1/report.html",
        "/../../confidential/trips/2001-01/r1/report.html",
        "/%2e%2e/confidential/trips/2001-01/r1/report.html",
        "/trips/2001-01/.r2/report.html",
        "/.staged/2001-01/r1/report.html",
        "/trips/2001-02/r1/report.html",
        "/trips/2001-02/r2/report.html",
        "/trips/2001-03/r1/report.html",
        "/trips/2001-01/r" + "9" * 5000 + "/report.html",
        "/" + "t" * 5000 + "/2001-01/r1/report.html",
        "/trips/2001-01/r1/report.html\0",
    ],
)
def test_nothing_else_is_read_or_listed(releases, path):
    status, _, body = asked(releases, f"{REPORTS}{path}")
    assert (status, body) == (404, "No published release has a report or an atlas at this address.\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_reports_are_only_read(releases, method):
    assert asked(releases, f"{REPORTS}/{KEY}/report.html", method)[0] == 405
    assert (releases / KEY / "report.html").read_text(encoding="utf-8") == TEXT


@pytest.mark.parametrize(
    ("status", "changed"),
    [(401, {"cookie": ""}), (403, {"origin": "http://localhost:8000"}), (400, {"host": "evil.example:3000"})],
)
def test_the_guard_of_the_ui_stands_before_reports(releases, status, changed):
    found, _, body = asked(releases, f"{REPORTS}/{KEY}/report.html", headers=KNOWN | changed)
    assert found == status
    assert TEXT not in body


@pytest.mark.parametrize("path", ["/", "/od/reportsx/trips", "/assets/od/reports"])
def test_all_other_pages_are_those_of_dagster(releases, path):
    assert asked(releases, path)[::2] == (200, "a page of Dagster")
