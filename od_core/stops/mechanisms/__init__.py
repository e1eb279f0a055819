"""The named mechanisms for trips with stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from od_core.registry import mechanism_of
from od_core.stops.mechanisms.daf import DAFEntropy, DAFHomogeneity
from od_core.stops.mechanisms.grids import EBP, EUG, MKM, Identity, Uniform
from od_core.stops.mechanisms.mechanism import StopsMechanism
from od_core.stops.mechanisms.privtree import PrivTree

MECHANISMS: dict[str, Callable[..., StopsMechanism]] = {
    "identity": Identity,
    "uniform": Uniform,
    "eug": EUG,
    "ebp": EBP,
    "mkm": MKM,
    "daf_entropy": DAFEntropy,
    "daf_homogeneity": DAFHomogeneity,
    "privtree": PrivTree,
}


def mechanism_named(name: str, **options: Any) -> StopsMechanism:
    """The mechanism of that name with its options. Raises OdError for an unknown name or option."""
    return mechanism_of(MECHANISMS, name, "trips with stops", options)
