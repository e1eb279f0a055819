"""What is published of trips with stops alone; what all kinds have in common is in ``test_kind_contract.py``."""

import functools
import json
from fractions import Fraction

import numpy as np
import pytest

from od_core import Budget, Cap, MapGrid, PrivacyUnit, Published, ReleaseKey, release_stops
from od_core.stops.publishing import STOPS, open_stops
from tests.od_core.ledger.ledger_rows import declared
from tests.od_core.publication.published_kinds import publish

KEY = ReleaseKey("journeys", "2001-06")
MAP = MapGrid(-10, 30, 40, 60, 4, ("origin", "destination"))
POINTS = np.random.default_rng(4).integers(0, 4, (400, 4))


def published(folder, mechanism: str = "privtree", grid=MAP) -> Published:
    unit = PrivacyUnit("trip", "bounded")
    ledger = declared(folder, "journeys", unit, Cap(rho=Fraction(9)))
    given = {"unit": unit, "budget": Budget(2), "mechanism": mechanism, "ledger": ledger}
    release = release_stops(POINTS, grid, **given, release_id=str(KEY))
    return publish(STOPS, release, KEY, "journeys", folder)[0]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Published releases of each mechanism and grid, made once. Not to be changed."""
    return functools.cache(lambda *given: published(tmp_path_factory.mktemp("stops"), *given))


def test_every_box_is_a_feature_with_a_polygon_for_each_place(made):
    place = made("privtree", MAP)
    features = json.loads((place.bundle / "gis/boxes.geojson").read_text(encoding="utf-8"))["features"]
    boxes = open_stops(place.bundle).boxes
    assert [feature["properties"]["count"] for feature in features] == boxes["count"].tolist()
    for box, feature in zip(boxes.itertuples(), features, strict=True):
        for k, polygon in enumerate(feature["geometry"]["geometries"]):
            (ring,) = polygon["coordinates"]
            assert ring[0] == ring[-1]
            west, south = (getattr(box, f"lower_{2 * k + i}") for i in (1, 2))
            east, north = (getattr(box, f"upper_{2 * k + i}") + 1 for i in (1, 2))
            assert [min(x) for x in zip(*ring, strict=True)] == [-10 + 10 * west, 40 + 5 * south]
            assert [max(x) for x in zip(*ring, strict=True)] == [-10 + 10 * east, 40 + 5 * north]
