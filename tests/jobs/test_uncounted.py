"""Months of users, with the number of trips that the bounds of the year leave out, through Dagster."""

import json
import shutil
from fractions import Fraction
from typing import Any

import jsonschema
import pyarrow.parquet as pq

from od_assets.resources.warehouse import verify_published_releases
from od_core import open_release
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.accounting import compute_tight_epsilon
from od_core.published.derived import publish_sum
from od_core.published.opening import open_bundle
from tests.jobs.test_user_year import MONTHS, SCHEMA, of_users, users
from tests.od_assets.canary import leaks
from tests.od_assets.conftest import Project, public_bytes
from tests.od_core.published.test_verify_spending import Row, charges, forged, found

K = 15
"""Trips of a user that are considered; each of the hundred users has twenty in a month."""

DECLARED = {
    "privacy": {"rho": "1", "delta": "1e-8"},
    "domain__cap": {"rho": "10", "reason": "a test"},
    "uncounted": {"share": "0.5", "max_trips": K},
}
TRUE = {"2001-01": 100 * K - 200, "2001-02": 100 * K - 100, "2001-03": 100 * K - 100}
"""The year counts two trips of each user in January, and the third one in February; in March, those of new users."""

DEVIATION = (K * K / (2 * 0.5)) ** 0.5
YEAR = Fraction(5, 4) * Fraction(1, 2) + 3 * Fraction(1, 2)
"""What the year costs: two months' levels and a quarter of another's, and the numbers of all three months."""


def months(project: Project, declared: Any, names: tuple[str, ...], **columns: Any) -> None:
    for month in names:
        frame = users(month, 50 if month == "2001-03" else 0)
        project.write_records(frame.assign(**{name: make(frame) for name, make in columns.items()}), month)
        project.publish(declared, month)


def test_the_number_is_published_charged_verified_and_replayed(project, tmp_path, capsys):
    declared = of_users(project, **DECLARED)
    months(project, declared, MONTHS)
    for month in MONTHS:
        bundle = project.var / "releases" / "trips" / month / "r1"
        facts = json.loads((bundle / "certificate.json").read_text(encoding="utf-8"))
        jsonschema.validate(facts, json.loads(SCHEMA.read_text(encoding="utf-8")))
        stated = facts["uncounted"]
        assert abs(stated["trips"] - TRUE[month]) < 10 * DEVIATION  # a chance below 1e-20
        assert stated["lower"] <= stated["trips"] <= stated["upper"]
        assert (stated["max_trips"], stated["rho_exact"]) == (K, "1/2")
        trips = facts["contents"]["trips"]
        assert stated["share"] == round(stated["trips"] / (stated["trips"] + trips), 4)
        assert facts["spent"]["rho_exact"] == "1"
        epsilon = compute_tight_epsilon(Fraction(5, 4) * Fraction(1, 2) + 12 * Fraction(1, 2), Fraction(1, 10**8))
        said = float(facts["guarantee"]["year"].partition("together are (")[2].partition(",")[0])
        assert epsilon <= said <= float(epsilon) * 1.001
        assert open_bundle(bundle)[1].uncounted == stated["trips"]
        opened = open_release(project.var / "release.duckdb", "trips", period=month)
        assert (opened.uncounted, opened.plan.uncounted_step.max_trips) == (stated["trips"], K)
    assert [row["verified"] for row in verify_published_releases("trips")] == [True] * 3
    assert Ledger(project.var / "ledger.sqlite").balance("trips", "2001-01").spent == YEAR
    added_up = publish_sum(project.var / "releases", [ReleaseKey("trips", month) for month in MONTHS])
    least, stated = (
        compute_tight_epsilon(YEAR, Fraction(1, 10**8)),
        added_up.certificate["spent"]["all_periods"]["epsilon"],
    )
    assert least <= stated <= 1.001 * float(least)
    shutil.rmtree(added_up.folder)
    before = public_bytes(project.var)
    assert project.run(declared, MONTHS[0]).success
    assert public_bytes(project.var) == before
    assert found(project.var, capsys) == []
    for number, (edit, words) in enumerate(FORGERIES.values()):
        faults = found(forged(project.var, tmp_path / str(number), edit), capsys)
        assert any(words in fault for fault in faults), faults
    assert leaks(project.root) == []


def of_number(entries: list[Row], month: str) -> Row:
    (row,) = (row for row in charges(entries, f"trips/{month}/r1") if "max_uncounted" in row["content"])
    return row


def cheaper(entries: list[Row], certificates: dict[str, Any]) -> None:
    row = of_number(entries, "2001-01")
    row["rho"] = str(Fraction(row["rho"]) / 2)


def smaller_bound(entries: list[Row], certificates: dict[str, Any]) -> None:
    """The entry says that fewer trips were considered than the plan does."""
    of_number(entries, "2001-01")["content"]["max_uncounted"] = K - 1


def lower_cap(entries: list[Row], certificates: dict[str, Any]) -> None:
    """The cap is just below what the year has spent, and above what it would have without the numbers."""
    (row,) = (row for row in entries if row["kind"] == "CAP")
    row["content"]["rho"] = str(YEAR - Fraction(1, 100))


FORGERIES = {
    "a cheaper number": (cheaper, "was charged rho"),
    "a smaller bound": (smaller_bound, "another level or noise"),
    "the cap of the year": (lower_cap, "the cap of trips in 2001 is exceeded"),
}


def test_parts_and_segments_have_the_number(project):
    segments = {"mode": {"categories": ["car", "bus", "other"], "unknown": "other"}}
    declared = of_users(project, bands={"cuts": [2], "part_trips": 50}, segments=segments, **DECLARED)
    modes = {"mode": lambda frame: ["car", "bus", "tram", "car"] * (len(frame) // 4)}
    months(project, declared, MONTHS[:2], **modes)
    for month in MONTHS[:2]:
        facts = json.loads((project.var / f"releases/trips/{month}/r1/certificate.json").read_text(encoding="utf-8"))
        assert abs(facts["uncounted"]["trips"] - TRUE[month]) < 10 * DEVIATION
        folder = project.var / "confidential" / "user-counters" / "trips" / "2001" / month
        counted = pq.read_table(folder / f"trips.{month}.r1.parquet")["counted"].to_pylist()
        assert sum(counted) == {"2001-01": 200, "2001-02": 100}[month]
    before = public_bytes(project.var)
    assert project.run(declared, MONTHS[0]).success
    assert public_bytes(project.var) == before
    assert [row["verified"] for row in verify_published_releases("trips")] == [True] * 2
    assert leaks(project.root) == []
