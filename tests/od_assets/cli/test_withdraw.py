"""``od-release withdraw``: a release goes from everything that is public, and its charge and the reason stay."""

import json
import shutil
import stat
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from od_assets.cli.app import app
from od_assets.resources import withdrawal
from od_assets.resources.folders import Folders
from od_core import OdError
from od_core.ledger import chain
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.database import list_stored_releases
from od_core.published.derived import publish_assisted, publish_sum
from od_core.published.opening import find_bundle_folders
from tests.od_assets.cli.commands import refusal
from tests.od_assets.conftest import CHECKOUT, failure_text, public_bytes, records
from tests.od_core.ledger.ledger_rows import rows

GONE, WHY = "trips/2001-01/r1", "a file of records was counted twice"
KEY, NEXT = ReleaseKey.parse(GONE), ReleaseKey("trips", "2001-02")
URL = "https://statistics.example/od/"
ATOM = "{http://www.w3.org/2005/Atom}"


def run(*arguments: str) -> Any:
    return json.loads(CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False).stdout)


def withdraw(release: str = GONE, reason: str = WHY) -> Any:
    return run("withdraw", release, "--reason", reason)["withdrawn"]


def public_numbers(var: Path) -> list[str]:
    """Files of the withdrawn release that are public, and whether the database has its name anywhere."""
    left = [path.relative_to(var) for place in ("releases", "site") for path in (var / place).rglob("*")]
    files = [str(path) for path in left if GONE in str(path) and (var / path).is_file()]
    return files + (["release.duckdb"] if GONE.encode() in (var / "release.duckdb").read_bytes() else [])


NOTICES = [f"releases/{GONE}.withdrawn.json", f"site/api/v1/{GONE}.json", f"site/{GONE}/index.html"]


def test_a_withdrawn_release_is_nowhere_public_and_stays_charged(released):
    var, ledger = released.var, Ledger(released.var / "ledger.sqlite")
    run("site", "--url", URL)
    before, spent = len(rows(ledger.path)), ledger.balance("trips", "2001-01")
    assert [(one["release"], one["reason"]) for one in withdraw()] == [(GONE, WHY)]
    assert (ledger.balance("trips", "2001-01"), ledger.verify()) == (spent, before + 1)
    assert rows(ledger.path)[-1]["kind"] == "WITHDRAWN"
    assert sorted(public_numbers(var)) == NOTICES
    assert list_stored_releases(var / "release.duckdb") == []
    kept = var / "confidential" / "withdrawn" / GONE
    assert (kept / "certificate.json").is_file()
    assert {stat.S_IMODE(path.stat().st_mode) for path in (kept, *kept.rglob("*"))} == {0o600, 0o700}
    assert [row["state"] for row in run("status") if row["release"] == GONE] == ["withdrawn"]
    assert run("verify") == []
    spending = [sys.executable, "docs/verify_spending.py", str(ledger.path), str(var / "releases")]
    assert subprocess.run(spending, cwd=CHECKOUT, capture_output=True, check=False).returncode == 0
    run("site", "--url", URL)
    assert sorted(public_numbers(var)) == NOTICES
    (entry,) = ET.parse(var / "site" / "feed.atom").getroot().findall(f"{ATOM}entry")  # noqa: S314  # a file of ours
    summary = entry.find(f"{ATOM}summary")
    assert summary is not None
    assert str(summary.text).endswith(f": {WHY}")
    (listed,) = json.loads((var / "site" / "catalog.jsonld").read_text(encoding="utf-8"))["dcat:dataset"]
    assert (listed["dct:identifier"], "dcat:distribution" in listed) == (GONE, False)
    described, stated = (json.loads((var / f"site/api/v1/{name}.json").read_text()) for name in ("openapi", GONE))
    Draft202012Validator({**described, "$ref": "#/components/schemas/WithdrawnRelease"}).validate(stated)
    for page in ("index.html", "trips/index.html", f"{GONE}/index.html", "api/v1/index.json", f"api/v1/{GONE}.json"):
        assert WHY in (var / "site" / page).read_text(encoding="utf-8")
    assert run("site", "--url", URL)["changed"] == []


@pytest.mark.parametrize("command", [["report", "trips", "--period", "2001-01"], ["explain", GONE], ["contract", GONE]])
def test_what_asks_for_a_withdrawn_release_is_told_why(released, command):
    withdraw()
    error = refusal(*command)
    assert error.code == "OD-RELEASE-WITHDRAWN"
    assert WHY in str(error)


