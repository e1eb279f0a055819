"""The expectations allow the share of faults that the count allows, no less, and show no value."""

import shutil
import stat
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest

from od_assets.checks import expectations, release_checks
from od_assets.checks.expectations import check_flow_expectations, check_record_expectations
from od_assets.resources.release_work import FlowWork
from od_assets.resources.warehouse import Warehouse

from ..audited import audited
from ..od_core.files.disks import umask
from .conftest import ZONES, records

LISTED = tuple(ZONES["zone"])
CANARY = "CANARY77Q"
SOUND = pd.DataFrame({"origin": ["Z00", "Z00"], "destination": ["Z00", "Z01"], "trips": [3, 1]})


@pytest.fixture(autouse=True)
def every_table_checked(equal_tables_checked_once, monkeypatch):
    monkeypatch.setattr(expectations, "_check_table", equal_tables_checked_once)


@pytest.fixture
def met(tmp_path) -> Callable[..., dict[str, bool]]:
    """What is met by records; beside them nothing is left but the pages, which show no value."""

    def count_violations(frame, threshold=Fraction(1, 1000)):
        frame.to_parquet(tmp_path / "raw_trips.parquet", index=False)
        outcome = check_record_expectations(tmp_path / "raw_trips.parquet", LISTED, threshold, tmp_path / "docs")
        assert {path.name for path in tmp_path.iterdir()} == {"raw_trips.parquet", "docs"}
        pages = list(tmp_path.rglob("*.html"))
        assert pages
        assert not [page for page in pages if CANARY in page.read_text(encoding="utf-8")]
        return outcome

    return count_violations


def loaded(number: int = 2000) -> pd.DataFrame:
    return records(number).assign(date=pd.Timestamp("2001-01-15"), in_period=True)


FAULTS = {
    "origin_missing": ("origin", None),
    "origin_unlisted": ("origin", CANARY),
    "destination_missing": ("destination", None),
    "destination_unlisted": ("destination", CANARY),
    "outside_period": ("in_period", False),
    "user_missing": ("user", " "),
}


@pytest.mark.representatives("origin_missing", "destination_unlisted", "user_missing")
@pytest.mark.parametrize("kind", FAULTS)
def test_faulty_records_up_to_the_threshold(met, kind):
    """Of each kind for itself: as many as are allowed, and one more. Each finds nothing where the others are."""
    column, value = FAULTS[kind]
    for faults in (2, 3):
        frame = loaded().assign(user=CANARY) if column == "user" else loaded()
        frame.loc[: faults - 1, column] = value
        unmet = [name for name, is_met in met(frame).items() if not is_met]
        assert unmet == ([] if faults <= 2 else [f"expect_column_values_to_be_between: {kind}"])


def test_the_threshold_is_an_exact_fraction(met):
    """One in three is allowed, and one in three less a trifle that no float holds is not."""
    frame = loaded(3)
    frame.loc[0, "origin"] = CANARY
    assert all(met(frame, Fraction(1, 3)).values())
    assert not all(met(frame, Fraction(1, 3) - Fraction(1, 10**30)).values())


def test_unlisted_zones_are_counted_among_those_that_are_there(met):
    """As Great Expectations counts: half of the origins are missing, one of the other half is unlisted."""
    frame = loaded(4)
    frame["origin"] = [None, None, CANARY, LISTED[0]]
    unmet = {name for name, is_met in met(frame, Fraction(2, 5)).items() if not is_met}
    assert unmet == {f"expect_column_values_to_be_between: origin_{kind}" for kind in ("missing", "unlisted")}


def test_no_records_at_all_meet_what_is_expected(met):
    assert all(met(loaded()[:0].astype({"origin": "str", "destination": "str"})).values())


def test_a_missing_column_and_one_too_many_are_found(met):
    assert not met(loaded().drop(columns="origin"))["expect_column_to_exist: origin"]
    for frame in (loaded().assign(more=CANARY), loaded().assign(trips=1, more=CANARY)):
        assert not met(frame)["expect_table_column_count_to_equal: raw_records"]


def test_of_flows_the_schema_alone_is_expected(met):
    """Their rows weigh differently from trips."""
    flows = loaded().assign(origin=CANARY, trips=1)
    assert all(met(flows).values())
    assert not met(flows.drop(columns="date"))["expect_column_to_exist: date"]


