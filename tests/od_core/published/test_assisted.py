"""Model-assisted flows: made of public bundles alone, published once, and verified."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from jsonschema import Draft202012Validator

from od_core import AssistedFlows, Geography, OdError, ReleaseKey, assist_release, data_contract, open_release
from od_core.publication.bundle_files import locate_zip
from od_core.publication.certificate import compute_certificate_digest
from od_core.published.derived import find_earlier_releases, find_release_key, publish_assisted, publish_sum
from od_core.published.verification import verify_release
from tests.od_core.ledger import ledger_rows
from tests.od_core.publication.examples import restated, sealed_again
from tests.od_core.publication.published_kinds import locations
from tests.od_core.published.test_sums import KEYS, MONTHS, SERIES, certificate_of, digests, moved, release

ASSISTED = ReleaseKey("commuters_assisted", MONTHS[2])


@pytest.fixture(scope="module")
def whole(three_months: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three months, and model-assisted estimates of the last one."""
    root = Path(shutil.copytree(three_months, tmp_path_factory.mktemp("assisted"), dirs_exist_ok=True))
    publish_assisted(root / "releases", KEYS[2])
    return root


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    """A copy, to be changed."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return tmp_path


def faults(root: Path, key: ReleaseKey = ASSISTED) -> dict[str, str]:
    return {one.part: one.fault for one in verify_release(locations(root, key)) if one.fault is not None}


# -- what is published -----------------------------------------------------------------------------------------------


def test_the_bundle_has_the_estimates_with_the_intervals_of_the_release(whole: Path) -> None:
    bundle = whole / "releases" / ASSISTED.folder
    expected = assist_release([open_release(whole / "releases" / key.folder) for key in KEYS])  # type: ignore[misc]
    opened = open_release(bundle)
    assert isinstance(opened, AssistedFlows)
    assert opened.flows.equals(expected.flows)
    table = pd.read_parquet(bundle / "tables/flows.parquet")
    for origin in expected.tree.origin.level_names:
        mine = table[(table["origin_level"] == origin) & (table["destination_level"] == "all")]
        listed = expected.flows_at(origin, "all", interval=True)
        assert mine[list(listed)].to_numpy().tolist() == listed.to_numpy().tolist()
    assert not {"noisy_measurements.parquet", "segments.parquet"} & {file.name for file in bundle.rglob("*")}
    assert faults(whole) == {}


def test_the_certificate_names_the_releases_and_has_the_facts_of_the_last(whole: Path) -> None:
    stated, each = certificate_of(whole, ASSISTED), [certificate_of(whole, key) for key in KEYS]
    assert stated["format"] == "od-release assisted certificate 1"
    assert [one["certificate"] for one in stated["sources"]] == [compute_certificate_digest(one) for one in each]
    assert stated["spent"]["charged_rho_exact"] == "0"
    assert stated["exact"] == each[-1]["exact"]
    assert stated["records"] == each[-1]["records"]
    assert stated["estimation"] == {"rule": "least_squares", "u": None}  # the areas are too few to learn from
    assert "no budget was spent" in stated["guarantee"]["protected"]
    assert stated["guarantee"]["protected"].startswith("These numbers are estimates from 3 published releases")
    schema = json.loads((whole / "releases" / ASSISTED.folder / "certificate.schema.json").read_text("utf-8"))
    Draft202012Validator(schema).validate(stated)
    for missing in ("sources", "spent", "guarantee", "interval"):
        assert not Draft202012Validator(schema).is_valid({k: v for k, v in stated.items() if k != missing})
    contract = data_contract(whole / "releases" / ASSISTED.folder)
    assert (contract["id"], contract["version"]) == ("commuters_assisted", "2001-03-r1")


def test_only_public_bundles_are_read_and_a_second_call_repairs_what_was_damaged(whole: Path, tmp_path: Path) -> None:
    for key in KEYS:
        shutil.copytree(whole / "releases" / key.folder, tmp_path / "releases" / key.folder)
    found = publish_assisted(tmp_path / "releases", KEYS[2])
    assert (found.key, found.is_new) == (ASSISTED, True)
    assert digests(found.folder) == digests(whole / "releases" / ASSISTED.folder)
    assert [path.name for path in tmp_path.iterdir()] == ["releases"]
    (found.folder / "tables/flows.parquet").write_bytes(b"PAR1")
    locate_zip(found.folder).unlink()
    again = publish_assisted(tmp_path / "releases", KEYS[2])
    assert (again.key, again.is_new) == (ASSISTED, False)
    assert digests(again.folder) == digests(whole / "releases" / ASSISTED.folder)


@pytest.mark.slow
def test_a_revised_earlier_release_changes_nothing_that_is_published(root: Path) -> None:
    before = digests(root / "releases" / ASSISTED.folder)
    release(root, ReleaseKey(SERIES, MONTHS[1], 2))
    found = publish_assisted(root / "releases", KEYS[2])
    assert (found.key.revision, found.is_new) == (2, True)
    assert digests(root / "releases" / ASSISTED.folder) == before
    assert faults(root) == {}
    assert faults(root, found.key) == {}


@pytest.mark.slow
def test_which_releases_come_before_one(root: Path) -> None:
    releases = root / "releases"
    assert find_earlier_releases(releases, KEYS[2]) == KEYS[:2]
    assert find_earlier_releases(releases, KEYS[2], 1) == KEYS[1:2]
    assert find_earlier_releases(releases, KEYS[2], 0) == find_earlier_releases(releases, KEYS[0]) == []
    later, other = ReleaseKey(SERIES, "2001-07"), ReleaseKey(SERIES, "2001-02", 2)
    release(root, later)
    shutil.copytree(releases / KEYS[1].folder, releases / other.folder)  # who lists releases reads their areas alone
    assert find_earlier_releases(releases, later) == [KEYS[0], other, KEYS[2]]
    assert find_release_key(releases, SERIES) == later
    assert find_release_key(releases, SERIES, "2001-02") == other
    made = (publish_assisted(releases, KEYS[0]), publish_assisted(releases, later, 1))
    assert [str(one.key) for one in made] == ["commuters_assisted/2001-01/r1", "commuters_assisted/2001-07/r1"]
    with pytest.raises(OdError, match="OD-RELEASE-ABSENT: no release of commuters for 2001-09"):
        find_release_key(releases, SERIES, "2001-09")
    shutil.copytree(releases / KEYS[0].folder, releases / SERIES / "2001-Q1" / "r1")
    with pytest.raises(OdError, match="OD-ASSIST-OVERLAP: commuters/2001-01/r1 and commuters/2001-Q1/r1"):
        publish_assisted(releases, later)


def test_estimates_learn_from_no_release_before_the_last_one_with_other_areas(root: Path) -> None:
    """A new list of zones comes with a new revision: the months before it stay as they are, and do not help."""
    zones = pd.DataFrame({"zone": [*ledger_rows.ONE_LEVEL.zones, "new"]})
    releases, revised, later = root / "releases", ReleaseKey(SERIES, MONTHS[2], 2), ReleaseKey(SERIES, "2001-04")
    release(root, revised, geography=Geography.from_frame(zones, ["zone"]))
    assert publish_assisted(releases, revised).certificate["sources"][0]["release"] == str(revised)
    shutil.copytree(releases / revised.folder, releases / later.folder)
    assert find_earlier_releases(releases, later) == [revised]


def test_estimates_of_what_was_derived_are_refused(root: Path) -> None:
    total = publish_sum(root / "releases", KEYS).key
    for key in (total, ASSISTED):
        with pytest.raises(OdError, match=f"OD-DERIVED-KIND: {key} is derived itself"):
            publish_assisted(root / "releases", key)


# -- verification ----------------------------------------------------------------------------------------------------


def test_changed_estimates_are_found(root: Path) -> None:
    bundle = root / "releases" / ASSISTED.folder
    moved(bundle)
    sealed_again(bundle)
    assert "flows.parquet differs from the file that the bundles of the releases give" in faults(root)["bundle"]


def test_estimates_under_the_name_of_another_period_are_found(root: Path) -> None:
    other = ReleaseKey(ASSISTED.release, MONTHS[1])
    bundle = root / "releases" / other.folder
    shutil.copytree(root / "releases" / ASSISTED.folder, bundle)
    restated(bundle, lambda facts: facts.update(release=str(other), period=other.period))
    assert "commuters/2001-03/r1 is not a release of 2001-02" in faults(root, other)["bundle"]
