"""Collect the mechanisms by name."""

from __future__ import annotations

from collections.abc import Callable

from od_core.errors import OdError, nearest_known
from od_core.flows.mechanisms.baselines import TDAL2, StabilityHistogram, TDALinf, VanillaGauss
from od_core.flows.mechanisms.inftda import InfTDA, InfTDARefined
from od_core.flows.mechanisms.mechanism import Mechanism

__all__ = [
    "MECHANISMS",
    "TDAL2",
    "InfTDA",
    "InfTDARefined",
    "Mechanism",
    "StabilityHistogram",
    "TDALinf",
    "VanillaGauss",
    "mechanism_named",
]

MECHANISMS: dict[str, Callable[..., Mechanism]] = {
    mechanism.name: mechanism for mechanism in (InfTDA, InfTDARefined, TDAL2, TDALinf, VanillaGauss, StabilityHistogram)
}


def mechanism_named(mechanism: str | Mechanism) -> Mechanism:
    """Return the mechanism of that name with its default options, or the given mechanism itself.

    Raises:
        OdError: If no mechanism has that name.
    """
    if isinstance(mechanism, Mechanism):
        return mechanism
    if mechanism not in MECHANISMS:
        raise OdError(
            "OD-MECHANISM-UNKNOWN",
            f"there is no mechanism {mechanism!r} ({nearest_known(str(mechanism), tuple(MECHANISMS))})",
            next_step="choose a known mechanism",
        )
    return MECHANISMS[mechanism]()
