"""Every declaration in ``examples``: from files in the layout that its agency publishes to a published release.

The files of TLC, LODES, ISTAT and NOMIS, of MDS and of GTFS-ride are made here, to the published layouts
(``tests/od_core/records/published`` and ``mobility_feeds``).
"""

import datetime
import gzip
import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

import duckdb
import h3
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import shapely
from deltalake import write_deltalake

from od_assets.components import OdCounts, OdRelease
from od_assets.series.reading import read_component_type, read_declaration
from od_core import open_release
from od_core.flows.staging import StagedRelease
from tests.od_core.records.mobility_feeds import make_gtfs_ride, make_mds
from tests.od_core.records.published import nomis_2021, write_istat, write_lodes

EXAMPLES = Path(__file__).parents[2] / "examples"

Pairs = Counter[tuple[str, str]]


@dataclass(frozen=True)
class Example:
    """What is put where a declaration looks for it.

    Attributes:
        period, partition: the one that is released, and Dagster's key of it.
        write: writes the files into the project's folder of the example, and returns the trips between zones.
        data: folder and data set of the example; by default those of its name.
    """

    period: str
    partition: str
    write: Callable[[Path], Pairs]
    data: str = ""


def random_pairs(zones: list[str], others: list[str] | None = None) -> Pairs:
    """Trips between some of the pairs; the numbers are of no importance."""
    generator = np.random.default_rng(10)
    pairs = [(origin, destination) for origin in zones for destination in others or zones]
    trips = generator.geometric(0.01, len(pairs)) * (generator.random(len(pairs)) < 0.7)
    return Counter({pair: int(n) for pair, n in zip(pairs, trips, strict=True) if n})


def flows(pairs: Pairs) -> list[tuple[str, str, int]]:
    return [(origin, destination, n) for (origin, destination), n in pairs.items()]


def taxi(folder: Path) -> Pairs:
    """A trip of an unknown place counts for zone 264; one without a place too; 265 is a zone of the lookup table."""
    lookup = [(1, "EWR", "Newark Airport", "EWR"), (7, "Queens", "Astoria", "Boro Zone")]
    lookup += [(3, "Bronx", "Allerton", "Boro Zone"), (161, "Manhattan", "Midtown", "Yellow Zone")]
    lookup += [(264, "Unknown", "NV", "N/A"), (265, "N/A", "Outside of NYC", "N/A")]
    names = ["LocationID", "Borough", "Zone", "service_zone"]
    pd.DataFrame(lookup, columns=names).to_csv(folder / "taxi_zone_lookup.csv", index=False)
    pairs = random_pairs(["1", "7", "3", "161", "264", "265"])
    trips = [(int(o), int(d)) for (o, d), n in pairs.items() for _ in range(n)]
    ids = pd.DataFrame(trips, columns=["PULocationID", "DOLocationID"]).astype("Int32")
    nowhere = (ids["PULocationID"] == 264) & (np.arange(len(ids)) % 2 == 0)
    ids["PULocationID"] = ids["PULocationID"].mask(nowhere)
    hours = pd.to_timedelta(np.arange(len(ids)) % 24, unit="h")
    ids.insert(0, "tpep_pickup_datetime", pd.Timestamp("2018-01-15") + hours)
    ids.to_parquet(folder / "yellow_tripdata_2018-01.parquet")
    return pairs


def lodes(folder: Path) -> Pairs:
    blocks = [
        f"44{county:03}{tract:06}{block:04}" for county in (1, 7) for tract in (301, 302) for block in (1001, 2001)
    ]
    zones = pd.DataFrame({"tabblk2020": blocks, "st": "44", "ctyname": "a, b"})
    zones = zones.assign(cty=zones["tabblk2020"].str[:5], trct=zones["tabblk2020"].str[:11])
    zones = zones.assign(bgrp=zones["tabblk2020"].str[:12], blklatdd="41.8", blklondd="-71.4")
    zones.to_csv(folder / "ri_xwalk.csv.gz", index=False)
    pairs = random_pairs(blocks)
    write_lodes(folder / "ri_od_main_JT00_2020.csv.gz", flows(pairs))
    return pairs


