"""The named mechanisms for trips with stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from od_core.named import mechanism_of
from od_core.stops.daf_entropy import DAFEntropy
from od_core.stops.daf_homogeneity import DAFHomogeneity
from od_core.stops.ebp import EBP
from od_core.stops.eug import EUG
from od_core.stops.identity import Identity
from od_core.stops.mechanism import StopsMechanism
from od_core.stops.mkm import MKM
from od_core.stops.privtree import PrivTree
from od_core.stops.uniform import Uniform

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
