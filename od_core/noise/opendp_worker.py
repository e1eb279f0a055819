"""Draw noise with OpenDP once, as a program that ``opendp.py`` starts in a new process.

The program is run by its path with ``python -I -S``, and calls the C interface of OpenDP's shared library. It imports
neither OpenDP's Python package nor NumPy, so it starts four times as fast. It never receives a count of trips.

The library's generator is in the memory of the process. So after its first draw, a process must not be forked or
restored from a copy of its memory and then draw again. This program therefore answers only one request.

The request is read from standard input, and the answer is written to the file that is standard output at the start.
What a library prints goes elsewhere: one additional byte would shift all the noise after it.
"""

from __future__ import annotations

import ctypes
import math
import os
import struct
import sys
from typing import Any

GAUSSIAN, LAPLACE = b"g", b"l"

REQUEST = struct.Struct("=cddq")
"""Request: distribution, scale, largest loss at sensitivity 1, number of draws. Floats are sent without rounding."""

ANSWER = struct.Struct("=d")
"""Beginning of the answer: the scale used, or NaN if none is allowed. 64-bit integers of noise follow."""

DRAWS_PER_CALL = 16_384
"""Largest number of draws in one call of OpenDP, which limits the memory."""

_KILL_WITH_PARENT = 1, 9
"""``PR_SET_PDEATHSIG`` and ``SIGKILL`` of Linux: kill this process when the thread that started it ends."""

_SCALES_TO_TRY = 3
"""Number of scales to try, in ascending order. The first almost always has an allowed privacy loss."""

_SIGNIFICANT_BITS = 34
"""Number of significant bits of a scale. Three scales in a row stay within one part in 2^31 of the planned scale."""


class _Result(ctypes.Structure):
    """The result of every function in OpenDP's C interface."""

    _fields_ = (("tag", ctypes.c_uint32), ("value", ctypes.c_void_p))


class _Slice(ctypes.Structure):
    """An array in OpenDP's C interface."""

    _fields_ = (("values", ctypes.c_void_p), ("length", ctypes.c_size_t))


class OpenDP:
    """A binding to OpenDP's noise on vectors of 64-bit integers.

    A ``distribution`` is ``GAUSSIAN`` or ``LAPLACE``, the discrete Gaussian or discrete Laplace distribution.

    Args:
        library: path of OpenDP's shared library.
    """

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)

    def make_measurement(self, distribution: bytes, scale: float) -> ctypes.c_void_p:
        """Return OpenDP's measurement that adds noise with the given scale. Raises RuntimeError if OpenDP refuses."""
        domain = self._call("domains__vector_domain", self._call("domains__atom_domain", None, None, b"i64"), None)
        if distribution == GAUSSIAN:
            name, measure = "measurements__make_gaussian", b"ZeroConcentratedDivergence"
            metric = self._call("metrics__l2_distance", b"f64")
        else:
            name, measure = "measurements__make_laplace", b"MaxDivergence"
            metric = self._call("metrics__l1_distance", b"i64")
        return self._call(name, domain, metric, ctypes.c_double(scale), None, measure)

    def compute_loss(self, distribution: bytes, measurement: ctypes.c_void_p) -> float:
        """Return the privacy loss of a measurement at sensitivity 1, by OpenDP's own privacy map.

        It is rho for Gaussian noise, and epsilon for Laplace noise.
        """
        distance, kind = (ctypes.c_double(1), b"f64") if distribution == GAUSSIAN else (ctypes.c_int64(1), b"i64")
        loss = self._call("core__measurement_map", measurement, self._make_object(distance, 1, kind))
        return ctypes.c_double.from_buffer_copy(self._read_bytes(loss, 1)).value

    def draw_bytes(self, measurement: ctypes.c_void_p, count: int) -> bytes:
        """Return ``count`` independent draws, which are OpenDP's noise on zeros, as the bytes of 64-bit integers."""
        zeros = self._make_object((ctypes.c_int64 * count)(), count, b"Vec<i64>")
        noise = self._call("core__measurement_invoke", measurement, zeros)
        drawn = self._read_bytes(noise, count)
        for handle in (zeros, noise):
            self._call("data__object_free", handle)
        return drawn

    def _make_object(self, values: Any, length: int, kind: bytes) -> ctypes.c_void_p:
        """Copy the ``length`` values of a C array or number into an OpenDP object of the Rust type ``kind``."""
        slice_of_values = _Slice(ctypes.addressof(values), length)
        return self._call("data__slice_as_object", ctypes.byref(slice_of_values), kind)

    def _read_bytes(self, handle: ctypes.c_void_p, length: int) -> bytes:
        """Return the bytes of the ``length`` values of an OpenDP object, 8 bytes each.

        Raises RuntimeError if the object has another number of values.
        """
        pointer = self._call("data__object_as_slice", handle)
        values = _Slice.from_address(pointer.value or 0)
        if values.length != length:
            raise RuntimeError("OpenDP returned a different number of values than it received")
        copied = ctypes.string_at(values.values, 8 * length)
        self._call("data__slice_free", pointer)
        return copied

    def _call(self, name: str, *arguments: object) -> ctypes.c_void_p:
        """Return the result of a function of OpenDP's C interface, whose name is given without ``opendp_``.

        Raises RuntimeError if the function reports an error.
        """
        function = getattr(self._library, f"opendp_{name}")
        function.restype = _Result
        result = function(*arguments)
        if result.tag:
            raise RuntimeError(f"OpenDP refused {name}")
        return ctypes.c_void_p(result.value)


