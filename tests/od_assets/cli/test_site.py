"""``od-release site``: all that is published and nothing else, the same bytes again, and links that lead to files."""

import hashlib
import json
import re
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import Result

from od_assets.cli.app import main
from od_core import OdError
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.bundle_files import locate_zip
from od_core.published.site import make_dataset_markup, render_catalogue, render_series_page, write_site
from od_core.published.site_release import SiteDescription, SiteRelease, select_newest_revisions
from tests.od_assets.cli.commands import command
from tests.od_assets.cli.conftest import NEW, OLD
from tests.od_core.publication.examples import sealed_again

URL = "https://statistics.example/od/"
ATOM = "{http://www.w3.org/2005/Atom}"
SITEMAP = "{http://www.sitemaps.org/schemas/sitemap/0.9}"
TRIPS, WITH_URL = SiteDescription("Trips"), SiteDescription("Trips", URL)
OVER_TIME = {"us_flights/over_time.html", "us_flights/periods.json"}
API = {"api/v1/index.json", "api/v1/openapi.json"}
OWN = {"index.html", "404.html", "catalog.jsonld", "us_flights/index.html", "us_flights/picture.png", *OVER_TIME, *API}
OF_RELEASES = {
    f"{folder}{key}{ending}"
    for key in (OLD, NEW)
    for folder, ending in (("", ".croissant.json"), ("", ".svg"), ("api/v1/", ".json"))
}


def run(*arguments: str) -> Result:
    return command("site", *arguments)


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def parsed(file: Path) -> ET.Element:
    return ET.fromstring(file.read_text(encoding="utf-8"))  # noqa: S314  # a file of ours


def links(page: str) -> list[str]:
    return [address for address in re.findall(r'href="([^"]+)"', page) if not address.startswith("#")]


def test_a_site_has_what_is_published_and_its_own_pages(var):
    """To the byte. What somebody left in a bundle's folder or beside it stays there."""
    published = content(var / "releases")
    (var / "releases" / "notes.txt").write_text("not public", encoding="utf-8")
    (var / "confidential").mkdir()
    (var / "confidential" / "trips.csv").write_text("secret", encoding="utf-8")
    result = run("--url", URL)
    assert result.exit_code == 0, result.output
    site = content(var / "site")
    assert {name: bytes_ for name, bytes_ in site.items() if name in published} == published
    assert site.keys() - published.keys() == {*OWN, *OF_RELEASES, "feed.atom", "sitemap.xml"}
    assert result.stdout.splitlines()[0] == f"2 releases of 1 series. {len(site)} files were written."
    assert f"First page: {var / 'site' / 'index.html'}" in result.stdout


def test_the_same_releases_give_the_same_bytes_and_are_not_written_again(var):
    first = write_site(var / "releases", var / "one", WITH_URL)
    assert set(first.changed) == content(var / "one").keys()
    times = {path: path.stat().st_mtime_ns for path in (var / "one").rglob("*")}
    (var / "one" / "robots.txt").write_text("mine", encoding="utf-8")
    again = write_site(var / "releases", var / "one", WITH_URL)
    assert again.changed == ()
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert (var / "one" / "robots.txt").read_text(encoding="utf-8") == "mine"
    write_site(var / "releases", var / "two", SiteDescription("Trips", URL.rstrip("/")))
    assert content(var / "two") == {k: v for k, v in content(var / "one").items() if k != "robots.txt"}


def test_what_was_interrupted_is_finished(var):
    """The checksums of a release are copied last."""
    whole = write_site(var / "releases", var / "site", TRIPS)
    expected = content(var / "site")
    for name in (f"{NEW}/SHA256SUMS", f"{NEW}/tables/flows.parquet", f"{OLD}.zip", "catalog.jsonld"):
        (var / "site" / name).unlink()
    changed = write_site(var / "releases", var / "site", TRIPS).changed
    assert {f"{NEW}/tables/flows.parquet", f"{OLD}.zip", "catalog.jsonld"} <= set(changed) < set(whole.changed)
    assert content(var / "site") == expected


def test_a_new_release_is_added(var):
    shutil.move(var / "releases" / NEW, var / "later")
    shutil.move(var / "releases" / f"{NEW}.zip", var / "later.zip")
    write_site(var / "releases", var / "site", WITH_URL)
    shutil.move(var / "later", var / "releases" / NEW)
    shutil.move(var / "later.zip", var / "releases" / f"{NEW}.zip")
    changed = write_site(var / "releases", var / "site", WITH_URL).changed
    expected = {*OWN - {"404.html", "api/v1/openapi.json"}, "feed.atom", "sitemap.xml", f"api/v1/{NEW}.json"}
    assert {name for name in changed if not name.startswith(NEW)} == expected
    write_site(var / "releases", var / "fresh", WITH_URL)
    assert content(var / "site") == content(var / "fresh")


