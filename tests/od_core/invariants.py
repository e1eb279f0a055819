"""Sums of flows at other levels, recomputed with pandas from a leaf table and the zone list."""

import pandas as pd

AIRPORT_LEVELS = ["all", "region", "division", "state", "airport"]


def areas_by_zone(zones: pd.DataFrame, names: list[str]) -> dict[str, dict[str, str]]:
    """For each level, the area of each zone, from the zone list alone."""
    by_zone = zones.assign(all="all").set_index(zones[names[-1]])
    return {name: by_zone[name].to_dict() for name in names}


def grouped(flows: pd.DataFrame, areas: dict[str, dict[str, str]], pair: tuple[str, str]) -> pd.Series:
    """Trips of every pair of areas of two levels that has any, by code."""
    keys = [flows["origin"].map(areas[pair[0]]), flows["destination"].map(areas[pair[1]])]
    return flows["trips"].groupby(keys).sum().sort_index()
