"""Draws of two processes cloned into namespaces of their own, where both have the number of the process they are of.

Run as the first process of a PID namespace (``unshare --map-root-user --pid --fork``): then this process, which draws
before it is cloned, and both clones have the number 1, and nothing that a copied generator can see tells them apart.
It prints one line of JSON for each backend that is named: its draws, and those of the two clones.
"""

import ctypes
import json
import os
import sys
from fractions import Fraction

from od_core.noise.backends import NoiseSource, resolve_noise_source
from tests.od_core.doubles import SeededNoise

CLONE_NEWPID = 0x20000000
DRAWS = 200


def draws(source: NoiseSource) -> list[int]:
    return source.draw(Fraction(10**6), 1, 0, DRAWS).tolist()


def in_clone(source: NoiseSource) -> list[int]:
    """Draws of a clone that is the first process of a namespace within this one's."""
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWPID):
            os._exit(1)
        clone = os.fork()
        if clone == 0:
            with os.fdopen(writing, "w") as answer:
                json.dump([os.getpid(), draws(source)], answer)
            os._exit(0)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(clone, 0)[1]))
    os.close(writing)
    with os.fdopen(reading) as answer:
        pid, drawn = json.load(answer)
    os.waitpid(between, 0)
    if pid != os.getpid():
        sys.exit(f"the clone is process {pid}, and what it was cloned from is {os.getpid()}")
    return drawn


if __name__ == "__main__":
    for name in sys.argv[1:]:
        source = SeededNoise(1) if name == "seeded" else resolve_noise_source(name)
        print(json.dumps([draws(source), in_clone(source), in_clone(source)]), flush=True)
