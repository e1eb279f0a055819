"""Verification of flows: what only they have. What it finds in every kind is in ``test_kind_contract.py``."""

import functools
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from od_core import Budget, Geography, Ledger, Mechanism, OdError, PrivacyUnit, ReleaseKey, open_release, release_flows
from od_core.flows.publishing.kind import FLOWS as FLOW_KIND
from od_core.ledger.chain import EntryName
from od_core.privacy.budget import Cap
from od_core.privacy.domain import PrivacyDomain
from od_core.publication.read_back import read_certified_entries
from od_core.published.publishing import Published
from tests.od_core.ledger.ledger_rows import FLOWS, GEOGRAPHY, ONE_LEVEL
from tests.od_core.publication.examples import restated
from tests.od_core.publication.published_kinds import faults, locations, publish
from tests.od_core.publication.test_kind_contract import last_row

KEY = ReleaseKey("commuters", "2001-06")


def published(
    root: Path,
    neighbours: str = "bounded",
    flows: pd.DataFrame = FLOWS,
    mechanism: str | Mechanism = "inftda_refined",
    geography: Geography = GEOGRAPHY,
    unit: PrivacyUnit | None = None,
    **changes: Any,
) -> Published:
    """A release as the pipeline makes it public; a second time it is read back, and nothing is drawn."""
    unit = unit or PrivacyUnit("trip", neighbours)
    ledger = Ledger(root / "ledger.sqlite")
    ledger.declare(PrivacyDomain("commuters", unit, Cap(rho=Fraction(9)), "a test"))
    asked = {"budget": Budget(rho=2, delta="1e-8"), "mechanism": mechanism, "fault_threshold": 0} | changes
    release = release_flows(flows, geography, unit=unit, ledger=ledger, release_id=str(KEY), **asked)
    return publish(FLOW_KIND, release, KEY, "commuters", root)[0]