def test_the_catalogue_describes_every_file(var):
    write_site(var / "releases", var / "site", TRIPS)
    site = content(var / "site")
    catalogue = json.loads(site["catalog.jsonld"])
    series, *data_sets = catalogue["dcat:dataset"]
    assert series["@type"] == ["dcat:Dataset", "dcat:DatasetSeries"]
    assert series["@id"] == "us_flights/index.html"
    assert [one["dct:identifier"] for one in data_sets] == [OLD, NEW]
    for one in data_sets:
        key = one["dct:identifier"]
        assert one["dcat:inSeries"]["@id"] == series["@id"]
        assert (one["dct:temporal"]["dcat:startDate"]["@value"]) == f"{key.split('/')[1]}-01"
        described = set()
        for file in one["dcat:distribution"]:
            name = file["dcat:downloadURL"]["@id"]
            described.add(name)
            assert int(file["dcat:byteSize"]["@value"]) == len(site[name])
            digest = file["spdx:checksum"]["spdx:checksumValue"]["@value"]
            assert digest == hashlib.sha256(site[name]).hexdigest()
        whole = {name for name in site if name.startswith(f"{key}/")}
        assert whole - described == {f"{key}/datapackage.json", f"{key}/SHA256SUMS"}


@pytest.mark.parametrize(
    ("contact", "kind", "address"),
    [
        ("od@office.example", "vcard:hasEmail", "mailto:od@office.example"),
        ("https://office.example/ask", "vcard:hasURL", "https://office.example/ask"),
    ],
)
def test_the_catalogue_states_a_contact(var, contact, kind, address):
    described = SiteDescription("Trips", URL, publisher="Office", contact=contact)
    for one in json.loads(render_catalogue(described, released(var)))["dcat:dataset"]:
        assert one["dcat:contactPoint"] == {"@type": "vcard:Kind", "vcard:fn": "Office", kind: {"@id": address}}


WRONG = {
    "contact": ["office", "a@b@c", "od @office.example", "javascript:alert(1)", "a@b\n"],
    "url": ["ftp://a.example", "a.example", "https://", "https://a\nb", 'https://a.example/"><b>'],
    "licence": ["ftp://a.example", "a.example", "https://", "https://a\nb", 'https://a.example/"><b>'],
    "title": ["", " ", "two\nlines", "\u202egap"],
    "publisher": ["", " ", "two\nlines", "\u202egap"],
}
"""Texts that pages and feeds cannot have, by what they describe."""


@pytest.mark.parametrize("what", WRONG)
def test_addresses_and_texts_that_cannot_be_written_are_refused(what):
    code = f"OD-SITE-TITLE.*the {what}" if what in ("title", "publisher") else "OD-SITE-ADDRESS"
    for text in WRONG[what]:
        with pytest.raises(OdError, match=code):
            SiteDescription(**{"title": "Trips", what: text})


def released(var: Path) -> list[SiteRelease]:
    return [SiteRelease.from_bundle(ReleaseKey.parse(key), var / "releases" / key) for key in (OLD, NEW)]


def test_a_replaced_revision_is_marked_and_not_counted(var):
    old, new = released(var)
    revised = replace(new, key=replace(new.key, revision=2))
    assert select_newest_revisions([revised, old, new]) == [revised, old]
    shutil.copy(var / "releases" / f"{NEW}.zip", var / "releases" / "us_flights/2001-06/r2.zip")
    page = render_series_page(TRIPS, "us_flights", [old, new, replace(revised, place=new.place.with_name("r2"))])
    assert page.count("1, replaced") == 1
    assert "2001-06/r2/report.html" in page
    assert page.count("<td>exact</td>") == 2


def test_text_of_a_certificate_cannot_end_the_script_element(var):
    (old, _) = released(var)
    guarantee = old.certificate["guarantee"] | {"protected": "</script><script>alert(1)</script>"}
    evil = replace(old, certificate=old.certificate | {"guarantee": guarantee})
    text = make_dataset_markup(TRIPS, "us_flights", [evil])
    assert text.count("<") == 2
    described = json.loads(re.sub("</?script[^>]*>", "", text))
    assert "</script><script>alert(1)" in described["description"]


def forge(var: Path) -> None:
    path = var / "releases" / NEW / "certificate.json"
    path.write_text(
        path.read_text(encoding="utf-8").replace('"data_set": "us_flights"', '"data_set": "other"'), "utf-8"
    )


