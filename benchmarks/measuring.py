"""What every benchmark says of the machine it ran on, and how it takes time and memory."""

from __future__ import annotations

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

from rich.console import Console
from rich.progress import track

Item = TypeVar("Item")


def machine() -> dict[str, Any]:
    """Processor, cores, Python and the load of the machine now."""
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
    """Seconds of some repeats after one that does not count: median, least and most."""
    work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return {"median": statistics.median(seconds), "least": min(seconds), "most": max(seconds)}


def steps(items: Sequence[Item], title: str) -> Iterable[Item]:
    """The items, with a bar on standard error that says how far the benchmark is."""
    return track(items, title, console=Console(stderr=True), transient=True)


def fresh_process(module: str, *arguments: str, **environment: str) -> str:
    """What a benchmark prints as JSON in a process of its own."""
    command = [sys.executable, "-m", module, "--json", *arguments]
    done = subprocess.run(  # noqa: S603  # ourselves
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, check=True, text=True
    )
    return done.stdout


def printed(results: dict[str, Any], *, as_json: bool) -> None:
    """Print the figures as JSON, or one line each."""
    if as_json:
        print(json.dumps(results, indent=2))
        return
    for name, value in results.items():
        for entry in value if isinstance(value, list) else [value]:
            print(f"{name}: {entry}")


def peak_memory_gigabytes() -> float:
    """Most memory that this process has held, by the operating system, since the last reset."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) * 1024 / 1e9


def reset_peak_memory() -> None:
    """Forget the peak so far, which making the data has set."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
