"""Column lineage: every column that is named exists upstream, and each published number leads to the declared input."""

from collections.abc import Callable, Iterator

import dagster as dg
import pandas as pd
import pytest

from od_assets.series.series import Series

from .conftest import SEGMENTS, Project

RECORDS = ["date", "origin", "destination", "in_period"]


def other_destinations(project: Project) -> Series:
    pd.DataFrame({"district": ["D", "D"], "office": ["1", "2"]}).to_csv(project.root / "offices.csv", index=False)
    return project.component(destination_geography={"file": "offices.csv", "levels": ["district", "office"]})


def nowhere(project: Project) -> Series:
    return project.component(
        trips__nowhere=["999"], trips__columns={"date": "date", "trips": "trips"}, geography__unknown_area="elsewhere"
    )


KINDS: dict[str, Callable[[Project], Series]] = {
    "refined": lambda project: project.component(),
    "estimates, no intervals": lambda project: project.component(mechanism="inftda", intervals=False),
    "bands": lambda project: project.component(bands={"cuts": [2]}),
    "segments": lambda project: project.component(segments=SEGMENTS),
    "area totals": lambda project: project.component(area_totals={"share": "1/10"}),
    "users": lambda project: project.component(
        domain__unit="user", domain__column="user", domain__neighbours="unbounded", bounds__max_trips=2
    ),
    "other destinations": other_destinations,
    "nowhere": nowhere,
    "counts": lambda project: project.counts(segments=SEGMENTS),
    "group sizes": lambda project: project.group_sizes(),
    "stops": lambda project: project.stops(),
    "points": lambda project: project.stops(
        trips__columns={"points": [["x", "y"], ["u", "v"]], "date": "date"}, map={"edges": [0, 1, 0, 1]}
    ),
}


class Lineage:
    """The columns of a series' assets, and where they come from, as Dagster has them."""

    def __init__(self, project: Project, component: Series) -> None:
        definitions = project.definitions(component)
        self.graph = definitions.resolve_asset_graph()
        self.columns: dict[dg.AssetKey, list[str]] = {}
        self.sources: dict[tuple[dg.AssetKey, str], list[tuple[dg.AssetKey, str]]] = {}
        for spec in definitions.resolve_all_asset_specs():
            schema = spec.metadata.get("dagster/column_schema", dg.TableSchema([]))  # an asset of a team has none
            self.columns[spec.key] = [column.name for column in schema.columns]
            lineage = spec.metadata.get("dagster/column_lineage")
            for column, sources in (lineage.deps_by_column if lineage else {}).items():
                self.sources[spec.key, column] = [(source.asset_key, source.column_name) for source in sources]

    def upstream(self, key: dg.AssetKey) -> set[dg.AssetKey]:
        parents = set(self.graph.get(key).parent_keys)
        return parents.union(*map(self.upstream, parents))

    def inputs(self, asset: str, column: str) -> set[str]:
        """The columns without a source that a column comes from."""
        (key,) = (key for key in self.columns if key.path[-1] == asset)
        return {f"{at.path[-1]}.{name}" for at, name in self.origins(key, column)}

    def origins(self, key: dg.AssetKey, column: str) -> Iterator[tuple[dg.AssetKey, str]]:
        """The columns without a source that a column of an asset comes from."""
        sources = self.sources.get((key, column), [])
        for source in sources:
            yield from self.origins(*source)
        if not sources:
            yield key, column


def of(asset: str, *columns: str) -> set[str]:
    return {f"{asset}.{column}" for column in columns}


ZONES = of("geography", "region", "zone")
ALL = of("raw_trips", *RECORDS) | ZONES
MAPPED = of("geography", "zone", "longitude", "latitude")
SEGMENTED = of("raw_trips", "segment_mode", "segment_day_type")

EXPECTED: dict[str, dict[str, set[str]]] = {
    "refined": {"trips": ALL, "upper": ALL, "origin": ZONES, "origin_level": of("bundle", "origin_level")},
    "estimates, no intervals": {"trips": ALL},
    "bands": {"trips": ALL, "lower": ALL},
    "segments": {"trips": ALL | SEGMENTED, "origin": ZONES},
    "area totals": {"trips": ALL, "upper": ALL, "origin": ZONES},
    "users": {"trips": ALL | of("raw_trips", "user")},
    "other destinations": {"destination": ZONES | of("geography", "district", "office")},
    "nowhere": {"trips": of("raw_trips", "date", "in_period", "trips") | ZONES},
    "counts": {"trips": (ALL - of("raw_trips", "destination")) | SEGMENTED, "origin": ZONES},
    "group sizes": {"groups": ALL, "area": ZONES},
    "stops": {"count": of("raw_trips", *RECORDS[1:], "stop_1") | MAPPED},
    "points": {"count": of("raw_trips", *RECORDS[1:], "stop_1", "stop_2") | MAPPED},
}
"""What the columns of the bundle come from; the name of an only level is one that the declaration gives."""

COUNTED = {"group sizes": "group_sizes", "stops": "trip_cells", "points": "trip_cells"}


@pytest.mark.parametrize("kind", KINDS)
def test_each_published_column_leads_to_the_declared_input(project, kind):
    """And on its way every source is a column of an upstream asset."""
    lineage = Lineage(project, KINDS[kind](project))
    for (key, column), sources in lineage.sources.items():
        assert column in lineage.columns[key]
        assert len(set(sources)) == len(sources)
        for asset, name in sources:
            assert asset in lineage.upstream(key), (key, asset)
            assert name in lineage.columns[asset], (asset, name)
    for key, columns in lineage.columns.items():
        if lineage.graph.get(key).parent_keys:
            assert [column for at, column in lineage.sources if at == key] == columns
    assert {column: lineage.inputs("bundle", column) for column in EXPECTED[kind]} == EXPECTED[kind]
    if kind == "stops":
        placed = of("raw_trips", "stop_1", "in_period") | of("geography", "zone", "latitude")
        assert lineage.inputs("trip_cells", "cell_4") == placed
    if kind == "points":
        placed = of("raw_trips", "stop_2", "in_period") | of("geography", "zone", "longitude")
        assert lineage.inputs("trip_cells", "cell_3") == placed
    confidential = {key.path[-1] for key in lineage.columns if "od/confidential" in lineage.graph.get(key).tags}
    assert confidential == {"raw_trips", COUNTED.get(kind, "trip_counts")}


def test_columns_of_the_records_lead_to_the_asset_of_the_team(project):
    columns = {"date": "day", "origin": "from", "destination": "to"}
    lineage = Lineage(project, project.component(trips__asset="lake/trips", trips__columns=columns))
    lake, raw = dg.AssetKey(["lake", "trips"]), dg.AssetKey(["trips", "raw_trips"])
    read = {"origin": "from", "destination": "to", "date": "day", "in_period": "day"}
    assert lineage.columns[raw] == ["date", "origin", "destination", "in_period"]
    assert {column: lineage.sources[raw, column] for column in read} == {
        column: [(lake, source)] for column, source in read.items()
    }
    assert lineage.graph.get(raw).parent_keys == {lake}
    assert of("trips", "from", "to", "day") <= lineage.inputs("bundle", "trips")
