"""The command ``od-release status``: print the state of every release and period."""

from __future__ import annotations

import json
from collections import Counter

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
    from od_assets.series.declared_names import COMPARISON, RELEASES, component_type, declaration_files
    from od_core.files.lock import is_locked
    from od_core.ledger.lock import LOCK_NAME
    from od_core.ledger.release_key import ReleaseKey
    from od_core.published.opening import published_derived

    ledger = Folders().ledger
    found, faults, sound = [], [], set()
    types = {path: component_type(path) for path in declaration_files()}
    declared = Counter(path.parent.name for path, kind in types.items() if kind in (*RELEASES, COMPARISON))
    of_releases = {path.parent.name: path for path, kind in types.items() if kind in RELEASES}
    for name, path in sorted(of_releases.items()):
        try:
            series = sound_series(path) if declared[name] == 1 else None
            if series is None:
                series = declared_series(name)
                series.settings()
            else:
                sound.add(path)
            found.append(series)
        except OdError as error:
            faults.append(error)
    for path in types:
        if path in sound:
            continue  # its type was checked when it was read
        try:
            refuse_wrong_type(path)
        except OdError as error:
            faults += [] if str(error) in map(str, faults) else [error]
    with ledger.one_look():
        states = ledger.states()
        rows = period_status(found, ledger, states)
    listed = {row["release"] for row in rows}
    public = (name for name, state in states.items() if state.is_published and name not in listed)
    rows += [release_status(ReleaseKey.parse(name), states[name]) for name in public]
    rows += [derived_status(key) for key in published_derived(Folders().releases)]
    rows.sort(key=lambda row: ReleaseKey.parse(row["release"]))
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        print_status(rows, may_run=is_locked(Folders().var / LOCK_NAME))
    for fault in faults:
        typer.echo(printable(str(fault)), err=True)
    if faults:
        raise typer.Exit(2)
