"""Measure one large release on one thread and on two, and on a machine that two other processes keep busy.

    python -m benchmarks.threads --json

Each setting runs :mod:`benchmarks.scale` in its own process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks.measuring import fresh_process, machine, printed, steps

SETTINGS = {
    "one thread": ("1", 0),
    "two threads": ("2", 0),
    "two threads, two busy processes": ("2", 2),
}
"""Threads of the release, and number of busy processes beside it."""

BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for _ in range(100_000):\n        pass"
"""Program that keeps a core busy until its parent process has ended, even if that is killed."""


@contextmanager
def busy_processes(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start processes that each keep one core busy, and end them on exit."""
    with ExitStack() as started:
        processes = []
        for _ in range(count):
            process = subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())])  # noqa: S603  # ourselves
            started.callback(process.wait)
            started.callback(process.kill)
            processes.append(process)
        yield processes


def main() -> None:
    """Run the settings one after another and print their seconds and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="a small table, to see that it runs")
    options = parser.parse_args()
    size = ["--small"] if options.small else ["--repeats", "3"]
    before = machine()  # before the busy processes add to the load
    settings: list[dict[str, Any]] = []
    for name, (threads, others) in steps(list(SETTINGS.items()), "threads"):
        with busy_processes(others):
            chosen = ["--case", "italy_sections", "--epsilon", "1", "--noise", "table", *size]
            case = json.loads(fresh_process("benchmarks.scale", *chosen, OD_THREADS=threads))["cases"][0]
        settings.append(
            {
                "setting": name,
                "threads": int(threads),
                "busy_processes": others,
                "seconds": case["seconds"]["total"],
                "seconds_without_ledger_and_files": case["seconds_without_ledger_and_files"],
            }
        )
    one, two, beside_others = settings
    without_files = "seconds_without_ledger_and_files"
    results = {
        "machine": before,
        "pairs": case["pairs"],
        "draws": case["draws"],
        "settings": settings,
        "ratio_of_one_thread_to_two": one["seconds"] / two["seconds"],
        "ratio_of_one_thread_to_two_without_ledger_and_files": one[without_files] / two[without_files],
        "ratio_of_beside_busy_processes_to_alone": beside_others["seconds"] / two["seconds"],
    }
    printed(results, as_json=options.json)


if __name__ == "__main__":
    main()
