"""The command ``od-release sum``: publish the sum of published releases of flows."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from od_assets.cli.options import Json
from od_assets.terminal import console
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
    from od_assets.cli.printing import print_guarantee
    from od_assets.cli.tables import print_rows
    from od_assets.project import current_project, releases_folder
    from od_core.ledger.release_key import ReleaseKey
    from od_core.periods import Period
    from od_core.published.sums import newest_releases, publish_sum

    place = releases_folder(current_project().var)
    if periods is None:
        period, keys = None, [ReleaseKey.parse(name) for name in releases]
    elif len(releases) == 1 and "/" not in releases[0]:
        period = periods.replace("..", "--")
        keys = newest_releases(place, releases[0], Period(period))
    else:
        raise OdError(
            "OD-SUM-NAMES",
            "--periods needs the name of one series",
            next_step="name a series with --periods, or name releases without it",
        )
    found = publish_sum(place, keys, period)
    if as_json:
        facts = {"release": str(found.key), "bundle": str(found.folder), "published_now": found.is_new}
        typer.echo(json.dumps(facts | {"certificate": found.certificate}, indent=2))
        return
    print_guarantee(found.certificate["guarantee"])
    console.print()
    summed = [
        {"release": stated["release"], "trips": int(release.leaves.trips.sum()), "epsilon": stated["epsilon"]}
        for stated, release in zip(found.certificate["sources"], found.total.releases, strict=True)
    ]
    trips = int(found.total.leaves.trips.sum())
    print_rows("Summed releases", summed)
    console.print(
        f"{found.key}: {trips:,} trips in {len(found.total.leaves):,} pairs of zones."
        f"{'' if found.is_new else ' It was published before, and its bundle is complete.'} Nothing was charged."
    )
    console.print(f"Bundle: {found.folder}", soft_wrap=True)
