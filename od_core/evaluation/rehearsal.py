"""A few made-up trips released in every way, so that all kernels are compiled before the first real release."""

from __future__ import annotations

from itertools import product
from typing import Literal, get_args

import pandas as pd

from od_core.compiled import remove_older
from od_core.flow_tree import TreeOrder
from od_core.geography import Geography
from od_core.mechanisms import InfTDA, InfTDARefined
from od_core.privacy.budget import Budget
from od_core.privacy.noise import BACKENDS
from od_core.privacy.unit import PrivacyUnit
from od_core.projection.chebyshev import ORDERS
from od_core.release import release_flows

MECHANISMS = (*map(InfTDA, ORDERS), InfTDARefined(), InfTDARefined(leaves="empirical_bayes"))
RELATIONS: tuple[Literal["bounded", "unbounded"], ...] = ("bounded", "unbounded")


def rehearse() -> None:
    """Release the trips and throw the results away."""
    zones = pd.DataFrame({"region": list("AAABB"), "zone": ["a1", "a2", "a3", "b1", "b2"]}, dtype="str")
    geography = Geography.from_frame(zones, levels=["region", "zone"])
    flows = pd.DataFrame({"origin": ["a1", "a2", "b1"], "destination": ["b1", "a2", "a3"], "trips": [40, 7, 100]})
    for tree, neighbours, mechanism, noise in product(get_args(TreeOrder), RELATIONS, MECHANISMS, BACKENDS):
        release_flows(
            flows,
            geography,
            unit=PrivacyUnit("trip", neighbours),
            budget=Budget(epsilon=1, delta="1e-8"),
            mechanism=mechanism,
            tree=tree,
            noise=noise,
        )


if __name__ == "__main__":
    remove_older()
    rehearse()
