"""A soak: thousands of releases that are killed, disturbed or cut from power, run again, and looked at.

    python -m tests.faults.soak --kills 1000 --errors 1000 --cuts 1000 --seed 1

prints a summary, and each violation after the name of its trial, from which ``--only NAME`` repeats it.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.faults import soak_shim

if TYPE_CHECKING:
    from tests.faults.soak_trials import Soak, Trial

ROOT = Path(__file__).parents[2]
KINDS = ("flows", "group_sizes", "stops", "parts")
ROWS = ("kills", "errors", "cuts")


def asked(arguments: Sequence[str]) -> argparse.Namespace:
    """What is asked for on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__.partition("\n")[0])
    for row in ROWS:
        parser.add_argument(f"--{row}", type=int, default=0, metavar="N", help=f"how many {row}")
    parser.add_argument("--seed", type=int, default=1, help="of the choice of trials")
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, default=KINDS, help="kinds of releases, in turn; all if left out"
    )
    parser.add_argument("--server", action="store_true", help="ledgers in PostgreSQL, in place of SQLite files")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="repeat trials by their names")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the soak in a process that the library is loaded into; 0 where all held."""
    options = asked(arguments)
    if soak_shim.loaded():
        return soaked(options)
    if soak_shim.compiler() is None:
        print("no soak: it needs Linux and a C compiler")
        return 2
    return preloaded(["tests.faults.soak", *arguments]).returncode


def preloaded(module: Sequence[str], **options: bool) -> subprocess.CompletedProcess[str]:
    """Run a module of this folder, given with its arguments, with the library before all others."""
    with TemporaryDirectory(prefix="od-soak-") as name:
        library = soak_shim.build(Path(name))
        environment = os.environ | {"LD_PRELOAD": str(library), "OD_THREADS": "1"}  # one order of operations
        command = [sys.executable, "-m", *module]
        return subprocess.run(command, cwd=ROOT, env=environment, text=True, check=False, **options)


def soaked(options: argparse.Namespace) -> int:
    """Run all trials, and print what came of them."""
    from tests import postgres
    from tests.faults.soak_trials import Soak, Trial

    programs = postgres.programs() if options.server else None
    if options.server and programs is None:
        print("no soak: it needs PostgreSQL")
        return 2
    del os.environ["LD_PRELOAD"]  # noise workers are not watched: they write no file
    begun, memory = time.monotonic(), Path("/dev/shm")  # noqa: S108  # a file system, below which a folder is made
    named = [Trial.named(text) for text in options.only]
    options.kinds = sorted({trial.start.kind for trial in named}) or options.kinds
    summary = {row: Counter[str]() for row in ROWS}
    ended, violations = Counter[str](), 0
    with ExitStack() as stack:
        name = stack.enter_context(TemporaryDirectory(dir=memory if memory.is_dir() else None, prefix="od-soak-"))
        server = stack.enter_context(postgres.started(programs)) if programs else None
        soak = Soak(Path(name), options.kinds, server)
        trials = named if options.only else chosen(soak, options)
        for trial in until_interrupted(trials):
            outcome = soak.trial(trial)
            row = summary[_row(trial)]
            row["trials"] += 1
            row["met"] += bool(outcome.places)
            row["in a draw"] += "draw" in outcome.places
            row["drawing"] += not {"draw", "window"}.isdisjoint(outcome.places)
            row["draws"] += outcome.draws
            row["charges"] += outcome.charges
            row["violations"] += bool(outcome.violations)
            ended.update(_short(how) for how in outcome.ended)
            violations += bool(outcome.violations)
            for line in outcome.violations:
                print(f"{trial}  {line}", flush=True)
            if sum(row["trials"] for row in summary.values()) % 100 == 0:
                print(f"{trial} was the last of another hundred", file=sys.stderr, flush=True)
            if options.only:
                print(f"{trial}  {', '.join(outcome.ended)}", flush=True)
    columns = ("trials", "met", "in a draw", "drawing", "draws", "charges", "violations")
    print(f"{'':8}" + "".join(f"{column:>12}" for column in columns))
    for name, row in summary.items():
        print(f"{name:8}" + "".join(f"{row[column]:12}" for column in columns))
    print("ended: " + ", ".join(f"{how} {number}" for how, number in ended.most_common()))
    print(f"seed {options.seed}, {time.monotonic() - begun:.0f} seconds")
    return int(violations > 0)


def until_interrupted(trials: Iterable[Trial]) -> Iterator[Trial]:
    """Trials, until somebody asks for the summary by an interrupt."""
    asked_to_end: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: asked_to_end.append(number))
    for trial in trials:
        if asked_to_end:
            return
        yield trial


def chosen(soak: Soak, options: argparse.Namespace) -> Iterator[Trial]:
    """The trials of a seed: half at any operation, half so that rare ones are met as often as frequent ones."""
    from tests.faults.soak_trials import Start, Trial, places

    for row in ROWS:
        for number in range(getattr(options, row)):
            chance = random.Random(f"{options.seed} {row} {number}")  # noqa: S311  # to be repeated
            noise = "opendp" if chance.random() < 0.1 else "table"
            start = Start(options.kinds[number % len(options.kinds)], chance.choice(("first", "later")), noise)
            made = soak.undisturbed(start)
            if row == "cuts":
                cut = (chance.choice(("ordered", "strict", "strict")), _any(made, chance).number)
                killed = [("kill", _any(made, chance).number)] if chance.random() < 0.4 else []
                yield Trial(start, (*killed, cut), number)
                continue
            if row == "kills":
                draw = [one for one, place in zip(made, places(made), strict=True) if place == "draw"]
                window = [one for one, place in zip(made, places(made), strict=True) if place == "window"]
                fault = "kill" if chance.random() < 0.9 else "tear"
                where = chance.choices((draw, window, made), (20, 20, 60))[0] if fault == "kill" else made
            else:
                fault, where = chance.choice(("eio", "dead", "full", "short")), made
            faults = [(fault, _any([one for one in where if _applies(fault, one)], chance).number)]
            if chance.random() < 0.2:
                faults.append((chance.choice(("kill", "eio", "full")), chance.randint(1, len(made))))
            yield Trial(start, tuple(faults))


def _applies(fault: str, operation: soak_shim.Operation) -> bool:
    """Whether an operation can meet a fault and notice it."""
    kind = operation.kind
    if fault in ("tear", "short"):
        return kind == "WRITE" and len(operation.data) > (8192 if fault == "tear" else 1)
    return kind in ("WRITE", "CREATE", "MKDIR", "LINK") if fault == "full" else fault == "kill" or kind != "MARK"


def _any(operations: Sequence[soak_shim.Operation], chance: random.Random) -> soak_shim.Operation:
    """One of some operations; or one of a sort of them, each sort as likely: a kind on files that are named alike."""
    if chance.random() < 0.5:
        return chance.choice(operations)
    sorts: dict[tuple[str, str], list[soak_shim.Operation]] = {}
    for operation in operations:
        sort = operation.kind, re.sub(r"[0-9a-f]{8,}|[0-9]+", "#", operation.path)
        sorts.setdefault(sort, []).append(operation)
    return chance.choice(sorts[chance.choice(sorted(sorts))])


def _row(trial: Trial) -> str:
    if trial.seed is not None:
        return "cuts"
    return "kills" if trial.faults[0][0] in ("kill", "tear") else "errors"


def _short(how: str) -> str:
    """How a run ended, by the code of its error alone."""
    return how.partition(":")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
