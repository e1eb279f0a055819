"""Freeze what programs read of the command line: the JSON of every command that has ``--json``.

    python -m tests.behaviour_of_commands > before.json      # in the checkout before a change that must change nothing
    python -m tests.behaviour_of_commands > after.json       # in the checkout after it; compare the two with diff

The commands run on a project in a temporary folder, with two released months. Noise, clock and keys are fixed as in
``tests.behaviour``; places, ids of runs and processes, and what the machine has are replaced.
"""

import json
import os
import re
import sys
import tempfile
from contextlib import ExitStack
from datetime import date
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import dagster as dg
import pandas as pd
import typer.main
from typer.testing import CliRunner

from od_assets import components
from od_assets.cli.app import app
from tests.behaviour import fixed
from tests.od_assets import conftest
from tests.projects import declare, declare_domain, make_dg_project, with_warehouse

MONTHS = ("2001-01", "2001-02")
TRIPS, STOPS = (
    declared | {"trips": declared["trips"] | {"one_row_a_trip": True}}
    for declared in (conftest.ATTRIBUTES, conftest.STOPS_ATTRIBUTES)
)
SERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "trips": ("OdRelease", TRIPS),
    "trips_by_mode": ("OdRelease", TRIPS | {"name": "trips_by_mode", "segments": conftest.SEGMENTS}),
    "departures": ("OdGroupSizes", conftest.GROUP_ATTRIBUTES),
    "journeys": ("OdStops", STOPS),
}
REFUSED = "refused"
"""A series whose input is refused, because nothing says whether a row is one trip."""
DECLARED = SERIES | {REFUSED: ("OdRelease", conftest.ATTRIBUTES | {"name": REFUSED})}
FLOWS, LATER = "trips/2001-01/r1", "trips/2001-02/r1"
TARGET = "region x region: flows >= 100 within 20 % in 90 %"

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("doctor",),
    ("doctor", "trips", "--period", "2001-01"),
    *(("plan", name) for name in SERIES),
    ("plan", "trips", "--target", TARGET, "--table", "synthetic", "--runs", "0"),
    ("status",),
    *(("run", name, "--all") for name in SERIES),
    ("run", "trips", "--period", "2001-01"),
    ("run", "trips", "--period", "2001-03"),
    ("run", REFUSED, "--period", "2001-01"),
    ("doctor", REFUSED, "--period", "2001-01"),
    ("status",),
    ("ledger",),
    ("ledger", "verify"),
    ("verify",),
    ("plan", "trips", "--target", TARGET, "--table", FLOWS, "--runs", "2"),
    ("forecast", "trips", "--epsilon", "1", "--runs", "2"),
    ("compare", FLOWS, LATER),
    ("compare", "trips_by_mode/2001-01/r1", "trips_by_mode/2001-02/r1", "--segment", "mode"),
    ("sum", "trips", "--periods", "2001-01..2001-02"),
    ("assist", "trips"),
    ("replicates", FLOWS, "--number", "2"),
    *((command, f"{name}/2001-01/r1") for command in ("explain", "disclose", "contract") for name in SERIES),
    ("status",),
    ("verify",),
    ("site", "--title", "Trips"),
    ("site", "--title", "Trips"),
    ("prune",),
    ("prune", "--older-than", "0", "--remove"),
    ("verify",),
    ("withdraw", LATER, "--reason", "a file was counted twice"),
    ("purge", "--dry-run"),
    ("purge", "--yes"),
    ("doctor",),
)
"""In the order in which they run."""

_REPLACED = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"\bprocess \d+"), "process NUMBER"),
    (re.compile(r"\d[\d.,]* (?=(GiB|GB|MB|seconds|s)\b)"), "NUMBER "),
    (re.compile(r"/errors/\w+"), "/errors/NUMBER"),
    (re.compile(r'"bytes": \d+'), '"bytes": "NUMBER"'),
)


def make_project(root: Path) -> None:
    """Declare series of all kinds in a folder, and write two months of records."""
    defs = make_dg_project(root)
    for name, (kind, attributes) in DECLARED.items():
        declare(defs, name, kind, attributes | {"noise": "table"})
    declare_domain(defs, conftest.DOMAIN | {"cap": conftest.DOMAIN["cap"] | {"rho": "3"}})
    conftest.ZONES.assign(longitude=range(len(conftest.ZONES)), latitude=range(len(conftest.ZONES))).to_csv(
        root / "zones.csv", index=False
    )
    one = conftest.records_by_mode()
    one["stop"] = one["origin"].to_numpy()[::-1]
    for number, month in enumerate(MONTHS):
        days = pd.to_datetime(one["date"]).dt.day.clip(upper=28)
        dates = [str(date(2001, 1 + number, day)) for day in days]
        one.iloc[: len(one) - 100 * number].assign(date=dates[: len(one) - 100 * number]).to_csv(
            root / f"{month}.csv", index=False
        )


def definitions() -> dg.Definitions:
    """Return the definitions of the declared series, which no code location of Dagster has."""
    declared = [
        getattr(components, kind).model_validate(attributes | {"noise": "table"}).build_defs(None)
        for kind, attributes in DECLARED.values()
    ]
    return with_warehouse(dg.Definitions.merge(*declared))


def commands_with_json() -> set[str]:
    """Return the names of the commands that have ``--json``."""
    found, waiting = set(), [((), typer.main.get_command(app))]
    while waiting:
        name, command = waiting.pop()
        if any("--json" in option.opts for option in command.params):
            found.add(" ".join(name))
        waiting += [((*name, part), one) for part, one in getattr(command, "commands", {}).items()]
    return found


def printed(command: tuple[str, ...], root: Path) -> Any:
    """Return what a command prints, its exit code and the error that refuses it, without what differs by machine."""
    result = CliRunner().invoke(app, [*command, "--json"])
    refused = None if isinstance(result.exception, (SystemExit, type(None))) else result.exception
    try:
        said = json.loads(result.stdout)
    except ValueError:
        said = result.stdout.splitlines()
    facts = {"exit_code": result.exit_code, "said": said, "refused": refused and f"{type(refused).__name__}: {refused}"}
    text = json.dumps(facts).replace(str(root), "PROJECT").replace(sys.prefix, "ENVIRONMENT")
    for pattern, name in _REPLACED:
        text = pattern.sub(name, text)
    return json.loads(text)


def main() -> None:
    """Print what each command prints. Fail where a command that has ``--json`` is not among them."""
    left_out = [name for name in commands_with_json() if not any(" ".join(one).startswith(name) for one in COMMANDS)]
    if left_out:
        raise SystemExit(f"commands without an example: {', '.join(sorted(left_out))}")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        root = Path(folder)
        names = {"OD_PROJECT": root, "OD_VAR": root / "var", "DAGSTER_HOME": root / "var" / "dagster"}
        stack.enter_context(patch.dict(os.environ, {name: str(place) for name, place in names.items()}))
        ids = (UUID(int=number) for number in count(1))
        for one in (*fixed(), patch("uuid.uuid4", partial(next, ids))):
            stack.enter_context(one)
        make_project(root)
        for module in ("runs.jobs", "cli.diagnosis"):
            stack.enter_context(patch(f"od_assets.{module}.load_definitions", definitions))
        found = [{"command": " ".join(command), **printed(command, root)} for command in COMMANDS]
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
