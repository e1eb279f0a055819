"""Sums of published releases: made of public bundles alone, published once, refused where they would be wrong."""

import json
import math
import shutil
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pandas as pd
import pytest
from jsonschema import Draft202012Validator

from od_core import (
    FlowSum,
    OdError,
    PrivacyUnit,
    Uncounted,
    disclosure_documents,
    open_release,
    release_flows,
    sum_releases,
)
from od_core.files.durable import compute_file_digest
from od_core.flows.publishing import derived_kind
from od_core.flows.publishing.kind import FLOWS
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import Period
from od_core.privacy.accounting import compute_tight_epsilon, round_up_to_float
from od_core.privacy.budget import Budget, Cap
from od_core.privacy.domain import PrivacyDomain
from od_core.publication.bundle_files import NOTICE, locate_zip
from od_core.publication.certificate import compute_certificate_digest
from od_core.publication.certify import build_certificate
from od_core.published.derived import find_newest_in_period, publish_assisted, publish_sum
from od_core.published.verification import verify_release
from tests.od_core.ledger import ledger_rows
from tests.od_core.publication.examples import CHECKS, publish_bundle, restated, sealed_again
from tests.od_core.publication.published_kinds import Made, locations
from tests.od_core.published.test_verify_spending import found as found_by_arithmetic

SERIES = "commuters"
MONTHS = ("2001-01", "2001-02", "2001-03")
KEYS = [ReleaseKey(SERIES, month) for month in MONTHS]
SUM = ReleaseKey("commuters_sum", "2001-01--2001-03")
QUARTER = Period("2001-01--2001-03")
CAP = Cap(rho=9)


MODES = {"mode": ("car", "bus, tram"), "hour": ("07", "7", "not stated")}
TRIPS = ledger_rows.FLOWS.assign(mode=["car", "bus, tram"] * 2, hour=["07", "7", "night", "07"])
BY_CATEGORY = {"trips": TRIPS, "segments": MODES, "segment_unknown": {"hour": "not stated"}}
"""What makes flows by two breakdowns, of which only the second counts unlisted records."""


ABOUT = {"title": "Commuters <of> a valley", "counted": "commuters", "description": "Of one."}


def publish(root: Path, made: Any, key: ReleaseKey, **options: Any) -> None:
    """Publish a release as the pipeline does, but for the database: what is derived is of bundles alone."""
    place = locations(root, key)
    options = {"about": ABOUT, "record": place.ledger.record(key), "formats": ("csv", "sdmx")} | options
    facts = build_certificate(FLOWS, made, key, key.release, CHECKS, **options)
    publish_bundle(made, facts, place.bundle)
    place.ledger.publish(key, compute_certificate_digest(facts), facts["exact"])


def release(
    root: Path,
    key: ReleaseKey,
    *,
    cap: Cap = CAP,
    records: Any = None,
    formats: tuple[str, ...] = ("csv", "sdmx"),
    **changes: Any,
) -> Any:
    """Publish a release as the pipeline does."""
    ledger = Ledger(root / "ledger.sqlite")
    unit = changes.get("unit", PrivacyUnit("trip", "bounded"))
    ledger.declare(PrivacyDomain(key.release, unit, cap, "a test"))
    given = {"unit": unit, "budget": Budget(rho=2, delta="1e-8"), "fault_threshold": 0, "noise": "table"} | changes
    trips, geography = given.pop("trips", ledger_rows.FLOWS), given.pop("geography", ledger_rows.ONE_LEVEL)
    made = release_flows(trips, geography, ledger=ledger, release_id=str(key), **given)
    publish(root, made, key, records=records, formats=formats)
    return made


@pytest.fixture(scope="module")
def whole(three_months: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three months, of which the second has another budget, and their sum."""
    root = Path(shutil.copytree(three_months, tmp_path_factory.mktemp("whole"), dirs_exist_ok=True))
    publish_sum(root / "releases", KEYS)
    return root


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    """A copy, to be changed."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return tmp_path


def digests(folder: Path) -> dict[str, str]:
    files = {file.name: compute_file_digest(file) for file in sorted(folder.rglob("*.*"))}
    return files | {"zip": compute_file_digest(locate_zip(folder))}


def certificate_of(root: Path, key: ReleaseKey) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "releases" / key.folder / "certificate.json").read_text("utf-8"))
    return found


