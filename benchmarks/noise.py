"""Measure the draws per second of each noise backend by sigma, beside the limits of the machine.

The limits are 64-bit words per second of AES-256-CTR and of the operating system's generator, and bytes copied per
second.

python -m benchmarks.noise --json
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from benchmarks.measuring import machine, peak_memory_gigabytes, printed, steps, timed
from od_core.noise.backends import BACKENDS
from od_core.noise.opendp import drawn
from od_core.noise.opendp_worker import GAUSSIAN
from od_core.parallel import on_one_thread, threads

SIGMAS = ("1", "10", "18.8", "100", "300", "1000")
BLOCK = 64 * 1024
"""Bytes encrypted at a time. They fit into the cache."""


def limits(megabytes: int, repeats: int) -> dict[str, float]:
    """Measure the limits of the machine on one thread."""
    zeros, block = bytes(BLOCK), bytearray(BLOCK + 15)
    encryptor = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
    blocks = megabytes * 1_000_000 // BLOCK
    source = np.ones(megabytes * 125_000, dtype=np.int64)
    target = np.empty_like(source)

    def encrypt() -> None:
        for _ in range(blocks):
            encryptor.update_into(zeros, block)

    def read() -> None:
        for _ in range(blocks):
            os.urandom(BLOCK)

    words = blocks * BLOCK / 8
    return {
        "aes_256_ctr_words_a_second": words / timed(encrypt, repeats=repeats)["median"],
        "urandom_words_a_second": words / timed(read, repeats=repeats)["median"],
        "memcpy_gigabytes_a_second": source.nbytes
        / timed(lambda: np.copyto(target, source), repeats=repeats)["median"]
        / 1e9,
    }


def opendp(sigma: str, size: int) -> object:
    """Draw in new processes, one for each processor. Starting them is included."""
    return drawn(GAUSSIAN, float(sigma), 1.0, size)


def opendp_in_one_process(sigma: str, size: int) -> object:
    """Draw in one new process. Starting it is included."""
    with on_one_thread():
        return drawn(GAUSSIAN, float(sigma), 1.0, size)


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="few draws, to see that it runs")
    options = parser.parse_args()
    slow, fast, megabytes, repeats = (2_048, 10**5, 10, 1) if options.small else (131_072, 2 * 10**7, 500, 5)
    machine_limits = limits(megabytes, repeats)
    results: dict[str, Any] = {
        "machine": machine(),
        "limits": machine_limits,
        "threads": threads(),
        "draws_a_second": {},
        "ratio_to_aes_words": {},
        "ratio_to_opendp": {},
    }
    cases: dict[str, tuple[Callable[[str, int], object], int]] = {
        "opendp, one process": (opendp_in_one_process, slow),
        "opendp, all processors": (opendp, slow),
    }
    if "table" in BACKENDS:
        table = BACKENDS["table"]()
        results["table_first_draw_seconds"] = {}
        for sigma in SIGMAS:  # the first draw of a variance builds its table
            start = time.perf_counter()
            table.draw(Fraction(sigma) ** 2, 1, 0, 1)
            results["table_first_draw_seconds"][sigma] = time.perf_counter() - start
        cases["table, one thread"] = (lambda sigma, size: table.draw(Fraction(sigma) ** 2, 1, 0, size), fast)
    else:
        results["table"] = "not there: skipped"

    runs = [(name, sigma) for name in cases for sigma in SIGMAS]
    for name, sigma in steps(runs, "noise"):
        draw, size = cases[name]
        # OpenDP is slow, so three repeats are enough.
        seconds = timed(lambda: draw(sigma, size), repeats=repeats if size == fast else min(repeats, 3))  # noqa: B023
        rate = size / seconds["median"]
        results["draws_a_second"].setdefault(name, {})[sigma] = rate
        aes = rate / machine_limits["aes_256_ctr_words_a_second"]
        results["ratio_to_aes_words"].setdefault(name, {})[sigma] = aes
        alone = results["draws_a_second"]["opendp, one process"][sigma]
        results["ratio_to_opendp"].setdefault(name, {})[sigma] = rate / alone
    results["peak_memory_gigabytes"] = peak_memory_gigabytes()
    printed(results, as_json=options.json)


if __name__ == "__main__":
    main()
