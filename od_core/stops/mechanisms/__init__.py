"""List the mechanisms for trips with stops by name."""

from __future__ import annotations

from od_core.registry import Registry
from od_core.stops.mechanisms.daf import DAFEntropy, DAFHomogeneity
from od_core.stops.mechanisms.grids import EBP, EUG, MKM, Identity, Uniform
from od_core.stops.mechanisms.mechanism import StopsMechanism
from od_core.stops.mechanisms.privtree import PrivTree

MECHANISMS: Registry[StopsMechanism] = Registry(
    "trips with stops",
    {
        "identity": Identity,
        "uniform": Uniform,
        "eug": EUG,
        "ebp": EBP,
        "mkm": MKM,
        "daf_entropy": DAFEntropy,
        "daf_homogeneity": DAFHomogeneity,
        "privtree": PrivTree,
    },
)
