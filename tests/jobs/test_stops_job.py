"""The job of one release of trips with stops: what it publishes, replays and refuses."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from od_assets.resources.warehouse import verify_published_releases
from od_core.errors import OdError
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.stops.publishing import open_stops
from od_core.stops.release import StopsRelease
from tests.od_assets.conftest import ZONES, Project, doctors_faults, failure_text, public_bytes, records

KEY = ReleaseKey("journeys", "2001-01")
EDGES = ((-74.5, -73.5), (40.0, 41.0))
POINTS_MAP = {"side": 16, "edges": [-74.5, -73.5, 40.0, 41.0]}


@pytest.fixture
def mapped(project) -> Project:
    """Zones have coordinates, and every record a stop."""
    places = ZONES.assign(longitude=[0, 1, 2, 3, 4, 8], latitude=[50, 51, 55, 53, 57, 58])
    places.to_csv(project.root / "zones.csv", index=False)
    stops = np.random.default_rng(6).choice(ZONES["zone"], len(records()))
    project.write_records(records().assign(stop=stops))
    return project


def test_a_month_is_published_and_a_second_run_changes_nothing(mapped):
    first = mapped.publish(mapped.stops())
    checks = first.get_asset_check_evaluations()
    assert len(checks) == 7
    assert all(check.passed for check in checks)
    release, ledger = open_stops(mapped.var / "releases" / str(KEY)), Ledger(mapped.var / "ledger.sqlite")
    assert release.plan.grid.sizes == (16,) * 6
    assert release.plan.map.places == ("origin", "stop", "destination")
    assert ledger.balance("trips", "2001-01").spent == Fraction(1, 10) ** 2 / 2
    files = public_bytes(mapped.var)
    assert mapped.run(mapped.stops()).success
    assert public_bytes(mapped.var) == files
    assert ledger.count_draws(KEY, 1) == 1
    assert verify_published_releases() == [{"release": str(KEY), "verified": True, "faults": {}}]


@pytest.mark.parametrize("places", [["o", "s", "d"], [["x", "y"], ["v", "w"], ["p", "q"]], [["x", "y"], ["p", "q"]]])
def test_places_are_declared_in_a_list_or_by_the_words_of_flows(project, places):
    options = {} if isinstance(places[0], str) else {"map": POINTS_MAP}
    listed = "places" if isinstance(places[0], str) else "points"
    by_list = project.stops(trips__columns={listed: places}, **options)
    words = {"origin": places[0], "stops": places[1:-1], "destination": places[-1]}
    by_words = project.stops(trips__columns=words, **options)
    assert (by_words.columns, by_words.stages) == (by_list.columns, by_list.stages)
    with pytest.raises(OdError, match="origin, stops and destination are all"):
        _ = project.stops(trips__columns=words | {listed: places}, **options).columns


@pytest.mark.parametrize("points", [1, 3])
def test_points_are_published_as_boxes_of_their_map(project, points):
    """Without a list of places; one of a thousand points has its degrees swapped, and is a fault."""
    names = [[f"x_{k}", f"y_{k}"] for k in range(points)]
    generator = np.random.default_rng(3)
    degrees = {name: generator.uniform(*edges, 1000) for pair in names for name, edges in zip(pair, EDGES, strict=True)}
    taken = pd.DataFrame({**degrees, "date": "2001-01-15"})
    taken.loc[7, names[0]] = taken.loc[7, names[0][::-1]].to_numpy()
    project.write_records(taken)
    component = project.stops(trips__columns={"points": names, "date": "date"}, map=POINTS_MAP)
    project.publish(component)
    assert doctors_faults(project, component) == []
    release = open_stops(project.var / "releases" / str(KEY))
    assert release.plan.map.places == (("place",) if points == 1 else ("origin", "stop_1", "destination"))
    assert release.plan.grid.sizes == (16,) * (2 * points)
    true = pq.read_table(next(project.var.rglob("points.parquet"))).to_pandas().to_numpy()
    expected = np.column_stack([np.floor((degrees[name] + 74.5) * 16) for name in degrees if name[0] == "x"])
    assert len(true) == 999
    assert sorted(true[:, ::2].tolist()) == sorted(np.delete(expected, 7, axis=0).tolist())
    assert verify_published_releases() == [{"release": str(KEY), "verified": True, "faults": {}}]
    project.write_records(taken.rename(columns={"x_0": "y_0", "y_0": "x_0"}))
    other = project.stops(name="swapped", trips__columns={"points": names, "date": "date"}, map=POINTS_MAP)
    (finding,) = doctors_faults(project, other)
    assert "OD-CHECK-FAILED" in str(finding.fault)
    assert not project.run(other).success


def test_all_kinds_share_one_cap_and_are_verified_together(mapped):
    for component in (mapped.component(trips__one_row_a_trip=True), mapped.group_sizes(), mapped.stops()):
        assert mapped.run(component).success
        assert doctors_faults(mapped, component) == []
    assert [row["verified"] for row in verify_published_releases()] == [True] * 3
    spent = Ledger(mapped.var / "ledger.sqlite").balance("trips", "2001-01").spent
    assert spent > 2 * Fraction(1, 20) ** 2 / 2 + Fraction(1, 10) ** 2 / 2
    used_up = mapped.stops(revision=2, domain__cap__rho=str(spent), domain__cap__reason="x")
    (finding,) = doctors_faults(mapped, used_up)
    assert "OD-LEDGER-CAP" in str(finding.fault)
    assert failure_text(mapped.run(used_up)).startswith(f"{finding.fault} [")


def one_box_less(boxes: pd.DataFrame) -> pd.DataFrame:
    return boxes[boxes["count"] != boxes["count"].max()]


def below_zero(boxes: pd.DataFrame) -> pd.DataFrame:
    return boxes.assign(count=boxes["count"].where(boxes["count"] < boxes["count"].max(), -1))


DAMAGES = {one_box_less: {"fill_the_grid"}, below_zero: {"are_counts", "keep_the_total"}}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_checks_find_boxes_that_are_not_what_they_should_be(mapped, monkeypatch, damage):
    whole = StopsRelease.boxes.fget
    monkeypatch.setattr(StopsRelease, "boxes", property(lambda release: damage(whole(release))))
    result = mapped.run(mapped.stops())
    failed = {check.check_name for check in result.get_asset_check_evaluations() if not check.passed}
    assert failed >= DAMAGES[damage]
    assert not (mapped.var / "releases").exists()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"map__edges": [0, 1]}, "OD-CONFIG"),
        ({"map__longitude": "lon"}, "OD-STOPS-PLACES"),
        ({"trips__columns": {"places": []}}, "OD-CONFIG"),
        ({"trips__columns": {"points": [["x", "y"]]}}, "OD-CONFIG"),  # with a list of places, and without edges
        ({"trips__columns": {"points": [["x", "y"]]}, "map": {"side": 4}}, "OD-CONFIG"),
        ({"trips__columns": {"points": [["x", "y", "z"]]}, "map": POINTS_MAP}, "OD-CONFIG"),
        ({"trips__columns": {"points": [["x", "y"]], "places": ["origin"]}, "map": POINTS_MAP}, "OD-CONFIG"),
        ({"trips__columns": {"origin": ["x", "y"], "destination": "d"}, "map": POINTS_MAP}, "OD-CONFIG"),
        ({"trips__columns": {"origin": ["x", "y"]}, "map": POINTS_MAP}, "OD-CONFIG"),
        ({"trips__columns": {"origin": ["point"], "destination": ["end"]}, "map": POINTS_MAP}, "OD-CONFIG"),
        ({"map": POINTS_MAP}, "OD-CONFIG"),
        ({"mechanism_options": {"theta": "x"}}, "OD-STOPS-PRIVTREE"),
    ],
)
def test_a_mistake_in_the_declaration_is_one_line(mapped, changes, code):
    with pytest.raises(OdError, match=f"{code}:") as refused:
        planned(mapped, changes)
    assert refused.value.spent == "nothing was spent"


def planned(project: Project, changes: dict) -> None:
    settings = project.stops(**changes).require_valid()
    settings.plan(settings.read_geography(), "2001-01")
