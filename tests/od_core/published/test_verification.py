"""Verification finds a change of any part of a published release, and nothing in one that is whole."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest

from od_core import Budget, OdError, PrivacyUnit, release_flows
from od_core.flows.publishing.kind import FLOWS as FLOW_KIND
from od_core.ledger.integrity import EntryName
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.cap import Cap
from od_core.privacy.domain import PrivacyDomain
from od_core.publication.bundle import ledger_entries
from od_core.publication.certificate import CheckResult, certificate, certificate_digest
from od_core.publication.context import context_of
from od_core.published.verification import REPAIR, Published, verify_release
from tests.od_core.ledger.ledger_rows import FLOWS, GEOGRAPHY
from tests.od_core.publication.examples import sealed_again, staged_bundle

KEY = ReleaseKey("commuters", "2001-06")


def published(root: Path, neighbours: str = "bounded", flows: pd.DataFrame = FLOWS) -> Published:
    """A release as the pipeline makes it public; a second time it is read back, and nothing is drawn."""
    unit = PrivacyUnit("trip", neighbours)
    ledger = Ledger(root / "ledger.sqlite")
    ledger.declare(PrivacyDomain("commuters", unit, Cap(rho=Fraction(9)), "a test"))
    release = release_flows(
        flows,
        GEOGRAPHY,
        unit=unit,
        budget=Budget(rho=2, delta="1e-8"),
        ledger=ledger,
        release_id=str(KEY),
        fault_threshold=0,
    )
    checks = [CheckResult("flows", "total_is_n", True)]
    facts = certificate(FLOW_KIND, release, KEY, "commuters", checks, record=ledger.record(KEY))
    bundle = root / "releases" / "commuters" / "2001-06" / "r1"
    context = context_of(FLOW_KIND, ledger, KEY, "commuters", root / "releases")
    with staged_bundle(release, facts, bundle, context, ledger.published_certificate(KEY)):
        FLOW_KIND.store(root / "release.duckdb", release, KEY, facts)
    ledger.publish(KEY, certificate_digest(facts), facts["exact"])
    return Published(KEY, bundle, root / "release.duckdb", ledger, root / "confidential" / KEY.folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole")
    published(root)
    return root


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Published:
    """A copy of the whole release, to be damaged."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    bundle = tmp_path / "releases" / "commuters" / "2001-06" / "r1"
    ledger = Ledger(tmp_path / "ledger.sqlite")
    return Published(KEY, bundle, tmp_path / "release.duckdb", ledger, tmp_path / "confidential" / KEY.folder)


def faults(release: Published) -> dict[str, str]:
    return {finding.part: finding.fault for finding in verify_release(release) if finding.fault is not None}


@pytest.mark.parametrize("neighbours", ["bounded", "unbounded"])
def test_a_whole_release_verifies_without_key_or_records(tmp_path, neighbours):
    """Years later, where the key is lost and the true counts are gone."""
    release = published(tmp_path, neighbours)
    for path in (tmp_path / "confidential" / "hmac.key", release.measurements / "identity.json"):
        path.unlink()
    findings = verify_release(release)
    assert [finding.fault for finding in findings] == [None] * 7


@pytest.mark.parametrize("neighbours", ["bounded", "unbounded"])
def test_a_period_without_trips_verifies(tmp_path, neighbours):
    assert faults(published(tmp_path, neighbours, FLOWS[:0])) == {}


def rewrite(path: Path, change: Any) -> None:
    frame = pd.read_parquet(path)
    change(frame)
    frame.to_parquet(path, index=False)


def one_more(column: str) -> Any:
    """In the last row: of the measurements, a leaf cell, so that those above still give the same cells below."""

    def change(frame: pd.DataFrame) -> None:
        frame.loc[len(frame) - 1, column] += 1

    return change


def swap(frame: pd.DataFrame) -> None:
    """The same total: one trip less here and one more there."""
    of_zones = (frame["origin_level"] == "zone") & (frame["destination_level"] == "zone")
    leaves = frame.index[of_zones & (frame["trips"] > 1)]
    frame.loc[leaves[0], "trips"] += 1
    frame.loc[leaves[-1], "trips"] -= 1


