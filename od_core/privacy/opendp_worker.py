"""Draws by OpenDP, and a process that does nothing else (``opendp_pool`` starts a few of them).

Run by its path with ``python -P``: it imports OpenDP alone, never the package, which would cost a second and 150 MB.
A request is a law, a scale, a count and a token; the answer is the request once more, then so many 64-bit integers. No
count of trips is ever known here. Both travel on a socket of their own, whose number is the one argument: standard
output is anybody's to print to, and one foreign byte there would shift all the noise that follows.
Its bits come from the operating system, as everywhere in OpenDP. It ends with its input, and so with the process
that started it, however that one ends.
"""

from __future__ import annotations

import os
import socket
import struct
import sys

import numpy as np
import opendp.prelude as dp
from numpy.typing import NDArray

dp.enable_features("contrib")  # OpenDP asks that users of unvetted parts say so; these laws on integers are some

GAUSSIAN, LAPLACE = b"g", b"l"
REQUEST = struct.Struct("=cdq16s")
"""Law, scale, count, token. The scale crosses bit by bit, so the law drawn is the law that was checked."""


def mechanism(law: bytes, scale: float) -> dp.Measurement:
    """OpenDP's discrete Gaussian or discrete Laplace on vectors of 64-bit integers."""
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if law == GAUSSIAN:
        return dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)
    return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)


def draws(law: bytes, scale: float, count: int) -> NDArray[np.int64]:
    """So many independent draws of the law, shape (count,): OpenDP's noise on zeros."""
    if count == 0:
        return np.empty(0, dtype=np.int64)
    return np.asarray(mechanism(law, scale)(np.zeros(count, dtype=np.int64)), dtype=np.int64)


def main() -> None:
    """Answer requests until the input ends."""
    line = socket.socket(fileno=int(sys.argv[1]))
    while len(request := line.recv(REQUEST.size, socket.MSG_WAITALL)) == REQUEST.size:
        law, scale, count, _ = REQUEST.unpack(request)
        try:
            line.sendall(request + draws(law, scale, count).tobytes())
        except OSError:  # nobody is left to answer, nor to be told
            os._exit(0)


if __name__ == "__main__":
    main()
