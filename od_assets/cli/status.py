"""The command ``od-release status``: print the state of every release and period."""

from __future__ import annotations

import json

import typer

from od_assets.cli.options import Json
from od_assets.terminal import printable
from od_core.errors import OdError


def status(as_json: Json = False) -> None:
    """Print the state, the measured levels and the spent rho of every release, and what its data set has left.

    Releases whose settings were changed since they were published or begun are named. Published releases that are no
    longer declared are listed, too, as are published flows that were derived from releases, which spend nothing. If a
    declaration has a fault, the others are printed all the same, and the exit code is 2.
    """
    from od_assets.cli.declared_series import declared_series
    from od_assets.cli.tables import print_status
    from od_assets.declared.named_component import refuse_wrong_type
    from od_assets.declared.reading import sound_series
    from od_assets.resources.folders import Folders
    from od_assets.runs.period_status import derived_status, period_status, release_status
    from od_assets.series.declared_names import RELEASES, component_type, declaration_files, declared_releases
    from od_core.ledger.release_key import ReleaseKey
    from od_core.published.opening import published_derived

    ledger = Folders().ledger
    rows, faults, sound = [], [], set()
    for name in declared_releases():
        try:
            series = sound_series(name)
            if series is not None:
                sound.add(name)
            rows += period_status(declared_series(name) if series is None else series, ledger)
        except OdError as error:
            faults.append(error)
    for path in declaration_files():
        if path.parent.name in sound and component_type(path) in RELEASES:
            continue  # its type was checked when it was read
        try:
            refuse_wrong_type(path)
        except OdError as error:
            faults += [] if str(error) in map(str, faults) else [error]
    listed = {row["release"] for row in rows}
    with ledger.one_look():
        rows += [release_status(ledger, key) for key in ledger.published() if str(key) not in listed]
    rows += [derived_status(key) for key in published_derived(Folders().releases)]
    rows.sort(key=lambda row: ReleaseKey.parse(row["release"]))
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        print_status(rows)
    for fault in faults:
        typer.echo(printable(str(fault)), err=True)
    if faults:
        raise typer.Exit(2)