@pytest.mark.parametrize(
    ("release", "reason", "code"),
    [
        ("trips/2001-02/r1", WHY, "OD-RELEASE-ABSENT"),
        (GONE, " ", "OD-RELEASE-REASON"),
        (GONE, "a\nb", "OD-RELEASE-REASON"),
    ],
)
def test_nothing_is_withdrawn_that_is_not_public_or_without_a_reason(released, release, reason, code):
    before = public_bytes(released.var), len(rows(released.var / "ledger.sqlite"))
    with pytest.raises(OdError, match=code):
        withdraw(release, reason)
    assert (public_bytes(released.var), len(rows(released.var / "ledger.sqlite"))) == before


@pytest.mark.slow
def test_the_next_period_goes_on_and_the_period_itself_as_a_new_revision(released):
    released.write_records(records().assign(date="2001-02-15"), "2001-02")
    assert released.run(period="2001-02").success
    published = {name: file for name, file in public_bytes(released.var).items() if "2001-02" in name}
    withdraw()
    assert [(row["release"], row["verified"]) for row in run("verify")] == [(str(NEXT), True)]  # with the kept copy
    assert "OD-RELEASE-WITHDRAWN" in failure_text(released.run())
    ledger = Ledger(released.var / "ledger.sqlite")
    before = ledger.balance("trips", "2001-01").spent
    again = released.component(revision=2)
    assert released.run(again).success
    assert ledger.balance("trips", "2001-01").spent == 2 * before
    released.component()
    assert released.run(period="2001-02").success
    assert {name: file for name, file in public_bytes(released.var).items() if "2001-02" in name} == published


@pytest.mark.slow
def test_a_period_that_is_published_afterwards_is_not_compared_with_it(released):
    withdraw()
    released.write_records(records().assign(date="2001-02-15"), "2001-02")
    assert released.run(period="2001-02").success
    report = (released.var / "releases" / NEXT.folder / "report.html").read_text(encoding="utf-8")
    assert GONE not in report
    assert [row["verified"] for row in run("verify")] == [True]


@pytest.mark.slow
def test_what_is_derived_from_it_goes_too_and_is_not_made_again(released):
    released.write_records(records().assign(date="2001-02-15"), "2001-02")
    assert released.run(period="2001-02").success
    releases = released.var / "releases"
    derived = [str(publish_sum(releases, [KEY, NEXT]).key), str(publish_assisted(releases, NEXT).key)]
    said = [one["release"] for one in withdraw()]
    assert (said[0], {*said}) == (GONE, {GONE, *derived})
    assert list(find_bundle_folders(releases)) == [NEXT]
    with pytest.raises(OdError, match="OD-RELEASE-WITHDRAWN"):
        publish_sum(releases, [KEY, NEXT])
    assert publish_assisted(releases, NEXT).key.revision == 2
    assert all(row["verified"] for row in run("verify"))


@pytest.mark.parametrize("at", ["copytree", "write_if_changed", "remove_release", "rmtree"])
def test_a_withdrawal_that_was_stopped_is_ended_by_the_same_command(at, released, monkeypatch):
    """Meanwhile, neither a run nor a verification takes the release for a public one."""
    module = shutil if at in ("copytree", "rmtree") else withdrawal
    bundle, real = released.var / "releases" / GONE, getattr(module, at)

    def stopped(place, *arguments, **options):
        if at == "rmtree" and (place != bundle or not (bundle / "report.html").exists()):
            return real(place, *arguments, **options)
        if at == "rmtree":  # a part of its work is done
            (bundle / "certificate.json").unlink()
            (bundle / "report.html").unlink()
        monkeypatch.setattr(module, at, real)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, at, stopped)
    with pytest.raises(KeyboardInterrupt):
        withdrawal.withdraw(Folders(), KEY, WHY)
    assert "OD-RELEASE-WITHDRAWN" in failure_text(released.run())
    assert all(not row["verified"] for row in run("verify"))
    withdraw(reason="another reason, which does not replace the first")
    assert public_numbers(released.var) == NOTICES[:1]
    assert WHY in (released.var / NOTICES[0]).read_text(encoding="utf-8")
    assert (released.var / "confidential" / "withdrawn" / GONE / "report.html").is_file()
    assert [row["kind"] for row in rows(released.var / "ledger.sqlite")].count("WITHDRAWN") == 1


def test_an_earlier_version_refuses_a_ledger_with_a_withdrawal(released, monkeypatch):
    withdraw()
    monkeypatch.setattr(chain, "KINDS", chain.KINDS - {"WITHDRAWN"})
    with pytest.raises(OdError, match="OD-LEDGER-NEWER"):
        Ledger(released.var / "ledger.sqlite")