# -- what is published -----------------------------------------------------------------------------------------------


def test_the_bundle_has_the_sums_and_their_intervals_in_every_table(whole: Path) -> None:
    bundle = whole / "releases" / SUM.folder
    total = sum_releases([open_release(whole / "releases" / key.folder) for key in KEYS])  # type: ignore[misc]
    table = pd.read_parquet(bundle / "tables/flows.parquet")
    pairs = [(o, d) for o in total.tree.origin.level_names for d in total.tree.destination.level_names]
    for origin, destination in pairs:
        expected = total.flows_at(origin, destination, interval=True)
        mine = table[(table["origin_level"] == origin) & (table["destination_level"] == destination)]
        assert mine[list(expected)].to_numpy().tolist() == expected.to_numpy().tolist()
        text = {"origin": str, "destination": str}
        each = pd.read_csv(bundle / f"tables/flows_{origin}_{destination}.csv", dtype=text)
        assert each.to_numpy().tolist() == expected.to_numpy().tolist()
    parts = [open_release(whole / "releases" / key.folder).flows for key in KEYS]  # type: ignore[union-attr]
    assert total.flows["trips"].sum() == sum(part["trips"].sum() for part in parts)
    assert not {"noisy_measurements.parquet"} & {file.name for file in bundle.rglob("*")}
    opened = open_release(bundle)
    assert isinstance(opened, FlowSum)
    assert opened.flows.equals(total.flows)


def test_the_certificate_names_the_releases_and_what_they_spent_together(whole: Path) -> None:
    stated = certificate_of(whole, SUM)
    each = [certificate_of(whole, key) for key in KEYS]
    assert [one["release"] for one in stated["sources"]] == [str(key) for key in KEYS]
    assert [one["certificate"] for one in stated["sources"]] == [compute_certificate_digest(one) for one in each]
    spent = stated["spent"]
    assert spent["charged_rho_exact"] == "0"
    rho = sum((Fraction(one["spent"]["rho_exact"]) for one in each), Fraction(0))
    assert Fraction(spent["rho_exact"]) == rho == Fraction(9, 2)
    assert spent["one_period"]["epsilon"] == max(one["spent"]["epsilon"] for one in each)
    assert spent["all_periods"]["epsilon"] == round_up_to_float(compute_tight_epsilon(rho, Fraction(1, 10**8)))
    assert stated["measured_at"] == max(one["measured_at"] for one in each)
    assert stated["exact"] == {"trips": sum(one["exact"]["trips"] for one in each)}
    assert stated["data_set"] == SERIES
    assert stated["about"] == ABOUT | {"title": f"{ABOUT['title']} (sum)"}
    assert "no budget was spent" in stated["guarantee"]["protected"]
    schema = json.loads((whole / "releases" / SUM.folder / "certificate.schema.json").read_text("utf-8"))
    Draft202012Validator(schema).validate(stated)
    for key in KEYS:
        Draft202012Validator(schema).validate(certificate_of(whole, key))
    for missing in ("sources", "spent", "guarantee", "interval"):
        assert not Draft202012Validator(schema).is_valid({k: v for k, v in stated.items() if k != missing})


