"""Publish the same flows with this project and with other software, and compare the tables, time and memory.

    make peers
    python -m benchmarks.peers --case flights --contender ours opendp_laplace --epsilon 1 --runs 3
    python -m benchmarks.peers --case norway taxis uk us_counties --epsilon 1 --data FOLDER --csv docs/reference/tables

``make peers`` installs each contender in an environment of its own first; one that is not there is a row that says so.
Runs are repeated while all runs of a row take at most 100 seconds of processor time. A contender whose program did not
finish is not tried with options that are listed after, or with data sets that are named after: name them from the
smallest to the largest. Nor is one that would need ten times the limit if its time grew as the number of pairs.
One trip is added or removed (unbounded neighbours), at delta 1e-6; a trip is replaced in the rows named ``bounded``.
Seconds are elapsed; beside other work on the machine, compare ``processor_seconds``, which are of all processes of a
contender, from its start.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.estimator import CASES, data_set, is_there
from benchmarks.measuring import machine, printed
from benchmarks.peers.contenders import CONTENDERS, Contender
from benchmarks.peers.given import DELTA, Levels, levels_of, write_given
from benchmarks.peers.limited import MOST_SECONDS, Used, run_limited
from benchmarks.peers.measures import consistent_share, level_measures, read_released
from benchmarks.tables import write_csv

NOT_INSTALLED = "not installed"
MOST_REPEATED_SECONDS = 100.0
"""Processor seconds of all runs of a row, after which none is repeated."""

HOPELESS = 10
"""A contender is not tried if it would need so many times the limit, judged by its time for fewer pairs."""

Figures = dict[str, float | list[float]]


def one_run(contender: Contender, folder: Path, levels: Levels) -> tuple[Used, Figures]:
    """Return what a run used and its measures, those of levels as lists, top level first; none if it failed."""
    with tempfile.TemporaryDirectory() as name:
        output = Path(name)
        command = [str(contender.python), str(contender.script), str(folder), name, contender.noise]
        used = run_limited(command, contender.environment_variables)
        if used.fault:
            return used, {}
        files = zip(levels.names, levels.codes, strict=True)
        released = [read_released(output / f"{level}.parquet", codes) for level, codes in files]
    measures = [level_measures(*pair) for pair in zip(released, levels.true, strict=True)]
    figures: Figures = {name: [level[name] for level in measures] for name in measures[0]}
    figures["consistent"] = consistent_share([each.trips for each in released], levels.parents)
    return used, figures


def checked(contender: Contender) -> str:
    """Return whether a published example of the contender gives what is published: ``yes``, or what went wrong."""
    used = run_limited(
        [str(contender.python), str(contender.script), "--check"], contender.environment_variables, most_seconds=180
    )
    return used.fault or "yes"


def row(
    contender: Contender, case: str, epsilon: str, folder: Path, levels: Levels, runs: int, check: str, why_not: str
) -> dict[str, Any]:
    """Return the figures of a contender: means over the runs, and the standard error of the leaf error.

    It does not run if ``why_not`` says why.
    """
    used, shown = list[Used](), list[Figures]()
    while not why_not and len(used) < runs:
        last, figures = one_run(contender, folder, levels)
        used.append(last)
        if last.fault:
            break
        shown.append(figures)
        if sum(each.processor_seconds for each in [*used, last]) > MOST_REPEATED_SECONDS:  # with one more run
            break
    fault = used[-1].fault if used else why_not
    result: dict[str, Any] = {
        "data_set": case,
        "epsilon": epsilon,
        "delta": DELTA,
        "contender": contender.name,
        "version": contender.version(),
        "options": contender.options,
        "example": check,
        "finished": {"time": "no, 10 minutes", "memory": "no, 8 GB", "": "yes"}.get(fault, f"no, {fault[:80]}"),
        "runs": len(shown),
    }
    for name in ("error", "error_cut", "largest", "covered", "width"):
        every = np.array([figures[name] for figures in shown])
        result[name] = every.mean(axis=0).tolist() if shown else None
        if name.startswith("error"):
            result[f"{name}_standard_error"] = (
                (every.std(axis=0, ddof=1) / len(shown) ** 0.5).tolist() if len(shown) > 1 else None
            )
    for name in ("negative", "false_discoveries", "false_negatives"):
        result[f"{name}_of_leaves"] = float(np.mean([figures[name][-1] for figures in shown])) if shown else None  # type: ignore[index]
    result["consistent"] = float(np.mean([figures["consistent"] for figures in shown])) if shown else None
    spent = np.mean([[each.seconds, each.processor_seconds] for each in used], axis=0).tolist() if used else [None] * 2
    return result | {
        "seconds": spent[0],
        "processor_seconds": spent[1],
        "gigabytes": max((each.gigabytes for each in used), default=None),
        "user_lines": contender.lines,
        "budget_survives_restart": "yes" if contender.survives_restart else "no",
        "replay": "yes" if contender.replays else "no",
    }


def why_not_tried(contender: Contender, pairs: int, tried: list[tuple[Contender, int, dict[str, Any]]]) -> str:
    """Return why a contender need not be tried on a data set; an empty text if it must.

    Args:
        contender: the contender.
        pairs: pairs of areas of the data set, at all levels.
        tried: contenders with the pairs of the data sets that they tried, and their figures.
    """
    order = CONTENDERS.index
    for other, others, figures in reversed(tried):
        if other.program == contender.program and order(other) <= order(contender) and figures["finished"] != "yes":
            return f"not tried: {other.name} did not finish {figures['data_set']}"
        seconds = min(figures["seconds"], figures["processor_seconds"])
        if other == contender and seconds * pairs / others > HOPELESS * MOST_SECONDS:
            times = f"{pairs / others:.0f} times the pairs"
            return f"not tried: {figures['data_set']} took {seconds:.0f} s, and these are {times}"
    return ""


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the figures of all data sets, epsilons and contenders that are asked for."""
    wanted = [each for each in CONTENDERS if each.name in options.contender]
    checks = {}
    for contender in wanted:
        checks[contender.name] = checked(contender) if contender.version() else NOT_INSTALLED
    tried = list[tuple[Contender, int, dict[str, Any]]]()
    for case in options.case:
        if not is_there(case, options.data):
            continue
        data = data_set(case, options.data, small=options.small)
        levels = levels_of(data)
        pairs = sum(table.size for table in levels.true)
        for epsilon in options.epsilon:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name) / "given"
                write_given(folder, data, epsilon)
                for contender in wanted:
                    print(f"{case}, epsilon {epsilon}: {contender.name}", file=sys.stderr)
                    check = checks[contender.name]
                    why_not = NOT_INSTALLED if check == NOT_INSTALLED else why_not_tried(contender, pairs, tried)
                    found = row(contender, case, epsilon, folder, levels, options.runs, check, why_not)
                    if not why_not:
                        tried.append((contender, pairs, found))
                    yield found


