"""The job of one release of trips with stops: what it publishes, replays and refuses."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from od_assets.cli.diagnosis import charged
from od_assets.metadata import ALLOWED
from od_assets.resources.warehouse import verified
from od_core.errors import OdError
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.stops import release as release_module
from od_core.stops.publishing import open_stops
from od_core.stops.release import StopsRelease
from tests.od_assets.conftest import ZONES, Project, doctors_faults, failure_text, public_bytes, records

KEY = ReleaseKey("journeys", "2001-01")


@pytest.fixture
def mapped(project: Project) -> Project:
    """Zones have coordinates, and every record a stop."""
    places = ZONES.assign(longitude=[0, 1, 2, 3, 4, 8], latitude=[50, 51, 55, 53, 57, 58])
    places.to_csv(project.root / "zones.csv", index=False)
    stops = np.random.default_rng(6).choice(ZONES["zone"], len(records()))
    project.write_records(records().assign(stop=stops))
    return project


def test_a_month_is_published_and_a_second_run_changes_nothing(mapped: Project) -> None:
    first = mapped.run(mapped.stops())
    assert first.success, failure_text(first)
    checks = first.get_asset_check_evaluations()
    assert len(checks) == 6
    assert all(check.passed for check in checks)
    release, ledger = open_stops(mapped.var / "releases" / str(KEY)), Ledger(mapped.var / "ledger.sqlite")
    assert release.plan.grid.sizes == (16,) * 6
    assert release.plan.map.places == ("origin", "stop", "destination")
    assert ledger.balance("trips", "2001-01").spent == Fraction(1, 10) ** 2 / 2
    files = public_bytes(mapped.var)
    assert mapped.run(mapped.stops()).success
    assert public_bytes(mapped.var) == files
    assert ledger.draws(KEY, 1) == 1
    assert verified() == [{"release": str(KEY), "verified": True, "faults": {}}]


def test_all_kinds_share_one_cap_and_are_verified_together(mapped: Project) -> None:
    for component in (mapped.component(trips__one_row_a_trip=True), mapped.group_sizes(), mapped.stops()):
        assert mapped.run(component).success
        assert doctors_faults(mapped, component) == []
    assert [row["verified"] for row in verified()] == [True] * 3
    spent = Ledger(mapped.var / "ledger.sqlite").balance("trips", "2001-01").spent
    assert spent > 2 * Fraction(1, 20) ** 2 / 2 + Fraction(1, 10) ** 2 / 2
    used_up = mapped.stops(revision=2, domain__cap__rho=str(spent), domain__cap__reason="x")
    (finding,) = doctors_faults(mapped, used_up)
    assert "OD-LEDGER-CAP" in str(finding.fault)
    assert failure_text(mapped.run(used_up)).startswith(f"{finding.fault} [")


def test_a_draw_that_dies_is_charged_twice(mapped: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as context:
        context.setattr(release_module, "measure", dies)
        assert not mapped.run(mapped.stops()).success
    assert "charged again, which the cap allows: 1" in charged(mapped.stops().checked(), "2001-01").what
    assert mapped.run(mapped.stops()).success
    assert Ledger(mapped.var / "ledger.sqlite").draws(KEY, 1) == 2
    assert open_stops(mapped.var / "releases" / str(KEY)).spent.epsilon == Fraction(1, 5)
    assert verified() == [{"release": str(KEY), "verified": True, "faults": {}}]


def one_box_less(boxes: pd.DataFrame) -> pd.DataFrame:
    return boxes[boxes["count"] != boxes["count"].max()]


def below_zero(boxes: pd.DataFrame) -> pd.DataFrame:
    return boxes.assign(count=boxes["count"].where(boxes["count"] < boxes["count"].max(), -1))


DAMAGES = {one_box_less: {"fill_the_grid"}, below_zero: {"are_counts", "keep_the_total"}}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_checks_find_boxes_that_are_not_what_they_should_be(
    mapped: Project, monkeypatch: pytest.MonkeyPatch, damage
) -> None:
    whole = StopsRelease.boxes.fget
    monkeypatch.setattr(StopsRelease, "boxes", property(lambda release: damage(whole(release))))
    result = mapped.run(mapped.stops())
    failed = {check.check_name for check in result.get_asset_check_evaluations() if not check.passed}
    assert failed >= DAMAGES[damage]
    assert not (mapped.var / "releases").exists()


def test_metadata_is_of_the_allowed_names_and_confidential_assets_have_none(mapped: Project) -> None:
    for event in mapped.run(mapped.stops()).get_asset_materialization_events():
        made = event.step_materialization_data.materialization
        own = {name for name in made.metadata if not name.startswith("dagster/") or name in ALLOWED}
        assert own <= ALLOWED
        if made.asset_key.path[-1] in ("raw_trips", "trip_cells"):
            assert not own


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"map__side": 0}, "OD-STOPS-MAP"),
        ({"map__edges": [0, 1]}, "OD-CONFIG"),
        ({"map__edges": [0, 1, 50, 58]}, "OD-STOPS-MAP"),
        ({"map__longitude": "lon"}, "OD-STOPS-PLACES"),
        ({"trips__columns": {"places": ["origin"]}}, "OD-CONFIG"),
        ({"mechanism": "privtre"}, "OD-MECHANISM-UNKNOWN"),
        ({"mechanism": "identity"}, "OD-STOPS-TOO-MANY-BOXES"),
        ({"mechanism_options": {"theta": "x"}}, "OD-STOPS-PRIVTREE"),
        ({"privacy__epsilon": "-1"}, "OD-BUDGET-EPSILON"),
        ({"domain__unit": "user", "domain__column": "person"}, "OD-UNIT-UNKNOWN"),
        ({"domain__cap__rho": "0.001"}, "OD-LEDGER-CAP"),
    ],
)
def test_a_mistake_in_the_declaration_is_one_line(mapped: Project, changes: dict, code: str) -> None:
    with pytest.raises(OdError) as refused:
        planned(mapped, changes)
    assert refused.value.code == code
    assert refused.value.spent == "nothing was spent"


def planned(project: Project, changes: dict) -> None:
    settings = project.stops(**changes).checked()
    settings.plan(settings.read_geography(), "2001-01")