def istat(folder: Path) -> Pairs:
    towns = ["001001", "001272", "003106", "058091"]
    regions = {"001": "01", "003": "01", "058": "12"}
    table = pd.DataFrame({"region": [regions[town[:3]] for town in towns], "municipality": towns})
    table.to_csv(folder / "municipalities.csv", index=False)
    pairs = random_pairs(towns, [*towns, "000000"])
    write_istat(folder / "matrix_pendo2011_10112014.txt", flows(pairs))
    return Counter({(o, "abroad" if d == "000000" else d): n for (o, d), n in pairs.items()})


def nomis(folder: Path) -> Pairs:
    """Those who work at home are no records of this release."""
    districts = ["E06000001", "E07000008", "E07000009", "W06000015"]
    lookup = {
        "country": ["E92000001", "E92000001", "E92000001", "W92000004"],
        "region": ["E12000001", "E12000006", "E12000006", "W92000004"],
        "upper_tier": ["E06000001", "E10000003", "E10000003", "W06000015"],
        "local_authority": districts,
    }
    pd.DataFrame(lookup).to_csv(folder / "lookup.csv", index=False)
    pairs = random_pairs(districts, [*districts, "999999999"])
    rows = [(o, d, 3, n) for (o, d), n in pairs.items()] + [(home, home, 1, 1000) for home in districts]
    (folder / "odwp01ew_2021.csv").write_text(nomis_2021(rows), encoding="utf-8")
    return Counter({(o, "elsewhere" if d == "999999999" else d): n for (o, d), n in pairs.items()})


