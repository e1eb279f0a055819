"""A release whose zones have boundaries: the job, its bundle, and verification from the bundle alone."""

import json
import re
from hashlib import sha256

import pandas as pd
import pyarrow.parquet as pq
import pytest
import shapely
from pydantic import ValidationError

from od_assets.resources.warehouse import verify_published_releases
from od_assets.series.invented import invent_records
from od_assets.series.section import describe_first_fault
from od_assets.series.series import Zones
from od_core.errors import OdError
from od_core.periods import Period

from .conftest import ZONES, Project, failure_text


@pytest.fixture
def bounded(released) -> Project:
    """January is published without boundaries. All zones but the last have one: a square."""
    squares = [shapely.to_geojson(shapely.box(k % 3, k // 3, k % 3 + 1, k // 3 + 1)) for k in range(len(ZONES) - 1)]
    features = [
        {"type": "Feature", "properties": {"code": zone}, "geometry": json.loads(square)}
        for zone, square in zip(ZONES["zone"], squares, strict=False)
    ]
    text = json.dumps({"type": "FeatureCollection", "features": features})
    (released.root / "shapes.geojson").write_text(text, encoding="utf-8")
    return released


def test_what_is_published_keeps_its_names_and_boundaries_and_later_periods_have_the_new_ones(bounded):
    """A run of a published month gives the same files; damage is mended from the list of then, which the bundle has."""
    names = ZONES.assign(zone_name=[f"Place <{zone}>" for zone in ZONES["zone"]], other=[*"abcde;"])
    bundle = bounded.var / "releases" / "trips" / "2001-01" / "r1"
    before = {path.relative_to(bundle): path.read_bytes() for path in bundle.rglob("*") if path.is_file()}
    names.to_csv(bounded.root / "zones.csv", index=False)
    described = bounded.component(
        geography__boundaries={"file": "shapes.geojson", "code": "code"},
        geography__names={"zone": "zone_name"},
        geography__aliases={"zone": "other"},
    )
    (bundle / "report.html").unlink()
    bounded.publish(described)
    assert {path.relative_to(bundle): path.read_bytes() for path in bundle.rglob("*") if path.is_file()} == before
    bounded.write_records(pd.read_csv(bounded.root / "2001-01.csv").assign(date="2001-02-03"), "2001-02")
    assert bounded.run(described, period="2001-02").success
    later = bundle.parents[1] / "2001-02" / "r1" / "tables"
    table = pq.read_table(later / "boundaries.parquet")
    geo = json.loads(table.schema.metadata[b"geo"])
    assert (geo["primary_column"], geo["columns"]["geometry"]["encoding"]) == ("geometry", "WKB")
    areas = {row["area"]: shapely.from_wkb(row["geometry"]).area for row in table.to_pylist()}
    assert areas == dict.fromkeys(ZONES["zone"][:-1], 1.0) | {"R0": 2.0, "R1": 2.0, "R2": 1.0}
    assert f"Place <{ZONES['zone'][0]}>" in pq.read_table(later / "areas.parquet")["name"].to_pylist()
    assert "a" in pq.read_table(later / "areas.parquet")["aliases"].to_pylist()
    (bounded.root / "shapes.geojson").unlink()  # verification needs the bundle alone
    assert [row["faults"] for row in verify_published_releases("trips")] == [{}, {}]


def test_a_file_without_these_zones_is_refused_before_anything_is_charged(bounded):
    path = bounded.root / "shapes.geojson"
    path.write_text(path.read_text(encoding="utf-8").replace('"Z', '"Y'), encoding="utf-8")
    declared = bounded.component(geography__boundaries={"file": "shapes.geojson", "code": "code"}, revision=2)
    assert "OD-GEOGRAPHY-BOUNDARIES" in failure_text(bounded.run(declared))
    assert [row["release"] for row in verify_published_releases("trips")] == ["trips/2001-01/r1"]


@pytest.mark.parametrize(
    ("declared", "read"),
    [
        ({"file": "z.json", "code": "id"}, {"zone": ("z.json", "id")}),
        ({"file": "z.json"}, {"zone": ("z.json", "zone")}),
        ({"region": "r.json"}, {"region": ("r.json", "region")}),
        (
            {"region": {"file": "r.json", "code": "id"}, "zone": "z.json"},
            {"region": ("r.json", "id"), "zone": ("z.json", "zone")},
        ),
    ],
)
def test_boundaries_are_declared_for_zones_or_by_level(declared, read):
    zones = Zones(file="zones.csv", levels=["region", "zone"], boundaries=declared)
    assert zones.zone_list.boundaries == read
    assert Zones.model_validate(zones.model_dump()).zone_list.boundaries == read


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"region": {"file": "r.json", "kode": "id"}}, "region.kode: .*code"),
        ("r.json", "boundaries: "),
    ],
)
def test_other_declarations_of_boundaries_are_refused(declared, words):
    with pytest.raises(ValidationError) as caught:
        Zones(file="zones.csv", levels=["region", "zone"], boundaries=declared)
    assert re.search(words, describe_first_fault(caught.value.errors(), Zones))


