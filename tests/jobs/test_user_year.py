"""Months of users whose trips of a year are bounded, through Dagster: counted, replayed, certified and verified."""

import json
import shutil
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import dagster as dg
import jsonschema
import pandas as pd
import pytest

from od_assets.cli.diagnosis import Finding
from od_assets.components import OdRelease
from od_assets.resources.warehouse import verify_published_releases
from od_core import open_release
from od_core.flows.staging import StagedRelease
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.accounting import compute_tight_epsilon
from tests.od_assets.canary import USER, leaks
from tests.od_assets.conftest import Project, doctors_faults, failure_text, projects_in, public_bytes, records
from tests.od_core.published.test_verify_spending import Row, charges, forged, found

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "certificate.schema.json"
MONTHS = ("2001-01", "2001-02", "2001-03")
RHO = Fraction(1, 100)
YEAR: dict[str, Any] = {
    "periods": {"first": "2001-01", "last": "2002-01"},
    "privacy": {"rho": str(RHO), "delta": "1e-8"},
    "trips__fault_threshold": "1/1000",
    "domain__unit": "user_year",
    "domain__column": "person",
    "domain__bounds": {"max_trips": 2, "max_trips_year": 3},
    "domain__id_pattern": "p[0-9]+|[A-Z0-9]+(-[A-Z0-9]+)*",
}


def of_users(project: Project, **changes: Any) -> OdRelease:
    return project.component(**YEAR | changes)


def users(month: str, first: int = 0) -> pd.DataFrame:
    """A hundred people of twenty trips; one of them has an unmistakable id, and one record has none."""
    people = [USER if k % 100 == 7 else f"p{first + k % 100}" for k in range(2000)]
    return records().assign(date=f"{month}-15", person=[None, *people[1:]])


def write_months(project: Project) -> None:
    """In March, half of the people are new."""
    for month, first in zip(MONTHS, (0, 0, 50), strict=True):
        project.write_records(users(month, first), month)


@pytest.fixture(scope="module")
def three_months(tmp_path_factory) -> Iterator[Path]:
    """A project whose first three months are released. Not to be changed."""
    folder = tmp_path_factory.mktemp("three_months")
    with projects_in(folder) as make:
        project = make()
        write_months(project)
        for month in MONTHS:
            project.publish(of_users(project), month)
    return folder


@pytest.fixture
def released(three_months, project) -> Project:
    """The project, in a folder of the test."""
    shutil.copytree(three_months, project.root, dirs_exist_ok=True)
    return project


def counted(project: Project, month: str, revision: int = 1) -> int:
    folder = project.var / "confidential" / "trips" / month / f"r{revision}"
    return StagedRelease(folder).open_trip_counts().read_all().total


def test_a_year_of_users_is_counted_certified_and_verified(released):
    """In January two trips of each user, in February the third one, and in March those of the new users."""
    assert [counted(released, month) for month in MONTHS] == [200, 100, 100]
    for month in MONTHS:
        folder = released.var / "confidential" / "user-counters" / "trips" / "2001" / month
        assert [path.name for path in folder.iterdir()] == [f"trips.{month}.r1.parquet"]
    certificates = sorted((released.var / "releases").rglob("certificate.json"))
    assert len(certificates) == 3
    for path in certificates:
        facts = json.loads(path.read_text(encoding="utf-8"))
        jsonschema.validate(facts, json.loads(SCHEMA.read_text(encoding="utf-8")))
        assert (facts["unit"], facts["contribution_bound"], facts["invariants"]) == ("user_year", 2, [])
        assert facts["plan"]["max_trips_year"] == 3
        protected, year = facts["guarantee"]["protected"], facts["guarantee"]["year"]
        assert "at most 2 in each period and 3 in the year are counted" in protected
        epsilon = compute_tight_epsilon(Fraction(5, 4) * RHO, Fraction(1, 10**8))
        stated = float(year.partition("together are (")[2].partition(",")[0])
        assert epsilon <= stated <= float(epsilon) + 1e-3
        assert "within the cap of the privacy domain" in year
    assert [row["verified"] for row in verify_published_releases("trips")] == [True] * 3
    release = open_release(released.var / "release.duckdb", "trips", period="2001-02")
    assert release.plan.unit == of_users(released).require_valid().domain.unit
    assert leaks(released.root) == []


