"""Measure a case of ``make performance``, of the state of the code that is first on ``PYTHONPATH``.

:mod:`benchmarks.performance` runs each case in a process of its own, in a temporary folder. The code of the project is
imported where it is used. Most cases use its public interface alone, so that many earlier states can run them.
"""

from __future__ import annotations

import json
import os
import resource
import runpy
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from benchmarks.projects import write_project

if TYPE_CHECKING:
    import pandas as pd

Figures = dict[str, float]
"""Figures by their names, which say the units. The smaller, the better."""

DATA = "OD_BENCHMARK_DATA"
"""Environment variable of the folder with synthetic data, which the first process that needs them makes for all."""

SECONDS, MEMORY = "processor seconds", "peak MB"
SEED = 20010101
SERIES, PERIODS = "us_flights", ("2001-01", "2001-02")
RUN = ("-m", "od_assets.cli", "run", SERIES, "--period")
DEFINITIONS = "from od_assets.definitions import defs; defs()"
GRAPH = "from benchmarks.idle_job import write_graph; write_graph()"
IDLE = "from benchmarks.idle_job import main; main()"


def _italy(scale: float) -> Any:
    from od_core.evaluation.known_flows import make_italy_flows

    return make_italy_flows(SEED, scale=scale)


def _sections(scale: float) -> Any:
    from benchmarks.sections import italy_sections

    return italy_sections(SEED, scale=scale)


MADE: dict[str, tuple[Callable[[float], Any], float]] = {"italy": (_italy, 1.0), "sections": (_sections, 0.1)}
"""How synthetic flows are made, and at which scale."""


def _data(name: str, small: bool) -> tuple[Path, Path]:
    """Return the files of records and of zones."""
    folder = Path(os.environ[DATA])
    records, zones = folder / f"{name}.parquet", folder / f"{name}.csv"
    if not records.exists():  # in a process of its own, whose memory does not count
        asked = f"{name!r}, {small}, {str(records)!r}, {str(zones)!r}"
        used(["-c", f"from benchmarks.cases import make_data; make_data({asked})"])
    return records, zones


def make_data(name: str, small: bool, records: str, zones: str) -> None:
    """Write synthetic flows and their zones to files."""
    make, scale = MADE[name]
    flows = make(scale / 100 if small else scale)
    flows.geography.to_frame().to_csv(zones, index=False)
    flows.to_frame().to_parquet(records)


def released(name: str, small: bool, *, epsilon: str = "1", noise: str = "table", repeats: int = 7) -> Figures:
    """Measure ``release_flows`` from a frame: the median of some runs, after one that does not count."""
    frame, zones = _frames(name, small)
    from od_core import Budget, Geography, PrivacyUnit, release_flows

    geography = Geography.from_frame(zones, list(zones.columns))
    budget, unit, seconds = Budget(epsilon=epsilon, delta="1e-8"), PrivacyUnit("trip"), []
    for _ in range(2 if small else 1 + repeats):
        start = _own_seconds()
        release_flows(frame, geography, unit=unit, budget=budget, noise=noise, fault_threshold=0)
        seconds.append(_own_seconds() - start)
    return {SECONDS: statistics.median(seconds[1:]), MEMORY: _peak(resource.getrusage(resource.RUSAGE_SELF))}


