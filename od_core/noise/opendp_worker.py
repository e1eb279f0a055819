"""Draw noise with OpenDP once and end; ``opendp_processes`` starts this program as a process.

It runs by its path with ``python -I -S`` and calls OpenDP's shared library through OpenDP's C interface. It imports
neither OpenDP's Python package nor NumPy, so that a start takes a quarter of the time. It never knows a count of trips.

The library takes its bits from OpenSSL's generator, which is seeded from the kernel at the process's first draw and
lives in the memory of the process. So a process that was forked, or restored from a copy of its memory, after its first
draw must never draw. This program is executed anew for each request and answers no second one.

Request and answer travel on a socket of their own: anybody may print to standard output, and one foreign byte there
would shift all the noise after it. The process ends when nobody is left to answer.
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
"""Distribution, scale, largest loss at sensitivity 1, count. The numbers are transferred bit by bit."""

ANSWER = struct.Struct("=d")
"""Scale that was drawn with, or NaN if no scale keeps the loss. The noise follows as 64-bit integers."""

PIECE = 16_384
"""Most draws at a time. They take about a sixth of a second, the longest that this process outlives its parent."""

_SCALES = 3
"""Number of scales tried, each the next above the last. The first is almost always within the loss."""

_SIGNIFICANT_BITS = 34
"""Significant bits of a scale. Three scales of this length stay within one part in 2^31 of the planned one."""


class _Result(ctypes.Structure):
    """The result of every function in OpenDP's C interface."""

    _fields_ = (("tag", ctypes.c_uint32), ("value", ctypes.c_void_p))


class _Slice(ctypes.Structure):
    """An array in OpenDP's C interface."""

    _fields_ = (("values", ctypes.c_void_p), ("length", ctypes.c_size_t))


class OpenDP:
    """A binding to OpenDP's discrete Gaussian and discrete Laplace noise on vectors of 64-bit integers.

    Args:
        library: path of OpenDP's shared library.
    """

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)

    def measurement(self, distribution: bytes, scale: float) -> ctypes.c_void_p:
        """Return OpenDP's measurement that adds noise of a scale. Raises RuntimeError if OpenDP refuses."""
        domain = self._call("domains__vector_domain", self._call("domains__atom_domain", None, None, b"i64"), None)
        if distribution == GAUSSIAN:
            metric, measure = self._call("metrics__l2_distance", b"f64"), b"ZeroConcentratedDivergence"
        else:
            metric, measure = self._call("metrics__l1_distance", b"i64"), b"MaxDivergence"
        name = "measurements__make_gaussian" if distribution == GAUSSIAN else "measurements__make_laplace"
        return self._call(name, domain, metric, ctypes.c_double(scale), None, measure)

    def loss(self, distribution: bytes, measurement: ctypes.c_void_p) -> float:
        """Return the loss of the noise at sensitivity 1, by OpenDP's own privacy map."""
        one, kind = (ctypes.c_double(1), b"f64") if distribution == GAUSSIAN else (ctypes.c_int64(1), b"i64")
        loss = self._call("core__measurement_map", measurement, self._object(one, 1, kind))
        return ctypes.c_double.from_buffer_copy(self._bytes(loss, 1)).value

    def draws(self, measurement: ctypes.c_void_p, count: int) -> bytes:
        """Return ``count`` independent draws as 64-bit integers: OpenDP's noise on zeros."""
        zeros = self._object((ctypes.c_int64 * count)(), count, b"Vec<i64>")
        noise = self._call("core__measurement_invoke", measurement, zeros)
        drawn = self._bytes(noise, count)
        for each in (zeros, noise):
            self._call("data__object_free", each)
        return drawn

    def _object(self, values: Any, length: int, kind: bytes) -> ctypes.c_void_p:
        """Return a copy of an array or a number as an OpenDP object."""
        given = _Slice(ctypes.addressof(values), length)
        return self._call("data__slice_as_object", ctypes.byref(given), kind)

    def _bytes(self, of: ctypes.c_void_p, length: int) -> bytes:
        """Return a copy of an object's values, 8 bytes each."""
        pointer = self._call("data__object_as_slice", of)
        found = _Slice.from_address(pointer.value or 0)
        if found.length != length:
            raise RuntimeError("OpenDP returned a different number of values than it received")
        copied = ctypes.string_at(found.values, 8 * length)
        self._call("data__slice_free", pointer)
        return copied

    def _call(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        function = getattr(self._library, f"opendp_{name}")
        function.restype = _Result
        result = function(*arguments)
        if result.tag:
            raise RuntimeError(f"OpenDP refused {name}")
        return ctypes.c_void_p(result.value)


def rounded_up(scale: float) -> float:
    """Round a scale up to few significant bits: OpenDP computes with fractions, and long ones cost time."""
    mantissa, exponent = math.frexp(scale)
    return math.ldexp(math.ceil(math.ldexp(mantissa, _SIGNIFICANT_BITS)), exponent - _SIGNIFICANT_BITS)


def next_scale(scale: float) -> float:
    """Return the smallest scale above this one that has few significant bits."""
    return rounded_up(math.nextafter(scale, math.inf))


def held_to_loss(
    opendp: OpenDP, distribution: bytes, scale: float, largest_loss: float
) -> tuple[float, ctypes.c_void_p | None]:
    """Return the first scale, from the given one upwards, whose loss OpenDP's own map allows, and its measurement.

    OpenDP accepts a scale of 0, which adds no noise, at an infinite loss: it is refused here. Nothing is drawn.

    Returns:
        The scale and the measurement, or NaN and None if none of the scales tried keeps the loss.
    """
    for _ in range(_SCALES):
        measurement = opendp.measurement(distribution, scale)
        if opendp.loss(distribution, measurement) <= largest_loss:
            return scale, measurement
        scale = next_scale(scale)
    return math.nan, None


def main() -> None:
    """Answer one request, with the library and on the socket that the two command-line arguments name."""
    line, request = int(sys.argv[2]), b""
    while len(request) < REQUEST.size:
        received = os.read(line, REQUEST.size - len(request))
        if not received:
            return
        request += received
    distribution, scale, largest_loss, count = REQUEST.unpack(request)
    opendp = OpenDP(sys.argv[1])
    used, measurement = held_to_loss(opendp, distribution, scale, largest_loss)
    try:
        _write(line, ANSWER.pack(used))
        while measurement is not None and count > 0:
            piece = min(count, PIECE)
            _write(line, opendp.draws(measurement, piece))
            count -= piece
    except BrokenPipeError:  # nobody is left to answer
        return


def _write(line: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(line, left) :]


if __name__ == "__main__":
    main()