def test_months_are_replayed_byte_for_byte_and_revised_alike(released):
    """January after March, from shuffled records; and a revision of February, which the year leaves as it was."""
    before, ledger = public_bytes(released.var), Ledger(released.var / "ledger.sqlite")
    spent = ledger.balance("trips", "2001-01").spent
    for month in ("2001-01", "2001-02"):
        frame = pd.read_csv(released.root / f"{month}.csv", dtype=str)
        released.write_records(frame.sample(frac=1, random_state=1), month)
        released.publish(of_users(released), month)
    assert public_bytes(released.var) == before
    assert ledger.balance("trips", "2001-01").spent == spent
    assert released.run(of_users(released, revision=2), "2001-02").success
    assert counted(released, "2001-02", 2) == counted(released, "2001-02") == 100
    assert ledger.balance("trips", "2001-01").spent == Fraction(9, 4) * RHO
    assert leaks(released.root) == []


def test_model_assisted_flows_promise_for_the_year(project):
    """They learn from two months, and cost no more than these two together: the year's worst user is in both."""
    write_months(project)
    for month in MONTHS[:2]:
        project.publish(of_users(project, assisted=True), month)
    path = project.var / "releases" / "trips_assisted" / MONTHS[1] / "r1" / "certificate.json"
    facts = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(facts, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert [one["release"] for one in facts["sources"]] == [f"trips/{month}/r1" for month in MONTHS[:2]]
    least, stated = (
        compute_tight_epsilon(Fraction(5, 4) * RHO, Fraction(1, 10**8)),
        facts["spent"]["all_periods"]["epsilon"],
    )
    assert least <= stated <= 1.001 * float(least)
    assert Ledger(project.var / "ledger.sqlite").balance("trips", MONTHS[0]).spent == Fraction(5, 4) * RHO
    assert leaks(project.root) == []


def test_records_that_changed_are_not_replayed_and_name_nobody(released):
    before = public_bytes(released.var)
    frame = users("2001-01").replace({"person": {USER: "p9999"}})
    released.write_records(frame, "2001-01")
    (finding,) = faults(released, "2001-01")
    result = released.run(of_users(released), "2001-01")
    assert not result.success
    assert "OD-REPLAY-INPUT-CHANGED" in failure_text(result)
    assert f"the input would be refused. {told(result)}" == finding.fault
    assert USER not in failure_text(result)
    assert public_bytes(released.var) == before
    assert leaks(released.root) == []


def test_ids_of_another_form_are_refused(released):
    frame = users("2001-04")
    released.write_records(frame.assign(person=frame["person"].str.lower().str.replace("p", "id ")), "2001-04")
    result = released.run(of_users(released), "2001-04")
    assert not result.success
    assert "OD-TRIPS-FAULTS: 2001-04.csv: more than" in failure_text(result)
    assert "lack a valid user id" in failure_text(result)
    assert ReleaseKey("trips", "2001-04") not in Ledger(released.var / "ledger.sqlite").list_drawn_periods("trips")
    assert leaks(released.root) == []


def test_a_job_that_dies_between_counters_and_counts_counts_again(released, monkeypatch):
    released.write_records(users("2001-04", 200), "2001-04")
    with monkeypatch.context() as patch:
        patch.setattr(StagedRelease, "save_counts_for_plan", dies)
        assert not released.run(of_users(released), "2001-04").success
    released.publish(of_users(released), "2001-04")
    assert counted(released, "2001-04") == 198  # one of them has used up the year
    assert Ledger(released.var / "ledger.sqlite").balance("trips", "2001-04").releases == 4


def test_a_month_whose_users_have_no_trips_left_is_refused_with_that_reason(released):
    released.write_records(users("2001-04"), "2001-04")
    (finding,) = faults(released, "2001-04")
    result = released.run(of_users(released), "2001-04")
    assert f"the input would be refused. {told(result)}" == finding.fault
    assert "OD-TRIPS-NONE: 2001-04.csv: no record of the input is counted" in failure_text(result)
    assert "or of users who have no trips of the year left (max_trips_year)" in failure_text(result)
    assert ReleaseKey("trips", "2001-04") not in Ledger(released.var / "ledger.sqlite").list_drawn_periods("trips")


COUNTERS = "confidential/user-counters/trips/2001"


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        (f"{COUNTERS}/2001-01/trips.2001-01.r1.parquet", b"PAR1", "OD-YEAR-COUNTERS-LOST"),
        (f"{COUNTERS}/2001-01/trips.2001-01.r1.parquet", None, "OD-YEAR-COUNTERS-LOST"),
        (f"{COUNTERS}/2001-01/x.parquet", b"PAR1", "OD-YEAR-COUNTERS"),
        (f"{COUNTERS}/2001-04/x.parquet", b"PAR1", "OD-YEAR-COUNTERS"),
        ("confidential/hmac.key", None, "OD-KEY-LOST"),
    ],
)
def test_damaged_counters_do_not_name_the_file_of_records(released, name, content, code):
    """Those of a drawn release, and those of another. The doctor says what the run says, and writes nothing."""
    released.write_records(users("2001-04", 200), "2001-04")
    assert faults(released, "2001-04") == []
    path = released.var / name
    if content is None:
        path.unlink()
    else:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    finding, *others = faults(released, "2001-04")
    assert len(others) == (code == "OD-KEY-LOST")  # the input cannot be counted without the key, either
    result = released.run(of_users(released), "2001-04")
    what = "confidential/hmac.key" if code == "OD-KEY-LOST" else "the counters of users "
    assert f"{code}: {what}" in failure_text(result)
    assert finding.fault == told(result)
    assert "2001-04.csv" not in failure_text(result)
    assert leaks(released.root) == []