def one_more_above(frame: pd.DataFrame) -> None:
    """A flow between two regions: nothing is read back from it, so that only its bytes tell."""
    frame.loc[frame.index[frame["origin_level"] == "region"][0], "trips"] += 1


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def in_certificate(*path: str, value: Any) -> Any:
    def change(release: Published) -> None:
        file = release.bundle / "certificate.json"
        facts = json.loads(file.read_text(encoding="utf-8"))
        place = facts
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value
        file.write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n", encoding="utf-8")

    return change


def in_database(statement: str) -> Any:
    def change(release: Published) -> None:
        with duckdb.connect(str(release.database)) as connection:
            connection.execute(statement)

    return change


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE: dict[str, tuple[Any, set[str]]] = {
    "a trip moved": (
        lambda r: rewrite(r.bundle / "flows.parquet", swap),
        {"flows", "invariants", "bundle", "database"},
    ),
    "a trip more between regions": (
        lambda r: rewrite(r.bundle / "flows.parquet", one_more_above),
        {"files", "bundle"},
    ),
    "a wider interval": (lambda r: rewrite(r.bundle / "flows.parquet", one_more("upper")), {"files", "bundle"}),
    "a matrix cut": (lambda r: cut(r.bundle / "flows_zone_zone.omx"), {"files", "bundle"}),
    "a table cut": (lambda r: cut(r.bundle / "flows.parquet"), {"files", "bundle"}),
    "the zip file cut": (lambda r: cut(r.bundle.with_name("r1.zip")), {"files"}),
    "the zip file gone": (lambda r: r.bundle.with_name("r1.zip").unlink(), {"files"}),
    "a trip more": (lambda r: rewrite(r.bundle / "flows.parquet", one_more("trips")), {"bundle"}),
    "a measurement changed": (
        lambda r: rewrite(r.bundle / "noisy_measurements.parquet", one_more("noisy")),
        {"measurements", "database"},
    ),
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
    "a line of CSV gone": (
        lambda r: (r.bundle / "flows.csv").write_bytes((r.bundle / "flows.csv").read_bytes().rsplit(b"\r\n", 2)[0]),
        {"bundle"},
    ),
    "a file too many": (lambda r: (r.bundle / "notes.txt").write_text("x", encoding="utf-8"), {"bundle"}),
    "a file missing": (lambda r: (r.bundle / "areas.csv").unlink(), {"bundle"}),
    "the bundle missing": (lambda r: shutil.rmtree(r.bundle), {"bundle"}),
    "rho written smaller": (in_certificate("spent", "rho", value=0.001), {"bundle"}),
    "a charge written smaller": (
        in_certificate("spent", "rho_by_level_exact", value=["1/100"] * 4),
        {"bundle", "ledger"},
    ),
    "another promise": (in_certificate("guarantee", "protected", value="Nothing is learnt."), {"bundle"}),
    "another backend": (in_certificate("noise", value="table"), {"bundle", "ledger"}),
    "another entry": (in_certificate("ledger", value={"entry": 3, "hash": "0" * 64}), {"bundle", "ledger"}),
    "no checks": (in_certificate("checks", value=[]), {"ledger"}),
    "another threshold": (in_certificate("fault_threshold", value="1/2"), {"bundle", "ledger"}),
    "no threshold": (in_certificate("fault_threshold", value=None), {"bundle", "ledger"}),
    "no plan": (in_certificate("plan", value=None), {"bundle"}),
    "rho by zero": (in_certificate("spent", "rho_by_level_exact", value=["1/0"] * 4), {"bundle"}),
    "no certificate": (lambda r: (r.bundle / "certificate.json").write_text("[]", encoding="utf-8"), {"bundle"}),
    "a folder for a file": (
        lambda r: ((r.bundle / "flows.csv").unlink(), (r.bundle / "flows.csv").mkdir()),
        {"bundle"},
    ),
    "a failed check": (in_certificate("checks", value=[{"subject": "f", "check": "c", "passed": False}]), {"bundle"}),
    "a kept measurement changed": (
        lambda r: flip_a_byte(r.measurements / "noisy_measurement_2.draw_1.parquet"),
        {"measurements"},
    ),
    "a kept measurement gone": (
        lambda r: (r.measurements / "noisy_measurement_2.draw_1.parquet").unlink(),
        {"measurements"},
    ),
    "a flow of the database changed": (
        in_database("UPDATE flows SET trips = trips + 1 WHERE trips > 100"),
        {"database"},
    ),
    "a smaller epsilon in the database": (in_database("UPDATE releases SET epsilon = 0.001"), {"database"}),
    "another certificate in the database": (
        in_database("UPDATE releases SET certificate = replace(certificate, 'differentially', 'completely')"),
        {"database"},
    ),
    "checks gone from the database": (in_database("DELETE FROM checks"), {"database"}),
    "no noise by the database": (in_database("UPDATE measurements SET variance = 0"), {"database"}),
    "NULL in the database": (in_database("UPDATE flows SET trips = NULL"), {"database"}),
    "not in the database": (in_database("DELETE FROM releases"), {"database"}),
    "the database gone": (lambda r: r.database.unlink(), {"database"}),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_any_change_is_found_and_its_part_named(copy, name):
    damage, parts = DAMAGE[name]
    damage(copy)
    found = faults(copy)
    assert parts <= set(found)
    assert all("\n" not in fault for fault in found.values())


def test_an_edited_ledger_is_found(copy):
    with closing(sqlite3.connect(copy.ledger.path, isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER entries_are_final")
        connection.execute("UPDATE entries SET rho = '1/1000' WHERE number = 3")
    assert "damaged or was edited" in faults(copy)["ledger"]


def test_parquet_of_other_bytes_is_found(copy):
    """The same table, written with another codec by the same software, is not what was published."""
    path = copy.bundle / "flows.parquet"
    pq.write_table(pq.read_table(path), path, compression="none")
    assert set(faults(copy)) == {"files", "bundle"}


def test_certificates_name_the_entry_of_their_ledger(whole):
    """So an older ledger, restored together with its head, is told from the newest."""
    ledger = Ledger(whole / "ledger.sqlite")
    named = ledger_entries(whole / "releases")
    assert list(named) == ["commuters/2001-06/r1"]
    ledger.hold_to(named)
    entry = named["commuters/2001-06/r1"]
    for other in (EntryName(entry.number + 100, entry.hash), EntryName(entry.number, "0" * 64)):
        with pytest.raises(OdError, match="OD-LEDGER-ROLLED-BACK: commuters/2001-06/r1 is public, but"):
            ledger.hold_to({"commuters/2001-06/r1": other})


def older(**changes: Any) -> Any:
    """The certificate as another version of the library would have written it."""

    def change(release: Published) -> None:
        file = release.bundle / "certificate.json"
        facts = json.loads(file.read_text(encoding="utf-8"))
        facts["software"]["od-release"] = "0.0.1"
        file.write_text(json.dumps(facts | changes), encoding="utf-8")
        sealed_again(release.bundle)

    return change


def test_a_certificate_of_another_version_keeps_its_words_but_not_other_numbers(copy):
    older(guarantee={"protected": "In the words of before."})(copy)
    assert "bundle" not in faults(copy)
    assert "differs from the one that was published" in faults(copy)["ledger"]  # whoever changed the words
    older(contribution_bound=7)(copy)
    assert "bundle" in faults(copy)


def test_what_verification_finds_damaged_is_made_again_by_the_next_run(copy, whole):
    """The next step that it names; the files, and the finding, are those of before."""
    whole_bundle = whole / copy.bundle.relative_to(copy.releases.parent)
    for name in ("flows_zone_zone.omx", "flows.csv"):
        cut(copy.bundle / name)
    finding = verify_release(copy)[0]
    assert (finding.part, finding.next_step) == ("files", REPAIR)
    published(copy.releases.parent)
    assert faults(copy) == {}
    assert verify_release(copy)[0].next_step is None
    for file in whole_bundle.iterdir():
        assert (copy.bundle / file.name).read_bytes() == file.read_bytes()
