"""Measure each case of ``benchmarks.cases`` beside the last tagged state, and say what got slower by more than a tenth.

    make performance
    make performance AGAINST=COMMIT ONLY=month
    python -m benchmarks.performance --against COMMIT --only month --pairs 5

Each case runs in a process of its own, in both states in turn, so that a busy machine slows both down. A figure is the
median of its runs. The other state is unpacked below ``build/performance``, and uses the packages and the benchmarks of
this one. A case that it cannot run has no second figure. The table is ``docs/reference/tables/performance.csv``. The
exit code is 1 if something got slower.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.cases import CASES, DATA, ONCE
from benchmarks.measuring import machine, printed
from benchmarks.tables import write_csv

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs" / "reference" / "tables" / "performance.csv"
UNPACKED = ("od_core", "od_assets", "data", "pyproject.toml")
RUN = "from benchmarks.cases import main; main()"
SLOWER = 1.1


@dataclass(frozen=True)
class State:
    """A folder with the code of some commit, and the name by which git describes it."""

    name: str
    folder: Path


def state_at(commit: str, root: Path = ROOT) -> State:
    """Return a state of the past, unpacked."""
    name = _git(root, "describe", "--always", "--tags", commit)
    folder = root / "build" / "performance" / _git(root, "rev-parse", f"{commit}^{{commit}}")
    if not folder.exists():
        with TemporaryDirectory(dir=_made(folder.parent)) as temporary:
            packed, unpacked = Path(temporary, "state.tar"), Path(temporary, "state")
            _git(root, "archive", "--output", str(packed), commit, *UNPACKED)
            with tarfile.open(packed) as archive:
                archive.extractall(unpacked, filter="data")
            unpacked.rename(folder)
    return State(name, folder)


def run_case(state: State, arguments: Sequence[str], data: Path) -> dict[str, float] | str:
    """Return the figures of a case in a state, or the last line that it said if it failed.

    Raises:
        RuntimeError: The code of another folder was measured.
    """
    with TemporaryDirectory(prefix="od-benchmark-") as folder:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(state.folder), str(ROOT)]),
            "PYTHONSAFEPATH": "1",
            "PYTHONWARNINGS": "ignore",
            "OD_PROJECT": str(state.folder),
            "OD_VAR": str(Path(folder) / "var"),
            DATA: str(data),
        }
        environment.pop("DAGSTER_HOME", None)
        command = [sys.executable, "-c", RUN, *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603  # ourselves
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    facts = json.loads(done.stdout.strip().splitlines()[-1])
    if Path(facts["code"]) != state.folder:
        raise RuntimeError(f"the code of {facts['code']} was measured in place of {state.folder}")
    figures: dict[str, float] = facts["figures"]
    return figures


def measured(
    name: str, this: State, other: State | None, data: Path, *, pairs: int, small: bool = False
) -> list[dict[str, Any]]:
    """Return a row for each figure of a case: of this state, of the other, and their ratio."""
    found: dict[State, list[dict[str, float]]] = {this: []} if other is None else {this: [], other: []}
    for _ in range(1 if name in ONCE else pairs):
        _run_in_turn(name, found, data, small)
    runs = [found.get(state, []) if state else [] for state in (this, other)]
    return [
        {"case": name, "quantity": quantity}
        | compared(*(statistics.median(run[quantity] for run in own) if own else None for own in runs))
        for quantity in runs[0][0]
    ]


def _run_in_turn(name: str, found: dict[State, list[dict[str, float]]], data: Path, small: bool) -> None:
    """Run a case once in each state, of which the first is this one; leave out another that cannot run it."""
    for position, state in enumerate(list(found)):
        figures = run_case(state, [name, *(["--small"] if small else [])], data)
        if not isinstance(figures, str):
            found[state].append(figures)
        elif position == 0:
            raise SystemExit(f"{name}: {figures}")
        else:
            del found[state]
            print(f"{state.name} cannot run {name}: {figures}", file=sys.stderr)


def compared(this: float | None, other: float | None) -> dict[str, Any]:
    """Return two figures and their ratio, with three digits."""
    figures = {"this_state": this, "tagged_state": other, "ratio": this / other if this and other else None}
    return {name: None if figure is None else _rounded(figure) for name, figure in figures.items()}


def slower(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the figures that are more than a tenth above those of the tagged state."""
    return [
        f"{row['case']}, {row['quantity']}: {row['ratio']} times"
        for row in rows
        if row["ratio"] is not None and row["ratio"] > SLOWER
    ]


def main() -> None:
    """Run the cases, write the table and say what got slower."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="small data and this state alone, to see that it runs")
    parser.add_argument("--against", metavar="COMMIT", help="compare with this commit, not with the last tag")
    parser.add_argument("--only", metavar="TEXT", default="", help="only the cases with this text; nothing is written")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each case in each state")
    options = parser.parse_args()
    begun, before = datetime.now(UTC), machine()
    this = State(_git(ROOT, "describe", "--always", "--tags", "--dirty"), ROOT)
    if not (options.small or options.against or _git(ROOT, "tag", "--merged")):
        parser.error("no commit is tagged; name one with --against")
    other = None if options.small else state_at(options.against or _git(ROOT, "describe", "--tags", "--abbrev=0"))
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory(prefix="od-benchmark-data-") as data:
        for name in (name for name in CASES if options.only in name):
            pairs = 1 if options.small else options.pairs
            of_case = measured(name, this, other, Path(data), pairs=pairs, small=options.small)
            for row in of_case:
                print(*row.values(), sep=" | ", file=sys.stderr)
            rows += of_case
    minutes = (datetime.now(UTC) - begun).total_seconds() / 60
    if not (options.only or options.small):
        of = {"state": this.name, "tag": other.name if other else None, "date": f"{begun.date()}"}
        write_csv(TABLE, [row | of for row in rows])
    found = slower(rows)
    facts = {"machine": before, "this_state": this.name, "tagged_state": other.name if other else None}
    printed(facts | {"figures": rows, "slower": found, "minutes": minutes}, as_json=options.json)
    sys.exit(bool(found))


def _rounded(figure: float) -> float:
    return round(figure) if figure >= 100 else float(f"{figure:.3g}")


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _git(root: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=True, text=True).stdout.strip()  # noqa: S603  # git


if __name__ == "__main__":
    main()
