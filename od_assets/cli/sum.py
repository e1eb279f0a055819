"""The command ``od-release sum``: publish the sum of published releases of flows."""

from __future__ import annotations

from typing import Annotated

import typer

from od_assets.cli.options import Json
from od_core.errors import OdError


def sum_command(
    releases: Annotated[
        list[str],
        typer.Argument(
            help="Name of a series, with --periods; or two or more releases, such as us_flights/2001-05/r1."
        ),
    ],
    periods: Annotated[
        str | None,
        typer.Option(help="Periods to sum, such as 2001-01..2001-06, or 2001 for a year; the newest revision of each."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Publish the sum of published releases of flows, such as a year from its months, as a bundle with intervals.

    It is computed from the public bundles alone: no record is read, no noise is drawn and no budget is charged. The
    same releases give the same bundle; after a new revision of one of them, the sum has a new revision, too.
    """
    from od_assets.cli.named_bundles import refuse_lost
    from od_assets.cli.printing import print_derived
    from od_assets.project import current_project, releases_folder
    from od_core.ledger.release_key import ReleaseKey
    from od_core.periods import Period
    from od_core.published.derived import newest_revisions
    from od_core.published.sums import newest_releases, publish_sum

    place = releases_folder(current_project().var)
    is_series = len(releases) == 1 and "/" not in releases[0]
    if periods is None and is_series:
        newest_revisions(place, releases[0])  # refuses a name of no series first
        raise OdError(
            "OD-SUM-NAMES",
            f"{releases[0]} is the name of a series, and --periods does not say which of its releases to sum",
            next_step=f"od-release sum {releases[0]} --periods FIRST..LAST, or name releases",
        )
    if periods is None:
        period, keys = None, [ReleaseKey.parse(name) for name in releases]
    elif is_series:
        period = periods.replace("..", "--")
        keys = newest_releases(place, releases[0], Period(period))
    else:
        raise OdError(
            "OD-SUM-NAMES",
            "--periods needs the name of one series",
            next_step="name a series with --periods, or name releases without it",
        )
    for key in keys:
        refuse_lost(key)
    print_derived(publish_sum(place, keys, period), "Summed releases", as_json=as_json)