def _frames(name: str, small: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    import pandas as pd

    if name == "flights":
        from benchmarks.flights import FLIGHTS, read_flights

        records, geography = read_flights(FLIGHTS)
        return records, geography.to_frame()[list(geography.levels)]
    records_path, zones = _data(name, small)
    return pd.read_parquet(records_path), pd.read_csv(zones, dtype=str)


def replicated(small: bool) -> Figures:
    """Measure a file of a hundred replicates of a release."""
    from benchmarks.estimator import data_set
    from benchmarks.replicates import costs

    found = costs(data_set("italy", None, small=small), "1")
    return {SECONDS: found["processor_seconds"], MEMORY: found["peak_memory_gigabytes"] * 1000}


def counted(small: bool) -> Figures:
    """Count calls of the project's functions, and opened files of the project and of ``var``, in a month's release."""
    del small
    import od_core

    checkout = Path(od_core.__file__).parents[1]
    packages = tuple(f"{checkout / name}/" for name in ("od_core", "od_assets"))
    ours = (*packages, f"{checkout / 'data'}/", f"{checkout / 'pyproject'}", f"{os.environ['OD_VAR']}/")
    found = {"calls": 0.0, "opens": 0.0}

    def count_call(frame: FrameType, event: str, _: object) -> None:
        found["calls"] += event == "call" and frame.f_code.co_filename.startswith(packages)

    def count_open(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            path = os.fsdecode(arguments[0])
            found["opens"] += path.startswith(ours) and not path.endswith((".py", ".pyc"))

    used([*RUN, PERIODS[0]], OD_VAR=f"{os.environ['OD_VAR']}-before")  # code is compiled
    sys.argv = ["od-release", *RUN[2:], PERIODS[0]]
    sys.addaudithook(count_open)
    threading.setprofile(count_call)
    sys.setprofile(count_call)
    try:
        runpy.run_module(RUN[1], run_name="__main__")
    except SystemExit as exit_:
        if exit_.code:
            raise
    finally:
        sys.setprofile(None)
    return dict(found)


def month(small: bool) -> Figures:
    """Measure the release of a month, and a job of the same assets and checks whose steps do nothing."""
    del small
    graph, home = Path("graph.json"), Path(os.environ["OD_VAR"]) / "dagster"
    used(["-c", GRAPH, str(graph), SERIES])
    used([*RUN, PERIODS[0]])  # code is compiled, and the tables of Dagster and of the ledger are made
    seconds, megabytes = used([*RUN, PERIODS[1]])
    idle, _ = used(["-c", IDLE, str(graph), PERIODS[1]], DAGSTER_HOME=str(home))
    return {SECONDS: seconds, MEMORY: megabytes, "times an idle job": seconds / idle}


def job(small: bool) -> Figures:
    """Measure a release through Dagster, from a file of flows to the checked bundle and the database."""
    records, zones = _data("italy", small)
    root = Path("project")
    attributes = {
        "name": "italy",
        "owners": ["team:benchmarks"],
        "trips": {"files": f"{records.parent}/{{period}}.parquet", "columns": {"trips": "trips"}},
        "geography": {"file": str(zones), "levels": zones.read_text(encoding="utf-8").split("\n", 1)[0].split(",")},
        "periods": {"first": "2001-06", "last": "2001-06"},
        "domain": "italy",
        "privacy": {"epsilon": "1", "delta": "1e-8"},
        "noise": "table",
    }
    write_project(root, {"name": "italy", "cap": {"rho": "1", "reason": "a benchmark"}}, [attributes])
    month_file = records.with_name("2001-06.parquet")
    if not month_file.exists():
        month_file.hardlink_to(records)
    path = os.pathsep.join([os.environ["PYTHONPATH"], str(root.absolute())])
    own = {"OD_PROJECT": str(root.absolute()), "PYTHONPATH": path}
    seconds, megabytes = used(["-m", "od_assets.cli", "run", "italy", "--all"], **own)
    return {SECONDS: seconds, MEMORY: megabytes}


def process(arguments: Sequence[str], small: bool) -> Figures:
    """Measure a process of Python, after one that does not count."""
    del small
    used(arguments)
    return {SECONDS: used(arguments)[0]}


def ledger(small: bool) -> Figures:
    """Measure a ledger of two releases of each of a hundred series."""
    from benchmarks.ledger import measured

    return _in_seconds(measured(4, 2) if small else measured(200, 100))


def site(small: bool) -> Figures:
    """Measure the web site of half a year."""
    from benchmarks.site import MONTHS, TRIPS, measured

    return _in_seconds(measured(MONTHS[:2] if small else MONTHS, 1_000 if small else TRIPS))


def noise(small: bool) -> Figures:
    """Measure a draw of each noise backend, on one thread and in one process."""
    from fractions import Fraction

    from od_core.noise.backends import resolve_noise_source
    from od_core.parallel import use_one_thread

    found: Figures = {}
    for name, size in (("table", 20_000_000), ("opendp", 100_000)):
        for sigma in ("1", "18.8", "1000"):
            source, seconds = resolve_noise_source(name), []
            for draws in (1, *[size // 100 if small else size] * 3):  # the first builds the table of its variance
                start = _own_seconds()
                with use_one_thread():
                    source.draw(Fraction(sigma) ** 2, 1, 0, draws)
                seconds.append((_own_seconds() - start) / draws)
            found[f"{name}, sigma {sigma}, processor ns a draw"] = statistics.median(seconds[1:]) * 1e9
    return found


def projection(small: bool) -> Figures:
    """Measure IntOpt and the Euclidean projection by fan-out, where three in ten children have trips."""
    from benchmarks.projection import CHUNK, PROJECTIONS, nanoseconds_of_a_child

    size = 20_000 if small else CHUNK
    return {
        f"{name}, fan-out {fan_out}, processor ns a child": nanoseconds_of_a_child(name, fan_out, 0.3, size)
        for name in PROJECTIONS
        for fan_out in (2, 20, 190)
    }


CASES: dict[str, Callable[[bool], Figures]] = {
    "release_flows, Italy, epsilon 1": partial(released, "italy"),
    "release_flows, Italy, epsilon 10": partial(released, "italy", epsilon="10"),
    "release_flows, sections, epsilon 1": partial(released, "sections", repeats=3),
    "release_flows, flights, opendp": partial(released, "flights", noise="opendp", repeats=1),
    "month": month,
    "month, counts": counted,
    "job, Italy": job,
    "definitions": partial(process, ["-c", DEFINITIONS]),
    **{
        f"od-release {words}": partial(process, ["-m", "od_assets.cli", *words.split()])
        for words in ("--version", "status", f"plan {SERIES}", f"doctor {SERIES}")
    },
    "ledger, 200 releases in 100 series": ledger,
    "site, 6 months": site,
    "replicates, Italy": replicated,
    "noise": noise,
    "projection": projection,
}

ONCE = ("month, counts",)
"""Cases whose figures are the same every time."""


def used(arguments: Sequence[str], **environment: str) -> tuple[float, float]:
    """Return the processor seconds of a process of Python and of its own processes, and its peak memory in MB."""
    command = [sys.executable, *arguments]
    process = subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.DEVNULL)  # noqa: S603  # our own
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return used.ru_utime + used.ru_stime, _peak(used)


def _own_seconds() -> float:
    """Return the processor seconds of this process and of those that it has started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _peak(used: resource.struct_rusage) -> float:
    return used.ru_maxrss / 1000


def _in_seconds(found: Figures) -> Figures:
    return {f"{name}, {SECONDS}": figure for name, figure in found.items()}


def main() -> None:
    """Print the figures of a case, and the folder of the code that it measured, as JSON on the last line."""
    import od_core

    figures = CASES[sys.argv[1]]("--small" in sys.argv)
    print(json.dumps({"code": str(Path(od_core.__file__).parents[1]), "figures": figures}))
