"""The command ``od-release site``: write a static web site of all published releases."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from od_assets.cli.options import Json


def site(
    to: Annotated[
        Path | None, typer.Option(help="Folder to write. By default, one below the folder of the project's output.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the site.")] = None,
    url: Annotated[
        str | None, typer.Option(help="Address at which you will publish the site, for its feed and its site map.")
    ] = None,
    publisher: Annotated[
        str | None, typer.Option(help="Organisation that publishes the releases. DCAT-AP requires it.")
    ] = None,
    licence: Annotated[str | None, typer.Option(help="Address of the licence of all releases.")] = None,
    contact: Annotated[
        str | None, typer.Option(help="Address of mail or of the web where readers ask about the releases.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a static web site of all published releases: pages, all files, a catalogue for programs and a feed.

    Copy its folder to any web server. The site is made from the public bundles alone. Run the command again after a
    release: files that are there already are left alone. What you leave out is as declared by OdSite, if it is. If the
    bundle of a published release is missing or damaged, the others are written all the same, and the exit code is 2.
    """
    from od_assets.components.declarations import declared_site
    from od_assets.resources.folders import Folders
    from od_assets.terminal import console
    from od_core.published.site import HOME, write_site

    given = {"title": title, "url": url, "publisher": publisher, "licence": licence, "contact": contact}
    declared = declared_site()
    described = replace(declared.described(), **{name: text for name, text in given.items() if text is not None})
    folders = Folders()
    written = write_site(folders.releases, to or declared.place(), described, folders.database)
    if as_json:
        facts = {"folder": str(written.folder), "series": written.series, "releases": written.releases}
        facts |= {"changed": written.changed, "left_out": list(map(str, written.left_out))}
        facts |= {"faults": {str(key): fault for key, fault in written.left_out.items()}}
        typer.echo(json.dumps(facts, indent=2))
    else:
        releases, files = written.releases, len(written.changed)
        console.print(
            f"{releases:,} release{'s' * (releases != 1)} of {written.series:,} series. {files:,}"
            f" {'file was' if files == 1 else 'files were'} written."
        )
        console.print(f"First page: {written.folder / HOME}", soft_wrap=True)
    written.refuse_left_out()
