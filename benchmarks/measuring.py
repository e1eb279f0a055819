"""What every benchmark says of the machine it ran on, and how it takes time and memory."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


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


def peak_memory_gigabytes() -> float:
    """Most memory that this process has held, by the operating system."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