@pytest.mark.slow
@pytest.mark.parametrize("of_pair", [None, 1])
def test_sums_and_estimates_of_a_year_of_users_state_the_trips_that_are_not_counted(
    tmp_path: Path, of_pair: int | None
) -> None:
    """The numbers of the releases and their variances add up; estimates of one release have the number of that one."""
    unit = PrivacyUnit("user_year", "unbounded", "user", 2, None, 3, "[0-9]+", of_pair)
    flows = ledger_rows.FLOWS.drop(columns="trips").assign(user="7").astype("str")
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.declare(PrivacyDomain(SERIES, unit, CAP, "a test"))
    made = []
    for key in KEYS:
        uncounted = None if key == KEYS[2] else Uncounted("1/2", 9)
        given = {"ledger": ledger, "release_id": str(key), "uncounted": uncounted, "one_row_a_trip": True}
        budget = Budget(rho=1, delta="1e-8")
        made.append(release_flows(flows, ledger_rows.ONE_LEVEL, unit=unit, budget=budget, noise="table", **given))
        publish(tmp_path, made[-1], key)
    published = publish_sum(tmp_path / "releases", KEYS[:2])
    stated, trips = published.certificate, int(published.flows.leaves.trips.sum())
    first, second = (certificate_of(tmp_path, key)["uncounted"] for key in KEYS[:2])
    own = stated["uncounted"]
    assert own["trips"] == first["trips"] + second["trips"] == sum(int(release.uncounted) for release in made[:2])
    for name in ("variance_exact", "rho_exact"):
        assert Fraction(own[name]) == Fraction(first[name]) + Fraction(second[name])
    reach = NormalDist().inv_cdf(0.95) * math.sqrt(Fraction(own["variance_exact"]))
    assert own["upper"] == pytest.approx(max(own["trips"] + reach, 0), abs=1)
    assert own["share"] == pytest.approx(max(own["trips"], 0) / max(own["trips"] + trips, 1), abs=1e-4)
    assert "not counted" in stated["guarantee"]["uncounted"]
    schema = json.loads((published.folder / "certificate.schema.json").read_text("utf-8"))
    Draft202012Validator(schema).validate(stated)
    cap = ", and at most 1 with the same origin and destination zone," if of_pair else ""
    bounds = f"At most 2 records of each user{cap} are counted in a period, and at most 3 in all periods of a year"
    assert bounds in disclosure_documents(published.folder)[1]["nist-sp-800-226.json"]
    estimated = publish_assisted(tmp_path / "releases", KEYS[1])
    assert estimated.certificate["uncounted"]["trips"] == second["trips"]
    Draft202012Validator(schema).validate(estimated.certificate)
    whole = publish_sum(tmp_path / "releases", KEYS)  # the third one did not measure it
    assert "uncounted" not in whole.certificate


def test_only_public_bundles_are_read(whole: Path, tmp_path: Path) -> None:
    """No ledger, no confidential folder and no database: the same bytes."""
    for key in KEYS:
        shutil.copytree(whole / "releases" / key.folder, tmp_path / "releases" / key.folder)
    found = publish_sum(tmp_path / "releases", KEYS)
    assert (found.key, found.is_new) == (SUM, True)
    assert digests(found.folder) == digests(whole / "releases" / SUM.folder)
    assert [path.name for path in tmp_path.iterdir()] == ["releases"]


def test_a_second_call_changes_nothing_and_repairs_what_was_damaged(root: Path) -> None:
    before = digests(root / "releases" / SUM.folder)
    found = publish_sum(root / "releases", KEYS[::-1])
    assert (found.key, found.is_new) == (SUM, False)
    (found.folder / "tables/flows.parquet").write_bytes(b"PAR1")
    locate_zip(found.folder).unlink()
    publish_sum(root / "releases", KEYS)
    assert digests(found.folder) == before


@pytest.mark.slow
def test_a_new_revision_of_a_release_gives_a_new_revision_of_the_sum(root: Path) -> None:
    assert find_newest_in_period(root / "releases", SERIES, QUARTER) == KEYS
    later = ReleaseKey(SERIES, MONTHS[1], 2)
    release(root, later)
    keys = find_newest_in_period(root / "releases", SERIES, QUARTER)
    assert keys == [KEYS[0], later, KEYS[2]]
    found = publish_sum(root / "releases", keys, QUARTER.text)
    assert (found.key, found.is_new) == (ReleaseKey(SUM.release, SUM.period, 2), True)
    assert publish_sum(root / "releases", KEYS, QUARTER.text).key == SUM
    assert publish_sum(root / "releases", keys, QUARTER.text).key == found.key
    assert faults(root, found.key) == faults(root, SUM) == {}


