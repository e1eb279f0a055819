"""Describe the machine, measure time and memory, and print figures, for all benchmarks."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Table

from od_core.evaluation.comparison import read_peak_memory_gigabytes as read_peak_memory_gigabytes
from od_core.evaluation.comparison import reset_peak_memory as reset_peak_memory

Item = TypeVar("Item")

MILLION = 1_000_000


def machine() -> dict[str, Any]:
    """Return the processor, the cores, the Python version and the current load."""
    names = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }


def timed(work: Callable[[], object], *, repeats: int = 3) -> dict[str, float]:
    """Return the median, least and most seconds of several repeats, after one that does not count."""
    work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return {"median": statistics.median(seconds), "least": min(seconds), "most": max(seconds)}


def steps(items: Sequence[Item], title: str) -> Iterable[Item]:
    """Return the items with a progress bar on standard error."""
    return track(items, title, console=Console(stderr=True), transient=True)


def case_parser(documentation: str | None, cases: Iterable[str], epsilons: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of a benchmark that runs releases of several cases at several values of epsilon."""
    parser = argparse.ArgumentParser(description=documentation)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="small data and one run, to see that it runs")
    names = list(cases)
    parser.add_argument("--case", nargs="+", choices=names, default=["flights"], metavar="NAME", help=", ".join(names))
    parser.add_argument("--epsilon", nargs="+", default=epsilons)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the data of other cases are")
    return parser


def fresh_process(module: str, *arguments: str, **environment: str) -> str:
    """Return what a benchmark prints as JSON in its own process."""
    command = [sys.executable, "-m", module, "--json", *arguments]
    done = subprocess.run(  # noqa: S603  # ourselves
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, check=True, text=True
    )
    return done.stdout


def read_again(files: Sequence[Path], lists: Sequence[str]) -> dict[str, Any]:
    """Return figures that were printed as JSON: ``lists`` from all files, everything else from the first."""
    parts: list[dict[str, Any]] = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    return parts[0] | {name: [row for part in parts for row in part[name]] for name in lists}


def printed(results: dict[str, Any], *, as_json: bool) -> None:
    """Print the figures as JSON, or rows and groups of figures as tables and everything else on one line each."""
    if as_json:
        print(json.dumps(results, indent=2))
        return
    console = Console(markup=False, highlight=False)
    for name, value in results.items():
        rows = _rows(value)
        console.print(_table(name, rows) if rows else f"{_words(name)}: {_text(value)}")


def _rows(value: Any) -> list[dict[str, Any]]:
    """Return the rows of a table from a list of figures, or from figures by name; an empty list for anything else."""
    if isinstance(value, dict) and all(isinstance(figures, dict) for figures in value.values()):
        value = [{"": name} | figures for name, figures in value.items()]
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        return [_flat(row) for row in value]
    return []


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with the figures of its groups as further columns."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        inner = value if isinstance(value, dict) else None
        flat |= {name: value} if inner is None else {f"{name}, {part}": figure for part, figure in inner.items()}
    return flat


def _table(name: str, rows: list[dict[str, Any]]) -> Table:
    """Return a table with one line per row, or one column per row if there are more figures than rows."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [[_words(column) for column in columns]]
    lines += [[_text(row.get(column, "")) for column in columns] for row in rows]
    if len(columns) > len(rows):
        lines = [list(line) for line in zip(*lines, strict=True)]
    table = Table(title=_words(name), title_justify="left", box=SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column(lines[0][0], no_wrap=True)
    for heading in lines[0][1:]:
        table.add_column(_words(heading), justify="right", overflow="fold")
    for line in lines[1:]:
        table.add_row(*line)
    return table


def _words(name: str) -> str:
    return name.replace("_", " ")


def _text(value: Any) -> str:
    """Return a figure whole or with two or three digits, large ones in millions; lists and groups by item."""
    if value is None:
        return "-"
    if isinstance(value, dict):
        return ", ".join(f"{_words(name)} {_text(figure)}" for name, figure in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, (int, float)) and abs(value) >= MILLION:
        return f"{value / MILLION:,.1f} M"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 0.01 else f"{value:.2g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
