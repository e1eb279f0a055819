"""Provide the mechanisms of flows and ``MECHANISMS``, a registry of them by name."""

from __future__ import annotations

from od_core.flows.mechanisms.baselines import TDAL2, StabilityHistogram, TDALinf, VanillaGauss
from od_core.flows.mechanisms.inftda import InfTDA, InfTDARefined
from od_core.flows.mechanisms.mechanism import Mechanism
from od_core.registry import Registry

__all__ = [
    "MECHANISMS",
    "TDAL2",
    "InfTDA",
    "InfTDARefined",
    "Mechanism",
    "StabilityHistogram",
    "TDALinf",
    "VanillaGauss",
]

MECHANISMS: Registry[Mechanism] = Registry(
    "flows",
    {kind.name: kind for kind in (InfTDA, InfTDARefined, TDAL2, TDALinf, VanillaGauss, StabilityHistogram)},
)