def faults(project: Project, month: str, **changes: Any) -> list[Finding]:
    return doctors_faults(project, of_users(project, **changes), month)


def told(result: dg.ExecuteInProcessResult) -> str:
    """The code and the message of a failure, without what was spent and the next step."""
    return failure_text(result).partition(" [")[0]


def dies(*_: object, **__: object) -> None:
    raise RuntimeError("no such luck")


# The second verifier

Edit = Callable[[list[Row], dict[str, Any]], None]


def lower_cap(entries: list[Row], certificates: dict[str, Any]) -> None:
    """The cap is below what the year has spent, and above what any month has."""
    (row,) = (row for row in entries if row["kind"] == "CAP")
    row["content"]["rho"] = "3/250"


def larger_bound(entries: list[Row], certificates: dict[str, Any]) -> None:
    """The data set promised a smaller M than its releases counted by."""
    (row,) = (row for row in entries if row["kind"] == "DOMAIN")
    row["content"]["max_trips_year"] = 2


def moved(entries: list[Row], certificates: dict[str, Any]) -> None:
    """A month is charged to another year, in which nothing was spent."""
    for row in charges(entries, "trips/2001-01/r1"):
        row["content"]["periods"] = ["2002-01"]


def root_of_m_squared(entries: list[Row], certificates: dict[str, Any]) -> None:
    """The root is charged as if two users were always in the same month."""
    for row in charges(entries, "trips/2001-01/r1"):
        if row["level"] == 0:
            row["rho"] = str(Fraction(row["rho"]) / 2)


FORGERIES: dict[str, tuple[Edit, str]] = {
    "the cap of the year": (lower_cap, "the cap of trips in 2001 is exceeded"),
    "the M of the data set": (larger_bound, "another unit than its data set"),
    "a month of another year": (moved, "other periods than its own"),
    "the root": (root_of_m_squared, "was charged rho"),
}


def test_the_second_verifier_finds_nothing(three_months, tmp_path, capsys):
    assert found(three_months / "var", capsys) == []
    assert found(forged(three_months / "var", tmp_path, lambda entries, certificates: None), capsys) == []


@pytest.mark.parametrize("name", FORGERIES)
def test_the_second_verifier_finds_a_forgery(three_months, tmp_path, capsys, name):
    edit, words = FORGERIES[name]
    faults = found(forged(three_months / "var", tmp_path, edit), capsys)
    assert any(words in fault for fault in faults), faults
    assert not any("chain" in fault for fault in faults)


def test_a_used_up_year_is_refused_before_it_is_drawn(released):
    cap = {"domain__cap": {"rho": str(Fraction(5, 4) * RHO), "reason": "no more than this"}}
    released.write_records(users("2001-04", 200), "2001-04")
    assert released.run(of_users(released, **cap), "2001-04").success  # the worst user of the year has no trip left
    dear = released.run(of_users(released, revision=2, **cap), "2001-01")
    assert "OD-LEDGER-CAP: the release needs rho" in failure_text(dear)
    assert "in 2001, but data set 'trips'" in failure_text(dear)
