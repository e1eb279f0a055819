"""Serve the reports and atlases of published releases beside the Dagster UI, read-only.

The route is behind the guard of the UI, so that only its operator can use it. It serves two files of a published
bundle, which are public, and lists nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path

from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from od_assets.metadata import REPORTS
from od_core.errors import OdError
from od_core.publication.bundle import ATLAS, REPORT
from od_core.published.opening import published_bundles

_NOTHING_ELSE = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_POLICIES = {
    # A report has inline styles and nothing else: no scripts, and nothing that is loaded.
    REPORT: _NOTHING_ELSE,
    # An atlas also has one script, whose digest the page states. In a sandbox, it has no access to the UI.
    ATLAS: f"{_NOTHING_ELSE}; script-src 'unsafe-inline'; worker-src blob:; sandbox allow-scripts allow-downloads",
}

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def with_reports(app: ASGIApp, releases: Path, published: Callable[[], Collection[str]]) -> ASGIApp:
    """Return an application that answers requests below ``REPORTS`` itself and passes on all others.

    Args:
        app: Dagster's web application.
        releases: folder of all public bundles.
        published: returns the keys, as text, of the releases that the ledger has published. A bundle of another
            release is not served, and derived flows only if all their releases are published.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and f"{scope['path']}/".startswith(f"{REPORTS}/"):
            await _report(scope["method"], scope["path"], releases, published)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return answer


def _report(method: str, path: str, releases: Path, published: Callable[[], Collection[str]]) -> Response:
    if method not in ("GET", "HEAD"):
        return PlainTextResponse("Reports can only be read.\n", 405, {"Allow": "GET, HEAD"})
    try:
        page = published_report(path, releases, published())
    except OdError as error:
        return PlainTextResponse(f"{error}\n", 503)
    if page is None:
        return PlainTextResponse("No published release has a report or an atlas at this address.\n", 404)
    headers = _HEADERS | {"Content-Security-Policy": _POLICIES[page.name]}
    return FileResponse(page, headers=headers, media_type="text/html; charset=utf-8")


def published_report(path: str, releases: Path, published: Collection[str]) -> Path | None:
    """Return the file at an address such as ``/od/reports/us_flights/2001-06/r1/report.html``; None if there is none.

    The address is compared with those of all published bundles, so that it never becomes a path. Symbolic links are not
    followed.
    """
    bundles = published_bundles(releases.resolve()).items()
    pages = {f"{REPORTS}/{key}/{name}": folder / name for key, folder in bundles for name in _POLICIES}
    page = pages.get(path)
    if page is None or not page.is_file() or page.resolve() != page:
        return None
    release = path.removeprefix(f"{REPORTS}/").rpartition("/")[0]
    if release not in published:
        sources = json.loads((page.parent / "certificate.json").read_bytes()).get("sources", [])
        if not sources or any(source["release"] not in published for source in sources):
            return None
    return page
