"""Define the interface of noise sources, and list the backends that implement it by name."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.noise.opendp import OpenDPNoise, refuse_wrong_version
from od_core.noise.table_sampler import TableNoise
from od_core.registry import find_by_name


@runtime_checkable
class NoiseSource(Protocol):
    """A source of exact discrete Gaussian noise. It returns noise alone and never adds it to a count.

    Examples:
        >>> from od_core.noise.backends import resolve_noise_source
        >>> len(resolve_noise_source("table").draw(Fraction(4), level=0, first=0, size=5))
        5
    """

    def draw(self, variance: Fraction, level: int, first: int, size: int) -> NDArray[np.int64]:
        """Return independent discrete Gaussian noise for consecutive cells of a measured vector; shape (size,).

        The noise must not come from a generator of which a forked or copied process could have a copy. Real sources do
        not use ``level`` and ``first``. A test double may compute its noise from them, so that its noise does not
        depend on how the work is cut into pieces: ``level`` is the number of the step or, for the totals of a flow
        tree, the level of the cells, and ``first`` the position of the first cell in the measured vector.

        The noise may have 1 + ``opendp.VARIANCE_SLACK`` times the ``variance``, which the exact accounting covers.
        """
        ...


@runtime_checkable
class NodeNoiseSource(NoiseSource, Protocol):
    """A test double whose noise depends on the node, to compare releases that are cut into different parts."""

    def draw_nodes(self, variance: Fraction, level: int, first_rank: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return noise with the given variance for nodes of a level of the flow tree; shape (nodes,).

        ``first_rank`` is the position of each node's first leaf pair among all leaf pairs in tree order; shape
        (nodes,). For K categories, the values of a node with first rank r have the positions K * r to K * r + K - 1.
        """
        ...


@runtime_checkable
class LaplaceSource(NoiseSource, Protocol):
    """A source that also draws exact discrete Laplace noise, as every backend does.

    Examples:
        >>> from od_core.noise.backends import resolve_noise_source
        >>> len(resolve_noise_source("opendp").draw_laplace(Fraction(2), 5))
        5
    """

    def draw_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Return ``size`` independent draws of k, with P(k) proportional to exp(-|k| / scale); shape (size,)."""
        ...


@runtime_checkable
class PositionedLaplaceSource(LaplaceSource, Protocol):
    """A source for simulations, whose Laplace noise also follows from the position of the cells."""

    def draw_laplace_at(self, scale: Fraction, level: int, first: int, size: int) -> NDArray[np.int64]:
        """Return Laplace noise for consecutive cells of a measured vector; arguments as in :meth:`NoiseSource.draw`."""
        ...


BACKENDS: dict[str, type[OpenDPNoise] | type[TableNoise]] = {"opendp": OpenDPNoise, "table": TableNoise}


DRY_RUN = "dry_run"
"""Name of the noise of dry runs, which is public and protects nothing; :mod:`od_assets.testing` alone has it."""


def resolve_noise_source(noise: str | NoiseSource) -> NoiseSource:
    """Return a new noise source of the backend with this name, or the given source itself.

    Raises OdError if no backend has the name, or the installed OpenDP is known to draw wrong noise.
    """
    if isinstance(noise, NoiseSource):
        return noise
    step = "choose a known noise backend"
    backend = find_by_name("noise backend", noise, BACKENDS, code="OD-NOISE-UNKNOWN", next_step=step)
    if backend is OpenDPNoise:
        refuse_wrong_version()
    return backend()


def require_laplace_source(noise: NoiseSource) -> LaplaceSource:
    """Return the given noise source, typed as one of Laplace noise. Raises OdError if it cannot draw such noise."""
    if isinstance(noise, LaplaceSource):
        return noise
    message = "the mechanism needs discrete Laplace noise, but this noise source has no draw_laplace"
    raise OdError("OD-NOISE-LAPLACE", message, next_step="use a named noise backend")


def refuse_too_wide(source: NoiseSource, variances: Iterable[Fraction]) -> None:
    """Raise OdError if a variance is larger than the source's backend can draw; call it before anything is charged.

    Nothing is known of the limits of a source that is not a backend of this library, so it is never refused.
    """
    name = find_backend_name(source)
    if name is not None and max(variances) > BACKENDS[name].largest_variance:
        raise OdError(
            "OD-NOISE-TOO-WIDE",
            f"the plan needs noise with a variance above {BACKENDS[name].largest_variance}, the largest that backend"
            f" {name!r} draws",
            next_step="choose the noise backend opendp, or raise the budget",
        )


def find_backend_name(source: NoiseSource) -> str | None:
    """Return the name of the source's backend; None for a source that is no backend of this library.

    This library gives no guarantee for such a source.
    """
    for name, backend in BACKENDS.items():
        if type(source) is backend:
            return name
    return None


_NOISE_BOUND = 1 << 61
"""Exclusive bound on the absolute value of noise, so that sums with counts fit 64 bits."""


def check_noise(source: NoiseSource, drawn: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return the noise that a source has drawn, as an array to which counts may be added in place; shape (size,).

    The result is a copy if the source is not a backend of this library. Raises OdError if ``drawn`` is not one 64-bit
    integer per cell, or a value is too large to add to a count.
    """
    if not isinstance(drawn, np.ndarray) or drawn.dtype != np.int64 or drawn.shape != (size,):
        raise _make_noise_error("did not return one 64-bit integer per cell")
    if find_backend_name(source) is None:
        drawn = drawn.copy()  # counts are added in place, and the source may keep the array that it returned
    if size and (drawn.max() >= _NOISE_BOUND or drawn.min() <= -_NOISE_BOUND):
        raise _make_noise_error("returned values that are too large to add to a count")
    return drawn


def _make_noise_error(what: str) -> OdError:
    """Return the OdError for a source that breaks the contract; ``what`` says what it did."""
    message = f"the noise source {what}"
    return OdError("OD-NOISE-CONTRACT", message, next_step="correct the noise source", spent="the level stays charged")
