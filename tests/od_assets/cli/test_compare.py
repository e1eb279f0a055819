"""``od-release compare`` on published releases, in this process."""

import json
import shutil
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from od_core import Geography, open_release
from od_core.flows.publishing.changes import changes
from od_core.flows.publishing.kind import FLOWS
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.certify import build_certificate
from od_core.published.derived import publish_sum
from tests.od_assets.cli.commands import printed, refusal, stated
from tests.od_core.publication.examples import CHECKS, RECORD, publish_bundle, released_trips
from tests.published_flights import KEYS

OLD, NEW = map(str, KEYS)


@pytest.fixture
def var(published_flights, monkeypatch) -> Path:
    monkeypatch.setenv("OD_VAR", str(published_flights))
    return published_flights


run, facts, refused = (partial(each, "compare") for each in (printed, stated, refusal))


def test_the_largest_changes_as_json(var):
    found = facts(OLD, NEW, "--level", "division", "--top", "7")
    before, after = (open_release(var / "releases" / key) for key in (OLD, NEW))
    expected = changes(before, after, "division", "division", days=(31, 30))
    assert (found["days"], found["per_day"]) == ([31, 30], True)
    assert found["note"] == "2001-05 has 31 days and 2001-06 30: changes are told per day."
    assert (found["before"], found["after"], found["confidence"]) == (OLD, NEW, "9/10")
    assert (found["origin_level"], found["destination_level"]) == ("division", "division")
    assert found["pairs"] == len(expected)
    assert found["significant"] == expected["significant"].sum() > 0
    assert found["changes"] == json.loads(expected.head(7).to_json(orient="records"))


def test_levels_of_the_two_ends_may_differ_and_bundles_be_anywhere(var, tmp_path):
    shutil.copytree(var / "releases" / OLD, tmp_path / "mine")
    packed = shutil.make_archive(str(tmp_path / "other"), "zip", var / "releases" / NEW)
    arguments = ["--level", "all", "--origin-level", "division", "--top", "2"]
    found = facts(str(tmp_path / "mine"), packed, *arguments)
    assert (found["origin_level"], found["destination_level"]) == ("division", "all")
    assert found == facts(OLD, NEW, *arguments)


def test_mistakes_are_named_with_what_there_is(var, tmp_path, all_published):
    absent = refused(OLD, "us_flights/2001-07/r1")
    assert absent.code == "OD-RELEASE-ABSENT"
    assert f"published releases: {OLD}, {NEW}" in absent.message
    unknown = refused(OLD, NEW, "--level", "county")
    assert unknown.code == "OD-LEVEL-UNKNOWN"
    assert "all, region, division, state, airport" in unknown.message
    assert refused(OLD, OLD).code == "OD-COMPARE-SAME"
    assert refused(OLD, "2001-05").code == "OD-RELEASE-KEY"
    assert refused(OLD, str(tmp_path)).code == "OD-RELEASE-ABSENT"
    other_kind = refused(OLD, str(all_published["boxes"].place.bundle))
    assert other_kind.code == "OD-COMPARE-KIND"
    assert "journeys/2001-06/r1 is neither a release of flows nor of counts" in other_kind.message


def test_releases_that_are_estimated_by_different_rules_have_a_note(var, tmp_path):
    """The rule that held-out noise chose is in the certificate."""
    shutil.copytree(var / "releases" / NEW, tmp_path / "mine")
    certificate = tmp_path / "mine" / "certificate.json"
    stated = json.loads(certificate.read_text(encoding="utf-8")) | {"estimation": {"rule": "mixture", "u": "1"}}
    certificate.write_text(json.dumps(stated), encoding="utf-8")
    said = "by different rules, least squares and a mixture of deviations with u = 1, so a flow"
    assert said in run(OLD, str(tmp_path / "mine"))
    assert said in facts(OLD, str(tmp_path / "mine"))["note"]
    assert said not in facts(OLD, NEW)["note"]


def test_categories_that_are_derived_in_another_way_are_not_compared(tmp_path):
    flows = pd.DataFrame({"origin": ["a", "b"], "destination": ["b", "a"], "age": ["young", "old"], "trips": 100})
    geography = Geography.from_frame(pd.DataFrame({"zone": ["a", "b"]}), ["zone"])
    for number, limit in enumerate((20, 60), start=1):
        release = released_trips(flows, geography, segments={"age": ("young", "old")}, noise="table")
        facts = build_certificate(FLOWS, release, ReleaseKey("ages", f"2001-0{number}"), "ages", CHECKS, record=RECORD)
        facts["records"] = {"columns": {"segments": {"age": {"breaks": [limit]}}}}
        publish_bundle(release, facts, tmp_path / str(number))
    paths = [str(tmp_path / number) for number in "12"]
    assert "the categories of 'age' in different ways" in refused(*paths, "--segment", "age").message
    assert "changes are larger" in run(*paths)


@pytest.mark.slow
def test_derived_flows_are_not_compared_and_that_is_said(published_few, tmp_path, monkeypatch):
    monkeypatch.setenv("OD_VAR", str(published_few))
    shutil.copytree(published_few / "releases", tmp_path / "releases")
    derived = publish_sum(tmp_path / "releases", KEYS)
    error = refused(OLD, str(derived.folder))
    assert error.code == "OD-COMPARE-KIND"
    assert f"{derived.key} is derived from published releases" in error.message
    assert "sources" in error.next_step