small = functools.partial(published, geography=ONE_LEVEL)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole")
    small(root)
    return root


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Published:
    """A copy of the whole release, to be damaged."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return locations(tmp_path, KEY)


def rewrite(path: Path, change: Any) -> None:
    frame = pd.read_parquet(path)
    change(frame)
    frame.to_parquet(path, index=False)


def swap(frame: pd.DataFrame) -> None:
    """The same total: one trip less here and one more there."""
    of_zones = (frame["origin_level"] == "zone") & (frame["destination_level"] == "zone")
    leaves = frame.index[of_zones & (frame["trips"] > 1)]
    frame.loc[leaves[0], "trips"] += 1
    frame.loc[leaves[-1], "trips"] -= 1


def one_more_above(frame: pd.DataFrame) -> None:
    """All trips of a zone: nothing is read back from it, so that only its bytes tell."""
    frame.loc[frame.index[frame["destination_level"] == "all"][-1], "trips"] += 1


def in_database(statement: str) -> Any:
    def change(release: Published) -> None:
        with duckdb.connect(str(release.database)) as connection:
            connection.execute(statement)

    return change


DAMAGE: dict[str, tuple[Any, set[str]]] = {
    "a trip moved": (
        lambda r: rewrite(r.bundle / "tables/flows.parquet", swap),
        {"flows", "invariants", "bundle", "database"},
    ),
    "a trip more of a zone": (
        lambda r: rewrite(r.bundle / "tables/flows.parquet", one_more_above),
        {"files", "bundle"},
    ),
    "a wider interval": (lambda r: last_row(r.bundle / "tables/flows.parquet", "upper"), {"files", "bundle"}),
    "an interval of the database narrowed": (
        in_database(
            "UPDATE flow_intervals SET upper = upper - 1"
            " WHERE rowid = (SELECT min(rowid) FROM flow_intervals WHERE upper > trips)"
        ),
        {"database"},
    ),
    "an interval of the database gone": (
        in_database("DELETE FROM flow_intervals WHERE rowid = (SELECT max(rowid) FROM flow_intervals)"),
        {"database"},
    ),
    "no noise by the database": (in_database("UPDATE measurements SET variance = 0"), {"database"}),
}


@pytest.mark.representatives("a trip moved", "no noise by the database")
@pytest.mark.parametrize("name", DAMAGE)
def test_any_change_of_flows_is_found_and_its_part_named(copy, name):
    damage, parts = DAMAGE[name]
    damage(copy)
    found = faults(copy)
    assert parts <= set(found)
    assert all("\n" not in fault for fault in found.values())


def test_certificates_name_the_entry_of_their_ledger(whole):
    """So an older ledger, restored together with its head, is told from the newest."""
    ledger = Ledger(whole / "ledger.sqlite")
    named = read_certified_entries(whole / "releases")
    assert list(named) == ["commuters/2001-06/r1"]
    ledger.hold_to(named)
    entry = named["commuters/2001-06/r1"]
    for other in (EntryName(entry.number + 100, entry.hash), EntryName(entry.number, "0" * 64)):
        with pytest.raises(OdError, match="OD-LEDGER-ROLLED-BACK: commuters/2001-06/r1 is public, but"):
            ledger.hold_to({"commuters/2001-06/r1": other})


@pytest.fixture(scope="module")
def of_areas(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """A release with area totals of both sides. Not to be changed."""
    return published(tmp_path_factory.mktemp("of_areas"), area_totals="1/10")


def in_measurements(change: Any) -> Any:
    return lambda r: rewrite(r.bundle / "tables/noisy_measurements.parquet", change)


def without_the_last_row(release: Published) -> None:
    path = release.bundle / "tables/noisy_measurements.parquet"
    pd.read_parquet(path)[:-1].to_parquet(path, index=False)


def ten_thousand_more(frame: pd.DataFrame) -> None:
    """In the total of the last zone of the destinations, so that the flows to it would be others."""
    frame.loc[len(frame) - 1, "noisy"] += 10_000


def two_zones_swapped(frame: pd.DataFrame) -> None:
    """Each of the last two totals stands with the zone of the other."""
    frame.loc[frame.index[-2:], "destination"] = frame["destination"].to_numpy()[[-1, -2]]


def in_certificate(edit: Any) -> Any:
    return lambda release: restated(release.bundle, edit)


def charges(*of_area_totals: str) -> Any:
    """The charges of area totals, as the certificate states them in every sum."""

    def edit(facts: dict[str, Any]) -> None:
        facts["spent"]["rho_by_level_exact"][-2:] = of_area_totals
        facts["spent"] |= {"rho_exact": "9/5", "rho": 1.8}

    return in_certificate(edit)


OF_AREAS: dict[str, tuple[Any, set[str]]] = {
    "another number": (in_measurements(ten_thousand_more), {"files", "flows", "bundle", "measurements", "database"}),
    "a row less": (without_the_last_row, {"files", "bundle"}),
    "another order": (in_measurements(two_zones_swapped), {"files", "bundle"}),
    "numbers that are not certified": (in_certificate(lambda facts: facts["levels"].pop()), {"bundle"}),
    "charges forgotten": (charges(), {"bundle"}),
    "charges of nothing": (charges("0", "0"), {"bundle", "ledger"}),
}


@pytest.mark.representatives("another number")
@pytest.mark.parametrize("name", OF_AREAS)
def test_any_change_of_area_totals_is_found(of_areas, tmp_path, name):
    shutil.copytree(of_areas.database.parent, tmp_path, dirs_exist_ok=True)
    (damage, parts), copied = OF_AREAS[name], locations(tmp_path, KEY)
    damage(copied)
    found = faults(copied)
    assert parts <= set(found)
    if set(found) <= {"files", "bundle"}:  # it cannot even be opened
        with pytest.raises(OdError, match="OD-BUNDLE-CHANGED"):
            open_release(copied.bundle)


def older(**changes: Any) -> Any:
    """The certificate as another version of the library would have written it."""
    return in_certificate(lambda facts: facts.update(changes, software=facts["software"] | {"od-release": "0.0.1"}))


@pytest.mark.slow
def test_a_certificate_of_another_version_keeps_its_words_but_not_other_numbers(copy):
    older(guarantee={"protected": "In the words of before."})(copy)
    assert "bundle" not in faults(copy)
    assert "differs from the one that was published" in faults(copy)["ledger"]  # whoever changed the words
    older(contribution_bound=7)(copy)
    assert "bundle" in faults(copy)
