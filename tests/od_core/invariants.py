"""What every release of the real data must fulfil, recomputed with pandas from its leaf table and the zone list."""

from itertools import pairwise

import pandas as pd

from od_core import Release

AIRPORT_LEVELS = ["all", "region", "division", "state", "airport"]


def areas_by_zone(zones: pd.DataFrame, names: list[str]) -> dict[str, dict[str, str]]:
    """For each level, the area of each zone, from the zone list alone."""
    by_zone = zones.assign(all="all").set_index(zones[names[-1]])
    return {name: by_zone[name].to_dict() for name in names}


def grouped(flows: pd.DataFrame, areas: dict[str, dict[str, str]], pair: tuple[str, str]) -> pd.Series:
    """Trips of every pair of areas of two levels that has any, by code."""
    keys = [flows["origin"].map(areas[pair[0]]), flows["destination"].map(areas[pair[1]])]
    return flows["trips"].groupby(keys).sum().sort_index()


def indexed(table: pd.DataFrame, value: str) -> pd.Series:
    """A table of the library as a series by origin and destination; no pair stands twice."""
    series = table.set_index(["origin", "destination"])[value].sort_index()
    assert series.index.is_unique
    return series


def assert_invariants(release: Release, total: int, zones: pd.DataFrame, names: list[str] = AIRPORT_LEVELS) -> None:
    """Integers of at least 1 that sum to n, the same at every pair of levels; all public children measured."""
    areas = areas_by_zone(zones, names)
    flows = release.flows
    assert flows["trips"].dtype == "int64"
    assert flows["trips"].min() >= 1
    assert set(flows["origin"]) | set(flows["destination"]) <= set(areas[names[-1]])
    for origin_level in names:
        for destination_level in names:
            table = release.flows_at(origin_level, destination_level)
            assert table["trips"].sum() == total
            expected = grouped(flows, areas, (origin_level, destination_level))
            loosely = {"check_names": False, "check_index_type": False, "check_dtype": False}
            pd.testing.assert_series_equal(indexed(table, "trips"), expected, **loosely)
    with_all = zones.assign(all="all")
    fan_out = {pair: with_all.groupby(pair[0])[pair[1]].nunique().to_dict() for pair in pairwise(names)}
    assert len(release.measured) == 2 * (len(names) - 1)
    for measurement in release.measured:
        level = measurement.step.level
        above, own = release.levels[level - 1], release.levels[level]
        side = 0 if above[0] != own[0] else 1
        keys = pd.MultiIndex.from_tuples(released_keys(release, measurement.parents, above))
        parents = pd.Series(measurement.parents.trips, keys)
        fan_outs = parents.index.get_level_values(side).map(fan_out[above[side], own[side]])
        table = release.measurements_at(level)
        assert len(table) == len(measurement.noisy) == fan_outs.to_numpy().sum()
        measured = indexed(table, "noisy").index
        assert grouped(flows, areas, own).index.isin(measured).all()
        published = grouped(flows, areas, above)
        if release.plan.mechanism.refines:
            assert published.index.isin(parents.index).all()
        else:
            assert parents.to_dict() == published.to_dict()
        if release.plan.keeps_all:
            assert len(parents) == release.plan.tree.cells(level - 1)


def released_keys(release: Release, nodes, pair: tuple[str, str]) -> list[tuple[str, str]]:
    """Codes of released nodes of one level."""
    tree = release.plan.tree
    origin = tree.origin.codes[tree.origin.find_level_number(pair[0])]
    destination = tree.destination.codes[tree.destination.find_level_number(pair[1])]
    return [(origin[o], destination[d]) for o, d in zip(nodes.origin, nodes.destination, strict=True)]
