"""The command ``od-release report``: open the report of a published release."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from od_assets.cli.options import Period
from od_assets.terminal import printable
from od_core.errors import OdError

if TYPE_CHECKING:
    from od_core.ledger.release_key import ReleaseKey


def report(
    release: Annotated[
        str | None, typer.Argument(help="Name of the release series; the release that was measured last if left out.")
    ] = None,
    period: Period = None,
) -> None:
    """Open the report of a published release in the browser, and print its path. Without a display, print only that."""
    from od_assets.resources.folders import Folders

    folders = Folders()
    page = newest_report(folders.releases, release, period, folders.database)
    typer.echo(printable(str(page)))
    if has_display():
        webbrowser.open(page.as_uri())


def newest_report(releases: Path, release: str | None, period: str | None, database: Path | None = None) -> Path:
    """Return the report of the newest published release.

    Args:
        releases: folder of all public bundles.
        release: name of the series, of which the newest period and revision are chosen; None chooses the release that
            was measured last.
        period: period of the release; None chooses any.
        database: the release database, which knows published releases whose bundles are missing.

    Raises:
        OdError: no such release is published, or its bundle or its report is missing.
    """
    from od_core.publication.bundle import REPORT
    from od_core.publication.read_back import certificate_of, damaged, lost
    from od_core.published.opening import missing_bundles, published_bundles, zipped_bundles

    def asked(keys: Iterable[ReleaseKey]) -> list[ReleaseKey]:
        return [key for key in keys if release in (None, key.release) and period in (None, key.period)]

    bundles = published_bundles(releases)
    if release is not None:
        found = asked({*bundles, *zipped_bundles(releases)})
        key = max(found, default=None)
    else:
        found = asked(bundles)
        key = max(found, key=lambda one: str(certificate_of(bundles[one])["measured_at"]), default=None)
    if key is None:
        if missing := asked(missing_bundles(releases, database)):
            raise lost(missing)
        of, at = "" if release is None else f" of {release}", "" if period is None else f" for {period}"
        run = f"od-release run {release}" + ("" if period is None else f" --period {period}")
        raise OdError(
            "OD-RELEASE-ABSENT",
            f"no release{of}{at} is published here",
            next_step="od-release status lists the releases" if release is None else run,
        )
    if key not in bundles:
        raise lost([key])
    page = bundles[key].resolve() / REPORT
    if not page.is_file():
        raise damaged(key, f"{REPORT} is missing")
    return page


def has_display() -> bool:
    """Return whether a browser can open a window. Otherwise, one that runs in the terminal might start."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