def in_csv(found: dict[str, Any]) -> dict[str, Any]:
    """Return a row for the CSV file: three digits, and the levels of a figure in one field."""

    def text(value: Any) -> Any:
        if isinstance(value, list):
            return " ".join(text(each) for each in value)
        if isinstance(value, float):
            return "" if np.isnan(value) else f"{value:.3g}"
        return "" if value is None else value

    return {name: text(value) for name, value in found.items()}


def written(path: Path, found: list[dict[str, Any]], cases: Sequence[str], names: Sequence[str]) -> None:
    """Write rows to a CSV file, in place of those of the same data set, epsilon and contender; others are kept.

    They are in the order of ``cases`` and of ``names`` of contenders. Rows of other contenders are left out.
    """
    kept = list[dict[str, Any]]()
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            kept = list(csv.DictReader(file))
    by_key = {
        (cases.index(each["data_set"]), float(each["epsilon"]), names.index(each["contender"])): each
        for each in [*kept, *found]
        if each["contender"] in names
    }
    write_csv(path, [by_key[key] for key in sorted(by_key)])


def compare(
    rows: Callable[[argparse.Namespace], Iterator[dict[str, Any]]],
    description: str | None,
    file: str,
    cases: Sequence[str],
    names: Sequence[str],
    *,
    usual: Sequence[str],
    runs: int,
    small: tuple[str, str],
) -> None:
    """Parse the arguments, run the contenders, write their rows to a CSV file if one is asked for, and print them.

    ``usual`` are the cases by default, and ``small`` the case and the contender of ``--small``.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="+", choices=cases, default=usual, metavar="NAME", help=", ".join(cases))
    parser.add_argument("--contender", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--epsilon", nargs="+", default=["1", "10"])
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where data are that are not of this repository")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help=f"write {file} here, too; its other rows are kept")
    parser.add_argument("--small", action="store_true", help="a small table, this project alone, to see that it runs")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.small:
        options.case, options.contender, options.epsilon, options.runs = [small[0]], [small[1]], ["1"], 1
    found = list[dict[str, Any]]()
    for each in rows(options):
        found.append(in_csv(each))
        if options.csv is not None:
            written(options.csv / file, found, cases, names)
    printed({"machine": machine(), "peers": found}, as_json=options.json)


def main() -> None:
    """Compare what protects one trip."""
    names = [each.name for each in CONTENDERS]
    compare(rows, __doc__, "peers.csv", CASES, names, usual=["flights"], runs=3, small=("binary", "ours"))


if __name__ == "__main__":
    main()