def test_a_sum_over_a_withdrawn_period_says_why_it_was_withdrawn(root: Path) -> None:
    releases, gone = root / "releases", KEYS[1]
    shutil.rmtree(releases / gone.folder)
    locate_zip(releases / gone.folder).unlink(missing_ok=True)
    with pytest.raises(OdError, match="OD-SUM-PERIOD: no release is published for 2001-02"):
        find_newest_in_period(releases, SERIES, QUARTER)
    notice = {"release": str(gone), "withdrawn_at": "2001-05-01T09:00:00+00:00", "reason": "counted twice"}
    (releases / f"{gone}{NOTICE}").write_text(json.dumps(notice), encoding="utf-8")
    with pytest.raises(OdError, match=f"OD-RELEASE-WITHDRAWN: .*{gone}.*counted twice"):
        find_newest_in_period(releases, SERIES, QUARTER)
    with pytest.raises(OdError, match="OD-SUM-PERIOD: no release is published for 2001-04"):
        find_newest_in_period(releases, SERIES, Period("2001-03--2001-04"))


@pytest.mark.slow
def test_a_revision_of_which_only_the_zip_file_is_left_is_never_given_to_other_sums(root: Path) -> None:
    release(root, ReleaseKey(SERIES, MONTHS[1], 2))
    before = digests(root / "releases" / SUM.folder)
    shutil.rmtree(root / "releases" / SUM.folder)
    keys = find_newest_in_period(root / "releases", SERIES, QUARTER)
    found = publish_sum(root / "releases", keys, QUARTER.text)
    assert found.key == ReleaseKey(SUM.release, SUM.period, 2)
    assert compute_file_digest(locate_zip(root / "releases" / SUM.folder)) == before["zip"]
    found = publish_sum(root / "releases", KEYS, QUARTER.text)  # from the zip file
    assert (found.key, found.is_new) == (SUM, False)
    assert digests(root / "releases" / SUM.folder) == before


# -- refusals --------------------------------------------------------------------------------------------------------


def refused(code: str, root: Path, keys: list[ReleaseKey], period: str | None = None) -> str:
    before = sorted(path.name for path in (root / "releases").rglob("*"))
    with pytest.raises(OdError, match=f"{code}:") as caught:
        publish_sum(root / "releases", keys, period)
    assert "\n" not in str(caught.value)
    after = sorted(path.name for path in (root / "releases").rglob("*"))
    assert [name for name in after if not name.endswith(".lock")] == [n for n in before if not n.endswith(".lock")]
    return str(caught.value)


def test_periods_that_are_missing_overlap_or_are_too_few_are_refused(root: Path) -> None:
    assert "no release is published for 2001-02" in refused("OD-SUM-PERIOD", root, [KEYS[0], KEYS[2]])
    said = "OD-SUM-PERIOD: no release is published for 2001-04, 2001-05, 2001-06 and 6 more"
    with pytest.raises(OdError, match=said):
        find_newest_in_period(root / "releases", SERIES, Period("2001"))
    with pytest.raises(OdError, match="OD-SUM-PERIOD: no release is published for 2000-12"):
        find_newest_in_period(root / "releases", SERIES, Period("2000-12--2001-02"))
    with pytest.raises(OdError, match="OD-SUM-PERIOD: no release is published for 2001-01-15--2001-01-21"):
        find_newest_in_period(root / "releases", SERIES, Period("2001-W03"))
    assert "2001-04/r1 is not published" in refused("OD-RELEASE-ABSENT", root, [*KEYS, ReleaseKey(SERIES, "2001-04")])
    said = refused("OD-SUM-OVERLAP", root, [*KEYS, ReleaseKey(SERIES, MONTHS[0], 2)])
    assert "commuters/2001-01/r1 and commuters/2001-01/r2 cover the same days" in said
    quarter = ReleaseKey(SERIES, "2001-Q1")
    assert "cover the same days" in refused("OD-SUM-OVERLAP", root, [*KEYS, quarter])
    refused("OD-SUM-FEW", root, KEYS[:1])
    refused("OD-SUM-FEW", root, [])
    refused("OD-SUM-OVERLAP", root, [KEYS[0], KEYS[0]])
    said = r"OD-RELEASE-ABSENT: no release of journeys is published here; published releases: com"
    with pytest.raises(OdError, match=said):
        find_newest_in_period(root / "releases", "journeys", QUARTER)