def add_to_zip(var: Path) -> None:
    """With checksums within the zip file that fit."""
    folder = var / "releases" / NEW
    shutil.copytree(folder, var / "r1")
    (var / "r1" / "secret.csv").write_text("x", encoding="utf-8")
    sealed_again(var / "r1")
    shutil.move(var / "r1.zip", locate_zip(folder))


def damage(var: Path) -> None:
    with (var / "releases" / NEW / "tables/flows.parquet").open("ab") as file:
        file.write(b"x")


FORGERIES = {
    "a table": (damage, "tables/flows.parquet is missing or does not match its checksum"),
    "the certificate": (forge, "certificate.json is missing or does not match"),
    "the checksums": (lambda var: (var / "releases" / NEW / "SHA256SUMS").unlink(), "SHA256SUMS is missing"),
    "the package": (lambda var: (var / "releases" / NEW / "datapackage.json").unlink(), "datapackage.json is missing"),
    "the zip file": (lambda var: (var / "releases" / f"{NEW}.zip").unlink(), "r1.zip is missing"),
    "a file in the zip file": (add_to_zip, "secret.csv does not belong"),
}


@pytest.mark.representatives
@pytest.mark.parametrize("what", FORGERIES)
@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
def test_what_the_checksums_do_not_state_reaches_no_site(var, what, *, again):
    """Nothing of such a release is written, and no page of a new site leads to it; the others are written."""
    if again:
        write_site(var / "releases", var / "site", TRIPS)
    change, fault = FORGERIES[what]
    change(var)
    before = content(var / "site")
    written = write_site(var / "releases", var / "site", TRIPS)
    assert fault in written.left_out[ReleaseKey.parse(NEW)]
    with pytest.raises(OdError, match=f"OD-BUNDLE-DAMAGED.*{fault}"):
        written.refuse_left_out()
    after = content(var / "site")
    assert {name for name in after if name.startswith(NEW)} == {name for name in before if name.startswith(NEW)}
    assert all(after[name] == before[name] for name in before if name not in OWN)
    assert f"{OLD}/tables/flows.parquet" in after
    assert again or not any(NEW.encode() in after[name] for name in OWN)
    assert "secret.csv" not in " ".join(after)


@pytest.mark.parametrize("known_by", ["zip file", "database"])
def test_a_release_without_its_bundle_is_left_out_by_name(published_few, var, monkeypatch, capsys, known_by):
    """The others are written; the exit code is 2, also once the site is up to date, until the bundle is back."""
    shutil.move(var / "releases" / OLD, var / "old")
    if known_by == "database":
        shutil.copy(published_few / "release.duckdb", var)
        shutil.move(var / "releases" / f"{OLD}.zip", var / "old.zip")
    expected = f"OD-BUNDLE-ABSENT: the site leaves out published releases: {OLD} (its bundle is missing) ["
    for _ in range(2):
        monkeypatch.setattr("sys.argv", ["od-release", "site", "--title", "Trips"])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert ended.value.code == 2
        assert said.out.startswith("1 release of 1 series.")
        assert said.err.startswith(expected)
        assert said.err.count("\n") == 1
    assert not (var / "site" / OLD).exists()
    assert OLD not in (var / "site" / "catalog.jsonld").read_text(encoding="utf-8")
    as_json = run("--title", "Trips", "--json")
    assert json.loads(as_json.stdout)["left_out"] == [OLD]
    assert str(as_json.exception).startswith(expected)
    shutil.move(var / "releases" / NEW, var / "new")
    with pytest.raises(OdError, match=rf"OD-BUNDLE-ABSENT.*{OLD} \(its.*{NEW} \(its"):
        write_site(var / "releases", var / "none", TRIPS, var / "release.duckdb")
    shutil.move(var / "new", var / "releases" / NEW)
    shutil.move(var / "old", var / "releases" / OLD)
    if known_by == "database":
        shutil.move(var / "old.zip", var / "releases" / f"{OLD}.zip")
    assert run("--title", "Trips").exit_code == 0
    assert {f"{OLD}/tables/flows.parquet", f"{OLD}.zip"} <= content(var / "site").keys()


def test_a_site_of_no_release_in_place_of_a_file_or_among_the_bundles_is_refused(var):
    (var / "page.html").write_text("mine")
    before = content(var)
    for folder in ("page.html", "page.html/site", "releases", "releases/site"):
        with pytest.raises(OdError, match="OD-SITE-FOLDER"):
            write_site(var / "releases", var / folder, TRIPS)
    with pytest.raises(OdError, match="OD-RELEASE-ABSENT"):
        write_site(var / "none", var / "site", TRIPS)
    assert content(var) == before
