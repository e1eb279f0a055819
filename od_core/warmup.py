"""Release a few made-up trips with every mechanism, so that all kernels are compiled before the first real release."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from itertools import product
from typing import Literal, get_args

import numpy as np
import pandas as pd

from od_core.flows.mechanisms import MECHANISMS, InfTDA, InfTDARefined, Mechanism
from od_core.flows.release import release_flows
from od_core.geography.flow_tree import TreeOrder
from od_core.geography.geography import Geography
from od_core.group_sizes.mechanisms import MECHANISMS as GROUP_SIZE_MECHANISMS
from od_core.group_sizes.release import release_group_sizes
from od_core.kernels import remove_older_caches
from od_core.privacy.budget import Budget
from od_core.privacy.unit import PrivacyUnit
from od_core.stops.mechanisms import MECHANISMS as STOPS_MECHANISMS
from od_core.stops.release import release_stops

FLOW_MECHANISMS: tuple[Mechanism, ...] = (
    *(mechanism for mechanism in map(MECHANISMS.make, MECHANISMS) if not mechanism.finds_areas),  # no kernel of its own
    InfTDA("descending"),
    InfTDARefined(leaves="empirical_bayes"),
    InfTDARefined(estimate="auto"),  # compares all rules of estimation
)
"""Every mechanism for flows with its default options, and with the options that run other kernels."""

RELATIONS: tuple[Literal["bounded", "unbounded"], ...] = ("bounded", "unbounded")


def compile_all_kernels() -> None:
    """Compile every kernel: release made-up flows, group sizes and stops with every mechanism, and keep no result."""
    zones = pd.DataFrame({"region": list("AAABB"), "zone": ["a1", "a2", "a3", "b1", "b2"]}, dtype="str")
    small_geography = Geography.from_frame(zones, levels=["region", "zone"])
    many_codes = [f"{area}{number}" for number in range(1, 17) for area in "ab"]
    many_zones = pd.DataFrame({"region": list("AB" * 16), "zone": many_codes}, dtype="str")
    # Some rules of estimation learn only from a level of at least 1,000 cells, so their kernels need a large geography.
    large_geography = Geography.from_frame(many_zones, levels=["region", "zone"])
    unit = PrivacyUnit("trip")
    _release_example_flows(small_geography, large_geography, unit)
    groups = pd.DataFrame({"group": range(6), "area": ["a1", "a2", "a3", "b1", "b2", "b2"], "size": [0, 1, 1, 2, 5, 0]})
    pure = Budget(epsilon=1)
    for name in GROUP_SIZE_MECHANISMS:
        release_group_sizes(groups, small_geography, unit=unit, budget=pure, mechanism=name, top_code=4, noise="table")
    points = np.repeat([[0, 1], [3, 2]], 50, axis=0)
    for name in STOPS_MECHANISMS:
        release_stops(points, (4, 4), unit=unit, budget=pure, mechanism=name, noise="table")


def _release_example_flows(small: Geography, large: Geography, unit: PrivacyUnit) -> None:
    """Release made-up flows with each mechanism, tree order and neighbour relation, by segment, and with intervals.

    ``large`` is the geography for mechanisms that learn shares, and ``small`` that for all others.
    """
    flows = pd.DataFrame({"origin": ["a1", "a2", "b1"], "destination": ["b1", "a2", "a3"], "trips": [40, 7, 100]})
    budget = Budget(epsilon=1, delta="1e-8")
    release = partial(release_flows, budget=budget, noise="table")  # kernels are the same, and OpenDP starts processes
    for tree, neighbours, mechanism in product(get_args(TreeOrder), RELATIONS, FLOW_MECHANISMS):
        if tree == "both" and mechanism.leaf_dial is not None:
            continue  # refused
        geography = large if mechanism.shrinks else small
        release(flows, geography, unit=PrivacyUnit("trip", neighbours), mechanism=mechanism, tree=tree)
    by_mode = flows.assign(mode=["car", "bus", "car"])
    for profile in (None, Fraction(1)):
        mechanism = InfTDARefined(segment_profile=profile)
        release(by_mode, small, unit=unit, mechanism=mechanism, segments={"mode": ["car", "bus"]})
    for mechanism in (InfTDARefined(), InfTDARefined(keep_all_cap=0)):
        released = release(flows, large, unit=unit, mechanism=mechanism, area_totals="1/10")
        released.intervals.estimate_areas(1)
        next(released.replicates(1))


if __name__ == "__main__":
    remove_older_caches()
    compile_all_kernels()
