"""The command ``od-release report``: open the report of a published release."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from od_assets.cli.options import Period
from od_assets.project import current_project, releases_folder
from od_assets.terminal import printable
from od_core.errors import OdError


def report(
    release: Annotated[
        str | None, typer.Argument(help="Name of the release series; the release that was measured last if left out.")
    ] = None,
    period: Period = None,
) -> None:
    """Open the report of a published release in the browser, and print its path. Without a display, print only that."""
    page = newest_report(releases_folder(current_project().var), release, period)
    typer.echo(printable(str(page)))
    if has_display():
        webbrowser.open(page.as_uri())


def newest_report(releases: Path, release: str | None, period: str | None) -> Path:
    """Return the report of the newest published release.

    Args:
        releases: folder of all public bundles.
        release: name of the series, of which the newest period and revision are chosen; None chooses the release that
            was measured last.
        period: period of the release; None chooses any.

    Raises:
        OdError: no such release is published, or its report is missing.
    """
    from od_core.publication.bundle import REPORT
    from od_core.publication.read_back import certificate_of
    from od_core.published.opening import published_bundles

    bundles = {
        key: folder
        for key, folder in published_bundles(releases).items()
        if release in (None, key.release) and period in (None, key.period)
    }
    if not bundles:
        of, at = "" if release is None else f" of {release}", "" if period is None else f" for {period}"
        run = f"od-release run {release}" + ("" if period is None else f" --period {period}")
        raise OdError(
            "OD-RELEASE-ABSENT",
            f"no release{of}{at} is published here",
            next_step="od-release status lists the releases" if release is None else run,
        )
    if release is None:
        key = max(bundles, key=lambda one: str(certificate_of(bundles[one])["measured_at"]))
    else:
        key = max(bundles)
    page = bundles[key].resolve() / REPORT
    if not page.is_file():
        raise OdError(
            "OD-BUNDLE-ABSENT",
            f"the report of {key} is missing, although the release is published",
            next_step=f"od-release run {key.release} --period {key.period} makes the bundle again and spends nothing",
        )
    return page


def has_display() -> bool:
    """Return whether a browser can open a window. Otherwise, one that runs in the terminal might start."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