def test_records_of_other_categories_are_not_summed_but_may_be_learned_from(tmp_path: Path) -> None:
    """The certificate of a sum states how the records of its first release were selected."""
    chosen = (["bike", "tandem"], ["tandem", "bike"], ["car"])
    for key, modes in zip(KEYS, chosen, strict=True):
        release(tmp_path, key, records={"categories": {"mode": modes}}, formats=())
    assert "have different selections of records, as" in refused("OD-DERIVED-OTHER", tmp_path, KEYS)
    assert publish_sum(tmp_path / "releases", KEYS[:2]).certificate["records"] == {"categories": {"mode": chosen[0]}}
    assert publish_assisted(tmp_path / "releases", KEYS[2]).certificate["records"] == {"categories": {"mode": ["car"]}}


def test_a_sum_of_an_earlier_bundle_format_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its SDMX structures have another version."""
    for key in KEYS[:2]:
        release(tmp_path, key)
    with monkeypatch.context() as earlier:
        earlier.setattr(derived_kind, "BUNDLE_FORMAT", 7)
        earlier.setattr(derived_kind, "list_software_versions", lambda: {"od-release": "0.0.1"})
        first = publish_sum(tmp_path / "releases", KEYS[:2])
    again = publish_sum(tmp_path / "releases", KEYS[:2])
    assert (again.key, again.is_new, again.certificate["bundle_format"]) == (first.key, False, 7)
    assert faults(tmp_path, first.key) == {}


@pytest.mark.slow
def test_other_columns_and_categories_derived_in_another_way_are_not_summed(tmp_path: Path) -> None:
    for key, trips, limit in zip(KEYS, ("all", "all", "young"), (20, 60, 60), strict=True):
        hours = {"derive": "number", "breaks": [limit]}
        columns = {"trips": trips, "segments": {"hour": hours}}
        release(tmp_path, key, records={"columns": columns}, formats=(), **BY_CATEGORY)
    assert "have different categories of 'hour', as" in refused("OD-DERIVED-OTHER", tmp_path, KEYS[:2])
    assert "have different columns of what is counted, as" in refused("OD-DERIVED-OTHER", tmp_path, KEYS[1:])
    records = {"columns": {"trips": "all", "segments": {"hour": hours}}}
    release(tmp_path, ReleaseKey(SERIES, "2001-01", 2), records=records, formats=(), **BY_CATEGORY)
    publish_sum(tmp_path / "releases", [ReleaseKey(SERIES, "2001-01", 2), KEYS[1]])


def test_other_kinds_sums_and_thresholds_are_refused(all_published: dict[str, Made], tmp_path: Path) -> None:
    assert sorted(all_published) == ["boxes", "flows", "group sizes"]
    for name in ("group sizes", "boxes"):
        place = all_published[name].place
        key, later = place.key, ReleaseKey(place.key.release, "2001-07")
        for copy in (key, later):
            shutil.copytree(place.bundle, tmp_path / "releases" / copy.folder)
        assert f"{key} is not a release of flows" in refused("OD-DERIVED-KIND", tmp_path, [key, later])
    for month in ("2001-04", "2001-05"):
        with ledger_rows.baselines_charged():
            given = {"budget": Budget(epsilon=1, delta="1e-8"), "cap": Cap(epsilon=9, delta="1e-6"), "formats": ()}
            release(tmp_path, ReleaseKey("hidden", month), mechanism="stability_histogram", **given)
    keys = [ReleaseKey("hidden", month) for month in ("2001-04", "2001-05")]
    assert "stability_histogram" in refused("OD-SUM-THRESHOLD", tmp_path, keys)


def test_sums_of_sums_and_a_series_with_the_name_of_the_sums_are_refused(root: Path) -> None:
    later = ReleaseKey(SUM.release, "2001-04")
    shutil.copytree(root / "releases" / SUM.folder, root / "releases" / later.folder)
    assert f"{SUM} is derived itself; flows can be derived only" in refused("OD-DERIVED-KIND", root, [SUM, later])
    shutil.rmtree(root / "releases" / later.folder)
    shutil.copytree(root / "releases" / KEYS[0].folder, root / "releases" / SUM.release / "2001-09" / "r1")
    assert f"{SUM.release}/2001-09/r1 is a release of a declared series" in refused("OD-DERIVED-NAME", root, KEYS[:2])


# -- verification ----------------------------------------------------------------------------------------------------


def faults(root: Path, key: ReleaseKey = SUM) -> dict[str, str]:
    return {one.part: one.fault for one in verify_release(locations(root, key)) if one.fault is not None}


def moved(folder: Path) -> None:
    """Move a trip from one pair of zones to another in the leaf flows, at every pair of levels of the Parquet file."""
    table = pd.read_parquet(folder / "tables/flows.parquet")
    leaves = table[table["origin_level"] == table["origin_level"].iloc[-1]]
    leaves = leaves[leaves["destination_level"] == table["destination_level"].iloc[-1]]
    rows = leaves.index[leaves["trips"] > 1][:2]
    table.loc[rows[0], "trips"] += 1
    table.loc[rows[1], "trips"] -= 1
    table.to_parquet(folder / "tables/flows.parquet", index=False)


@pytest.mark.representatives("spent")
@pytest.mark.parametrize("field", ["guarantee", "spent", "interval", "exact", "measured_at"])
def test_a_changed_certificate_of_a_sum_is_found(root: Path, field: str) -> None:
    bundle = root / "releases" / SUM.folder
    stated = certificate_of(root, SUM)
    text = json.dumps(stated[field])
    for digit in "0123456789":
        text = text.replace(digit, "1") if field != "interval" else '"1/2"'
    restated(bundle, lambda facts: facts.update({field: json.loads(text)}))
    assert "certificate.json differs from the file that" in faults(root)["bundle"]


@pytest.mark.parametrize("lost", ["nothing", "certificate.html"])
def test_a_sum_of_another_state_keeps_its_sentences_and_what_repeats_them_is_compared(root: Path, lost: str) -> None:
    """Also after this state has written its bundle again, in the words of now but for the sentences of then."""
    bundle, stated = root / "releases" / SUM.folder, certificate_of(root, SUM)
    stated["software"]["od-release"], stated["known_limitations"] = "0.0.1", ["In the words of then."]
    (bundle / "certificate.json").write_text(json.dumps(stated), encoding="utf-8")
    sealed_again(bundle)
    (bundle / lost).unlink(missing_ok=True)
    for _ in range(2):
        assert publish_sum(root / "releases", KEYS).key == SUM
        assert faults(root) == {}
        assert certificate_of(root, SUM) | {"software": None} == stated | {"software": None}
    if lost != "nothing":
        assert "In the words of then." in (bundle / "certificate.html").read_text(encoding="utf-8")
        (bundle / "certificate.html").write_text("In other words.", encoding="utf-8")
        sealed_again(bundle)
        assert "certificate.html differs from the file that" in faults(root)["bundle"]


def test_a_changed_or_absent_release_is_found(root: Path) -> None:
    folder = root / "releases" / KEYS[1].folder
    moved(folder)
    assert "flows.parquet does not match its checksum" in faults(root)["sources"]
    sealed_again(folder)
    assert "flows.parquet differs" in faults(root)["bundle"]
    restated(folder, lambda facts: facts.update(data_set="other"))
    assert "commuters/2001-02/r1 is not the release that was used" in faults(root)["sources"]
    shutil.rmtree(folder)
    assert "commuters/2001-02/r1 is not published below the same folder" in faults(root)["sources"]


def test_a_sum_that_leaves_out_a_release_of_its_period_is_found(root: Path) -> None:
    """A bundle that is sound in itself, of two of the three months, under the name of all three."""
    two = publish_sum(root / "releases", [KEYS[0], KEYS[1]])
    bundle = root / "releases" / SUM.folder
    shutil.rmtree(bundle)
    shutil.copytree(two.folder, bundle)
    restated(bundle, lambda facts: facts.update(release=str(SUM), period=SUM.period))
    assert "no release is published for 2001-03" in faults(root)["bundle"]


def test_the_second_verifier_passes_over_sums_but_over_no_release_that_calls_itself_one(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert found_by_arithmetic(root, capsys) == []
    stated = certificate_of(root, KEYS[0]) | {"sources": []}
    (root / "releases" / KEYS[0].folder / "certificate.json").write_text(json.dumps(stated), encoding="utf-8")
    assert f"{KEYS[0]}: the ledger has no such certificate as published" in found_by_arithmetic(root, capsys)