def test_records_with_coordinates_are_counted_as_those_with_codes(bounded):
    """The copy has the same codes; the certificate has the columns and the digest of the boundaries."""
    records = pd.read_csv(bounded.root / "2001-01.csv")
    place = {zone: number for number, zone in enumerate(ZONES["zone"])}
    listed = records[records["origin"].ne(ZONES["zone"].iloc[-1]) & records["destination"].ne(ZONES["zone"].iloc[-1])]
    numbers = {side: listed[side].map(place) for side in ("origin", "destination")}
    points = pd.DataFrame({"date": listed["date"].str.replace("-01-", "-02-")})
    for side, number in numbers.items():
        points[f"{side}_lon"] = number % 3 + 0.25
        points[f"{side}_lat"] = number // 3 + 0.75
    declared = bounded.component(
        geography__boundaries={"file": "shapes.geojson", "code": "code"},
        trips__columns={
            "origin": ["origin_lon", "origin_lat"],
            "destination": ["destination_lon", "destination_lat"],
            "date": "date",
        },
    )
    bounded.write_records(points, "2001-02")
    bounded.publish(declared, period="2001-02")
    copied = pd.read_parquet(next((bounded.var / "confidential").rglob("2001-02/**/raw_trips.parquet")))
    assert copied[["origin", "destination"]].equals(listed[["origin", "destination"]].reset_index(drop=True))
    certificate = json.loads((bounded.var / "releases/trips/2001-02/r1/certificate.json").read_text())
    assert certificate["records"]["columns"]["origin"] == {"point": ["origin_lon", "origin_lat"]}
    shapes = (bounded.root / "shapes.geojson").read_bytes()
    assert certificate["records"]["boundaries"] == [sha256(shapes).hexdigest()]


@pytest.mark.parametrize("place", [["lon", "lat"], ["start"]])
def test_invented_points_lie_in_zones(bounded, place):
    declared = bounded.component(
        geography__boundaries={"file": "shapes.geojson", "code": "code"},
        trips__files="{period}.parquet",
        trips__columns={"origin": place, "date": "date"},
    )
    rows = invent_records(declared, Period("2001-02"))
    assert {*place, "destination", "date"} == {*rows}
    rows.to_parquet(bounded.root / "2001-02.parquet")
    result = bounded.materialize("geography", "raw_trips", "trip_counts", period="2001-02", component=declared)
    assert result.success, failure_text(result)


def test_coordinates_without_boundaries_are_refused(bounded):
    with pytest.raises(OdError, match="need the boundaries of the zones"):
        bounded.run(bounded.component(trips__columns={"origin": ["lon", "lat"]}))
