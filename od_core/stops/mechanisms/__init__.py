"""List the mechanisms for trips with stops by name."""

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
    """Return the mechanism of that name with its options. Raises OdError if the name or an option is unknown."""
    return mechanism_of(MECHANISMS, name, "trips with stops", options)