def round_up_scale(scale: float) -> float:
    """Return a scale rounded up to ``_SIGNIFICANT_BITS`` bits. OpenDP computes faster with short fractions."""
    mantissa, exponent = math.frexp(scale)
    return math.ldexp(math.ceil(math.ldexp(mantissa, _SIGNIFICANT_BITS)), exponent - _SIGNIFICANT_BITS)


def compute_next_scale(scale: float) -> float:
    """Return the smallest larger scale that has at most ``_SIGNIFICANT_BITS`` significant bits."""
    return round_up_scale(math.nextafter(scale, math.inf))


def find_smallest_scale(
    opendp: OpenDP, distribution: bytes, scale: float, largest_loss: float
) -> tuple[float, ctypes.c_void_p | None]:
    """Return the smallest scale with an allowed privacy loss, and OpenDP's measurement with it. Nothing is drawn.

    The scales tried are ``scale`` and the next larger ones, ``_SCALES_TO_TRY`` in all. If the loss of each is above
    ``largest_loss`` by OpenDP's privacy map at sensitivity 1, return NaN and None. A scale of 0, which adds no noise,
    has an infinite loss.
    """
    for _ in range(_SCALES_TO_TRY):
        measurement = opendp.make_measurement(distribution, scale)
        if opendp.compute_loss(distribution, measurement) <= largest_loss:
            return scale, measurement
        scale = compute_next_scale(scale)
    return math.nan, None


def main() -> None:
    """Read one request from standard input, and write its answer to the file that is standard output.

    The command-line arguments are the path of OpenDP's library, and the number (pid) of the parent process. This
    process is killed when its parent ends.
    """
    ctypes.CDLL(None).prctl(*_KILL_WITH_PARENT)
    request = sys.stdin.buffer.read(REQUEST.size)
    # If the parent ended before it could be watched, this process has another parent, and must not draw.
    if len(request) < REQUEST.size or os.getppid() != int(sys.argv[2]):
        return
    distribution, scale, largest_loss, count = REQUEST.unpack(request)
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        opendp = OpenDP(sys.argv[1])
        used, measurement = find_smallest_scale(opendp, distribution, scale, largest_loss)
        answer.write(ANSWER.pack(used))
        while measurement is not None and count > 0:
            piece = min(count, DRAWS_PER_CALL)
            answer.write(opendp.draw_bytes(measurement, piece))
            count -= piece


if __name__ == "__main__":
    main()
