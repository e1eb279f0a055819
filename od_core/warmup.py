"""Release a few made-up trips with every mechanism, so that all kernels are compiled before the first real release."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from itertools import product
from typing import Literal

import numpy as np
import pandas as pd

from od_core.flows.mechanisms import MECHANISMS, InfTDA, InfTDARefined, Mechanism
from od_core.flows.release import release_flows
from od_core.geography.flow_tree import TreeOrder
from od_core.geography.geography import Geography
from od_core.group_sizes.mechanisms import MECHANISMS as GROUP_SIZE_MECHANISMS
from od_core.group_sizes.release import release_group_sizes
from od_core.kernels import remove_older
from od_core.privacy.budget import Budget
from od_core.privacy.unit import PrivacyUnit
from od_core.stops.mechanisms import MECHANISMS as STOPS_MECHANISMS
from od_core.stops.release import release_stops

FLOW_MECHANISMS: tuple[Mechanism, ...] = (
    *map(MECHANISMS.make, MECHANISMS),
    InfTDA("descending"),
    InfTDARefined(leaves="empirical_bayes"),
    InfTDARefined(estimate="auto"),  # compares all rules of estimation
)
"""Every mechanism for flows with its default options, and with the options that run other kernels."""

RELATIONS: tuple[Literal["bounded", "unbounded"], ...] = ("bounded", "unbounded")


def rehearse() -> None:
    """Release made-up flows, group sizes and stops with every mechanism, and discard the results."""
    zones = pd.DataFrame({"region": list("AAABB"), "zone": ["a1", "a2", "a3", "b1", "b2"]}, dtype="str")
    geography = Geography.from_frame(zones, levels=["region", "zone"])
    numbers = range(1, 17)  # levels of fewer than 1,000 cells are not learned from
    wide = pd.DataFrame(
        {"region": list("AB" * 16), "zone": [f"{area}{k}" for k in numbers for area in "ab"]}, dtype="str"
    )
    learned = Geography.from_frame(wide, levels=["region", "zone"])
    flows = pd.DataFrame({"origin": ["a1", "a2", "b1"], "destination": ["b1", "a2", "a3"], "trips": [40, 7, 100]})
    unit, budget = PrivacyUnit("trip"), Budget(epsilon=1, delta="1e-8")
    release = partial(release_flows, noise="table")  # no kernel depends on the backend, and OpenDP starts processes
    for plain in (InfTDA(), InfTDARefined()):
        release(flows, geography, unit=unit, budget=budget, mechanism=plain, tree="both")
    in_turn: tuple[TreeOrder, ...] = ("destination", "origin")
    for tree, neighbours, mechanism in product(in_turn, RELATIONS, FLOW_MECHANISMS):
        areas, other = learned if mechanism.shrinks else geography, PrivacyUnit("trip", neighbours)
        release(flows, areas, unit=other, budget=budget, mechanism=mechanism, tree=tree)
    for profile in (None, Fraction(1)):
        by_mode, mechanism = flows.assign(mode=["car", "bus", "car"]), InfTDARefined(segment_profile=profile)
        modes = {"mode": ["car", "bus"]}
        release(by_mode, geography, unit=unit, budget=budget, mechanism=mechanism, segments=modes)
    for mechanism in (InfTDARefined(), InfTDARefined(keep_all_cap=0)):
        releases = release(flows, learned, unit=unit, budget=budget, mechanism=mechanism)
        releases.intervals.estimate_areas(1)
        next(releases.replicates(1))
    groups = pd.DataFrame({"group": range(6), "area": ["a1", "a2", "a3", "b1", "b2", "b2"], "size": [0, 1, 1, 2, 5, 0]})
    pure = Budget(epsilon=1)
    for name in GROUP_SIZE_MECHANISMS:
        release_group_sizes(groups, geography, unit=unit, budget=pure, mechanism=name, top_code=4, noise="table")
    points = np.repeat([[0, 1], [3, 2]], 50, axis=0)
    for name in STOPS_MECHANISMS:
        release_stops(points, (4, 4), unit=unit, budget=pure, mechanism=name, noise="table")


if __name__ == "__main__":
    remove_older()
    rehearse()
