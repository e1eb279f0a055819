"""A declaration names a reader, and what it adds to it: the settings have both, and bad options are refused."""

import pytest

from od_core.errors import OdError
from od_core.records.formats import FORMATS, RecordColumns


@pytest.mark.parametrize(
    ("trips", "code", "said"),
    [
        ({"files": "{period}.parquet", "encoding": "utf-8"}, "OD-READER-OPTIONS", "the option encoding does not apply"),
        ({"table": "t", "delimiter": ";"}, "OD-READER-OPTIONS", "the option delimiter does not apply"),
        ({"outside_period": "keep"}, "OD-READER-OPTIONS", "'keep'"),
        ({"reader": "istat", "columns": {"trips": "estimate"}}, "OD-READER-OPTIONS", "holds fractional estimates"),
        ({"reader": "istat", "categories": {"record": ["L"]}}, "OD-READER-OPTIONS", "already selects"),
        ({"files": "all.csv.gz", "reader": "lodes"}, "OD-TRIPS-FILES", "{period}"),
    ],
)
def test_bad_options_are_refused_in_one_line(project, trips, code, said):
    with pytest.raises(OdError, match=f"{code}:") as error:
        project.component(trips={"files": "{period}.csv"} | trips).require_valid()
    assert said in error.value.message
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("trips", "most"),
    [({"reader": "lodes"}, None), ({"columns": {"trips": "n"}}, None), ({"columns": {"weight": "w"}}, 3)],
)
def test_a_row_is_one_trip_or_it_holds_trips(project, trips, most):
    with pytest.raises(OdError, match=r"OD-TRIPS-ROWS.*one_row_a_trip: true is declared, but .*column"):
        project.component(
            trips={"files": "{period}.csv", "one_row_a_trip": True} | trips, bounds={"max_weight": most}
        ).require_valid()


def test_a_reader_of_coordinates_needs_boundaries_or_columns_of_codes(project):
    """The starts of trips may be counted as one hierarchy, too."""
    for make in (project.component, project.counts):
        with pytest.raises(OdError, match=r"OD-CONFIG.*records with coordinates need the boundaries of the zones"):
            make(trips={"files": "{period}", "reader": "mds"}).require_valid()
    codes = {"origin": "start_stop", "destination": "end_stop"}
    component = project.component(trips={"files": "{period}", "reader": "mds", "columns": codes})
    assert component.require_valid().columns == RecordColumns(**codes, date="start_time")


def test_boardings_are_counts_of_one_hierarchy(project):
    trips = {"files": "{period}.txt", "reader": "gtfs_ride"}
    settings = project.counts(trips=trips | {"columns": {"count": "alightings"}}).require_valid()
    assert settings.columns == RecordColumns("stop_id", None, date="service_date", trips="alightings")


def test_other_kinds_of_releases_take_the_columns_of_a_reader(project):
    """Its origins and dates are the groups, and its ends the places; but rows of many trips are not rows of one."""
    tlc = {"files": "{period}.parquet", "reader": "tlc"}
    columns = FORMATS["tlc"].columns
    sizes = project.group_sizes(trips=tlc).require_valid()
    assert sizes.columns == RecordColumns(columns.origin, columns.origin, date=columns.date)
    assert sizes.record_format.name == "tlc"
    stops = project.stops(trips=tlc).require_valid()
    assert (stops.columns, stops.stages) == (columns, ("origin", "destination"))
    for component in (project.group_sizes, project.stops):
        with pytest.raises(OdError, match=r"OD-READER-FLOWS.*the reader gives flows"):
            component(trips={"files": "{period}.csv.gz", "reader": "lodes"}).require_valid()
    with pytest.raises(OdError, match=r"OD-CONFIG.*columns area and date"):
        project.group_sizes(trips={"files": "{period}.csv", "columns": {"date": "date"}}).require_valid()


def test_nowhere_is_placed_where_the_geography_has_a_zone_for_it(project):
    """Then alone the records wait for the geography."""
    zones = {"file": "zones.csv", "levels": ["region", "zone"]}
    for geography, nowhere, waits in (
        (zones, [], False),
        (zones, ["x"], False),
        (zones | {"unknown": "Z00"}, [], False),
        (zones | {"unknown": "Z00"}, ["x"], True),
    ):
        trips = {"files": "{period}.csv", "columns": {"date": "date"}, "nowhere": nowhere}
        graph = project.definitions(project.component(trips=trips, geography=geography)).resolve_asset_graph()
        raw_trips = next(key for key in graph.get_all_asset_keys() if key.path[-1] == "raw_trips")
        assert bool(graph.get(raw_trips).parent_keys) == waits


def test_a_list_of_groups_has_no_place_for_nowhere(project):
    """Its codes are those of groups: the unknown area's code among them would be a group."""
    geography = {"file": "zones.csv", "levels": ["region", "zone"], "unknown": "Z00"}
    groups = {"file": "groups.csv", "group": "taxi", "area": "zone"}
    by_group = {"files": "{period}.csv", "columns": {"group": "taxi", "date": "date"}, "nowhere": ["x"]}
    assert not project.group_sizes(trips=by_group, groups=groups, geography=geography).require_valid().has_unknown_zone
    assert project.group_sizes(geography=geography).require_valid().has_unknown_zone


def test_nowhere_counts_for_the_unknown_zone_and_meets_expectations(project):
    """From the file to the check on the raw records: a tenth of the records is nowhere, and none is a fault."""
    lines = ["date,origin,destination", *["2001-01-15,Z00,Z11"] * 90, *["2001-01-15,Z00,abroad"] * 10]
    (project.root / "2001-01.csv").write_text("\n".join([*lines, ""]))
    geography = {"file": "zones.csv", "levels": ["region", "zone"], "unknown": "Z21"}
    for nowhere, succeeds in ((["abroad"], True), ([], False)):
        trips = {"files": "{period}.csv", "columns": {"date": "date"}, "nowhere": nowhere}
        component = project.component(trips=trips, geography=geography)
        result = project.materialize("geography", "raw_trips", "trip_counts", component=component)
        assert result.success == succeeds


def test_spark_reads_no_columns_that_a_reader_computes(project):
    trips = {"files": "lake.trips", "reader": "gtfs_ride", "outside_period": "drop"}
    spark = {"engine": "spark", "spark": {"address": "local[2]"}, "bands": {"cuts": [1]}}
    with pytest.raises(OdError, match=r"OD-ENGINE: reader 'gtfs_ride' computes columns"):
        project.counts(trips=trips, periods={"first": "2001-01"}, **spark).require_valid()
