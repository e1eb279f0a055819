"""Define arguments and options that several commands share."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Release = Annotated[str, typer.Argument(help="Name of the release series; od-release status lists the names.")]
Period = Annotated[str | None, typer.Option(help="Period, such as 2001-06; the newest if left out.")]
NamedRelease = Annotated[
    str, typer.Argument(help="Name of a series, for its last release; or a release, such as us_flights/2001-06/r1.")
]
BundleOrRelease = Annotated[
    str, typer.Argument(help="Release, such as us_flights/2001-06/r1, or its bundle (a folder or .zip).")
]