def norway(folder: Path) -> Pairs:
    towns = ["0101", "0104", "0301", "1601"]
    table = pd.DataFrame({"landsdel": ["Ostlandet"] * 3 + ["Trondelag"], "kommune": towns})
    table.to_csv(folder / "zones.csv", index=False)
    pairs = random_pairs(towns)
    lines = ["origin,destination,count", *(f"{o},{d},{n}" for o, d, n in flows(pairs)), ""]
    (folder / "flows_2017.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    return pairs


def bikes(folder: Path) -> Pairs:
    """Nobody rides more than four times, so that all rides of the week count; those of other weeks do not."""
    docks = [f"dock {number}" for number in range(6)]
    table = {"district": ["N", "N", "N", "S", "S", "S"], "ward": ["1", "1", "2", "3", "3", "4"], "dock": docks}
    pd.DataFrame(table).to_csv(folder / "docks.csv", index=False)
    pd.DataFrame({"area": ["x", "y", "x", "y", "x", "y"], "dock": docks}).to_csv(folder / "zones.csv", index=False)
    pairs = random_pairs(docks)
    rides = pd.DataFrame(
        [(o, d) for (o, d), n in pairs.items() for _ in range(n)], columns=["from_dock", "to_dock"], dtype="str"
    )
    rides["rider"] = np.arange(len(rides)) // 4
    rides["started_at"] = pd.Timestamp("2026-01-04 23:59:59")
    other = rides.assign(started_at=pd.Timestamp("2026-01-05"))
    with duckdb.connect(str(folder / "rides.duckdb")) as connection:
        connection.register("frame", pd.concat([rides, other]))
        connection.sql("CREATE TABLE rides AS FROM frame")
    return pairs


def city_rides(folder: Path) -> Pairs:
    """Rides are between centres of cells. Some end outside of the city."""
    shutil.copy(EXAMPLES / "city_rides" / "city.geojson", folder)
    city = [(54.08, 4.02), (54.1, 4.03), (54.06, 4.06), (54.06, 4.0)]
    *cells, outside = (h3.latlng_to_cell(*point, 8) for point in (*city, (54.0, 4.02)))
    pairs = random_pairs(cells) | Counter({(cells[0], outside): 9})
    places = [h3.cell_to_latlng(cell)[::-1] for pair, n in pairs.items() for _ in range(n) for cell in pair]
    rides = pd.DataFrame(np.reshape(places, (-1, 4)), columns=["start_lon", "start_lat", "end_lon", "end_lat"])
    rides.assign(started_at="2026-01-07 08:30:00", vehicle="7").to_csv(folder / "2026-01.csv", index=False)
    return Counter({(o, "elsewhere" if d == outside else d): n for (o, d), n in pairs.items()})


def admissions(folder: Path) -> Pairs:
    """Nobody is admitted more than twice, so that all admissions of the month count."""
    table = {"chapter": ["I", "I", "X"], "block": ["A00-A09", "A15-A19", "J00-J06"], "category": ["A00", "A15", "J06"]}
    pd.DataFrame(table).to_csv(folder / "icd10.csv", index=False)
    numbers = {"A00": 300, "A15": 40, "J06": 900}
    rows = pd.DataFrame({"diagnosis": np.repeat(list(numbers), list(numbers.values())), "admitted": "2026-01-09"})
    rows = rows.assign(patient=[f"p{number // 2}" for number in range(len(rows))], ward="7")
    rows.assign(sex=np.resize(["f", "m", ""], len(rows))).to_csv(folder / "2026-01.csv", index=False)
    return Counter({(code, "all"): number for code, number in numbers.items()})


def scooters(folder: Path) -> Pairs:
    """Answers of /trips of both versions, and one without trips; trips that start in other months are dropped."""
    names = ["Harbour", "Hill", "Park", "Station"]
    squares = {name: shapely.box(number, 45, number + 1, 46) for number, name in enumerate(names)}
    features = [
        {"type": "Feature", "properties": {"neighbourhood": name}, "geometry": json.loads(shapely.to_geojson(square))}
        for name, square in squares.items()
    ]
    collection = json.dumps({"type": "FeatureCollection", "features": features})
    (folder / "neighbourhoods.geojson").write_text(collection)
    table = {"district": ["North", "North", "South", "South"], "neighbourhood": names}
    pd.DataFrame(table).to_csv(folder / "neighbourhoods.csv", index=False)
    begins, ends = (
        int(datetime.datetime(year, month, 1, tzinfo=ZoneInfo("America/Los_Angeles")).timestamp() * 1000)
        for year, month in ((2026, 1), (2026, 2))
    )
    pairs = random_pairs(names)
    ends_of_trips = [
        ((names.index(origin) + 0.5, 45.25), (names.index(destination) + 0.125, 45.75))
        for (origin, destination), n in pairs.items()
        for _ in range(n)
    ]
    trips = [(*points, (begins, ends - 1)[number % 2]) for number, points in enumerate(ends_of_trips)]
    trips += [(*points, (begins - 1, ends)[number % 2]) for number, points in enumerate(ends_of_trips[:500])]
    (folder / "2026-01").mkdir()
    for name, chosen, version in (("a.json", trips[::2], 2), ("b.json", trips[1::2], 1), ("c.json", [], 2)):
        (folder / "2026-01" / name).write_text(make_mds(chosen, version))
    return pairs


def boardings(folder: Path) -> Pairs:
    """The stops of a GTFS feed; a row without counts and a cancelled stop add nothing."""
    numbers = {"S1": 300, "S2": 40, "S3": 900}
    stops = {
        "stop_id": list(numbers),
        "stop_name": "a, b",
        "stop_lat": 44.6,
        "stop_lon": -123.1,
        "zone_id": ["1", "1", "2"],
    }
    pd.DataFrame(stops).to_csv(folder / "stops.csv", index=False)
    rows = [(stop, f"202601{day:02}", n // 10, "0") for stop, n in numbers.items() for day in range(1, 31, 3)]
    rows += [("S1", "20260131", "", "0"), ("S2", "20260131", 7, "1")]
    (folder / "2026-01").mkdir()
    (folder / "2026-01" / "board_alight.txt").write_text(make_gtfs_ride(rows), newline="")
    return Counter({(stop, "all"): n for stop, n in numbers.items()})


def lakehouse(folder: Path) -> Pairs:
    """A month ends at midnight in Berlin, which is an hour earlier in UTC."""
    zones = ["A1", "A2", "B1"]
    pd.DataFrame({"district": ["A", "A", "B"], "zone": zones}).to_csv(folder / "zones.csv", index=False)
    pairs = random_pairs(zones)
    trips = pd.DataFrame([(o, d) for (o, d), n in pairs.items() for _ in range(n)], columns=["from_zone", "to_zone"])
    trips["vehicle"] = "bus"
    first, last = pd.Timestamp("2025-12-31 23:00", tz="UTC"), pd.Timestamp("2026-01-31 22:59:59", tz="UTC")
    trips["started_at"] = np.where(np.arange(len(trips)) % 2, first, last)
    other = trips.assign(started_at=last + pd.Timedelta(seconds=1))
    write_deltalake(str(folder / "trips"), pa.Table.from_pandas(pd.concat([trips, other]), preserve_index=False))
    return pairs


WRITTEN = {
    "nyc_yellow_taxi": Example("2018-01", "2018-01", taxi),
    "nyc_yellow_taxi_by_hour": Example("2018-01", "2018-01", taxi, "nyc_yellow_taxi"),
    "us_commuting": Example("2020", "2020", lodes),
    "italy_commuting": Example("2011", "2011", istat),
    "england_commuting": Example("2021", "2021", nomis),
    "norway_commuting": Example("2017", "2017", norway),
    "city_rides": Example("2026-01", "2026-01", city_rides),
    "bike_share": Example("2026-W01", "2026-W01-1", bikes),
    "lakehouse_trips": Example("2026-01", "2026-01", lakehouse),
    "hospital_admissions": Example("2026-01", "2026-01", admissions),
    "scooter_trips": Example("2026-01", "2026-01", scooters),
    "bus_boardings": Example("2026-01", "2026-01", boardings),
}


def test_each_is_tried():
    assert {path.parent.name for path in EXAMPLES.glob("*/defs.yaml")} == set(WRITTEN)
    data_sets = {example.data or name for name, example in WRITTEN.items()}
    assert {path.stem for path in (EXAMPLES / "domains").glob("*.yaml")} == data_sets


@pytest.mark.parametrize("name", WRITTEN)
def test_from_its_file_to_a_published_release(name, project, monkeypatch):
    shutil.copytree(EXAMPLES / "domains", project.defs / "domains", dirs_exist_ok=True)
    example = WRITTEN[name]
    folder = project.root / "data" / (example.data or name)
    folder.mkdir(parents=True)
    pairs = example.write(folder)
    declared = EXAMPLES / name / "defs.yaml"
    component = read_declaration(
        declared, OdCounts if read_component_type(declared).endswith("OdCounts") else OdRelease
    )
    project.publish(component, period=example.partition)

    settings = component.require_valid()
    key = settings.key(example.period)
    counts = StagedRelease(project.var / "confidential" / key.folder).open_trip_counts().read_all()
    tree = settings.plan(settings.read_geography(), example.period).tree
    leaves = tree.find_leaf_pairs(counts.rank)
    ends = [tree.origin.zones[k] for k in leaves.origin], [tree.destination.zones[k] for k in leaves.destination]
    assert dict(zip(zip(*ends, strict=True), np.diff(counts.before), strict=True)) == pairs
    bundle = project.var / "releases" / key.folder
    facts = json.loads((bundle / "certificate.json").read_text(encoding="utf-8"))
    assert facts["records"]["reader"] == settings.record_format.name
    assert facts["records"].get("time_zone") == settings.domain.time_zone
    assert facts["unit"] == settings.unit.kind
    released = open_release(bundle)
    for breakdown, segments in released.segments.items():
        assert np.array_equal(segments.sum(axis=1), released.leaves.trips), breakdown
    assert list(released.segments) == list(component.stated_segments)
    if settings.measured_levels[0] > 0:
        assert released.flows["trips"].sum() == pairs.total()
    else:
        assert abs(released.flows["trips"].sum() - pairs.total()) < 600  # of noise of at most 90
