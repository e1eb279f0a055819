"""The command ``od-release assist``: publish model-assisted estimates of a published release of flows."""

from __future__ import annotations

from typing import Annotated

import typer

from od_assets.cli.options import Json, NamedRelease


def assist(
    release: NamedRelease,
    period: Annotated[
        str | None, typer.Option(help="Period to estimate, such as 2001-06; its newest revision.")
    ] = None,
    earlier: Annotated[
        int, typer.Option(min=0, help="Largest number of earlier releases to learn from; the latest are used.")
    ] = 11,
    as_json: Json = False,
) -> None:
    """Publish estimates of a published release of flows that also learn from the releases before it, as a bundle.

    They have less error than the released flows on average, most of all for small flows. They are computed from the
    public bundles alone: no record is read, no noise is drawn and no budget is charged. The release stays as it is. For
    changes between periods, compare the releases, not these estimates.
    """
    from od_assets.cli.named_bundles import refuse_lost
    from od_assets.cli.printing import print_derived
    from od_assets.project import current_project, releases_folder
    from od_core.published.assisted import publish_assisted
    from od_core.published.derived import named_release

    place = releases_folder(current_project().var)
    key = named_release(place, release, period)
    refuse_lost(key)
    print_derived(publish_assisted(place, key, earlier), "Releases that were used", as_json=as_json)