@pytest.mark.parametrize(
    ("change", "unmet"),
    [
        (lambda flows: flows, None),
        (lambda flows: flows.assign(trips=[0, 1]), "expect_column_values_to_be_between: trips"),
        (lambda flows: flows.assign(trips=[1.0, 2.0]), "expect_column_values_to_be_of_type: trips"),
        (lambda flows: flows.assign(origin="Z99"), "expect_column_values_to_be_in_set: origin_is_listed"),
        (lambda flows: flows.assign(destination="Z00"), "expect_compound_columns_to_be_unique: published_flows"),
    ],
)
def test_published_flows(tmp_path, change, unmet):
    outcome = check_flow_expectations(change(SOUND), LISTED, LISTED, tmp_path)  # type: ignore[operator]
    assert [name for name, met in outcome.items() if not met] == ([] if unmet is None else [unmet])


def test_flows_are_checked_once_in_a_run_unless_they_change(released, monkeypatch):
    """Before publication, every check runs again; Great Expectations has nothing new to say of the same table."""
    settings, looked = released.component().require_valid(), list[int]()

    def look(*given):
        met = check_flow_expectations(*given)  # type: ignore[arg-type]
        looked.append(sum(not one for one in met.values()))
        return met

    monkeypatch.setattr(release_checks, "check_flow_expectations", look)
    (check,) = (one for one in release_checks.make_release_checks(settings) if one.asset == ["flows"])
    warehouse = Warehouse()
    assert check.count_violations(warehouse, "2001-01") == check.count_violations(warehouse, "2001-01")
    assert looked == [0]
    flows = FlowWork.find_or_make(warehouse, settings, settings.key("2001-01")).staged.flows
    pd.read_parquet(flows).assign(destination="Z99").to_parquet(flows)
    assert check.count_violations(warehouse, "2001-01")["meets_expectations"] == 1
    assert looked == [0, 2]


FILES_CHANGE = {"open", "os.chmod", "os.mkdir", "os.rename", "os.remove"}


def test_pages_about_records_are_closed_at_every_moment(project):
    """Looked at before every step that Python takes with files: a kill may come between any two of them."""
    settings, warehouse = project.component().require_valid(), Warehouse()
    assert project.materialize("geography", "raw_trips").success
    docs = FlowWork(warehouse, settings, settings.key("2001-01")).staged.data_docs
    shutil.rmtree(docs)  # of the check that has run
    seen, readable = set[Path](), set[Path]()

    def count_violations(event, _arguments):
        if event in FILES_CHANGE and docs.exists():
            for path in (docs, *docs.rglob("*")):
                seen.add(path)
                mode = stat.S_IMODE(path.stat().st_mode)
                readable.update([path] if mode != (0o700 if path.is_dir() else 0o600) else [])

    with umask(0):
        with audited(count_violations):
            assert release_checks.make_release_checks(settings)[1].count_violations(warehouse, "2001-01") == {
                "meets_expectations": 0
            }
        count_violations("open", ())
    assert [path.name for path in seen if path.suffix == ".html"] == ["raw_records.html"]
    assert readable == set()


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_a_page_about_what_is_public_is_read_by_all_whatever_the_umask(tmp_path, mask):
    with umask(mask):
        check_flow_expectations(SOUND, LISTED, LISTED, tmp_path / "docs" / "trips")
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "docs").rglob("*")}
    assert found == {"trips": 0o755, "published_flows.html": 0o644}


def test_a_page_that_an_earlier_run_left_open_is_closed(project):
    settings, warehouse = project.component().require_valid(), Warehouse()
    assert project.materialize("geography", "raw_trips").success
    docs = FlowWork(warehouse, settings, settings.key("2001-01")).staged.data_docs
    docs.chmod(0o755)
    (page,) = docs.iterdir()
    page.chmod(0o644)
    release_checks.make_release_checks(settings)[1].count_violations(warehouse, "2001-01")
    assert {path: stat.S_IMODE(path.stat().st_mode) for path in (docs, *docs.iterdir())} == {docs: 0o700, page: 0o600}
