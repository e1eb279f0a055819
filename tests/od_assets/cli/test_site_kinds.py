"""A site of releases of every kind, and of flows derived from them: its pages, its catalogue, its descriptions."""

import hashlib
import json
import re
import shutil
import struct
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator
from markupsafe import Markup

from od_core.flows.publishing.kind import FLOWS
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.published.derived import publish_assisted, publish_sum
from od_core.published.site import write_site
from od_core.published.site_release import SiteDescription, SiteRelease
from tests.od_assets.cli.test_site import ATOM, SITEMAP, URL, content, links, parsed
from tests.od_core.publication.examples import files_of
from tests.od_core.publication.published_kinds import flows, publish

SVG = "{http://www.w3.org/2000/svg}"
LICENCE = "https://creativecommons.org/licenses/by/4.0/"
DESCRIBED = SiteDescription("Trips", None, "Office of Statistics", LICENCE)
KINDS = {
    "commuters": "flows",
    "commuters_assisted": "flows (estimates from releases)",
    "commuters_sum": "flows (sums of releases)",
    "departures": "group sizes",
    "journeys": "boxes",
}
LATER = ReleaseKey("commuters", "2001-07")
TYPES = {
    "sc:Text": lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    "sc:Integer": pa.types.is_integer,
    "sc:Float": pa.types.is_floating,
}


@pytest.fixture(scope="module")
def releases(all_published, tmp_path_factory) -> Path:
    """Releases of all kinds, a second month of flows, and what follows from both months. Not to be changed."""
    root = tmp_path_factory.mktemp("site_of_all_kinds")
    shutil.copytree(all_published["flows"].root, root, dirs_exist_ok=True)
    later = flows(ledger=Ledger(root / "ledger.sqlite"), release_id=str(LATER))
    publish(FLOWS, later, LATER, "commuters", root)
    publish_sum(root / "releases", [all_published["flows"].example.key, LATER])
    publish_assisted(root / "releases", LATER)
    return root / "releases"


@pytest.fixture(scope="module")
def site(releases, tmp_path_factory) -> Path:
    """Their site, which states relative addresses."""
    folder = tmp_path_factory.mktemp("site")
    write_site(releases, folder, DESCRIBED)
    return folder


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def test_each_series_has_a_page_that_says_what_it_has(site):
    for name, contents in KINDS.items():
        page = (site / name / "index.html").read_text(encoding="utf-8")
        assert f"A series of {contents} of data set" in page
        assert (">atlas</a>" in page) == name.startswith("commuters")
        assert ("All trips of each period" in page) == (name == "commuters")
        assert f'href="{LICENCE}"' in page
        assert "Office of Statistics. Trips: " in page
    home = (site / "index.html").read_text(encoding="utf-8")
    assert "Statistics by area, published with differential privacy." in home
    assert "<div><dt>series</dt><dd>5</dd></div>" in home
    assert [name for name in KINDS if f'href="{name}/index.html"' not in home] == []


def test_series_of_the_same_records_have_one_map_on_the_first_page(releases, tmp_path, monkeypatch):
    """A sum and estimates of flows have nearly the map of these flows."""
    drawn = '<svg id="{}" viewBox="0 0 1 1" width="1" height="1"></svg>'
    monkeypatch.setattr(SiteRelease, "picture", property(lambda one: Markup(drawn.format(one.key.release))))  # noqa: S704
    home = (write_site(releases, tmp_path, DESCRIBED).folder / "index.html").read_text(encoding="utf-8")
    assert re.findall('<svg id="([^"]+)"', home) == ["commuters", "departures", "journeys"]


def test_every_link_of_every_kind_leads_to_a_file(releases, tmp_path):
    write_site(releases, tmp_path, SiteDescription("Trips", URL, "Office of Statistics"))
    files = {URL + name for name in content(tmp_path)}
    for page in ("index.html", "404.html", "commuters/over_time.html", *(f"{name}/index.html" for name in KINDS)):
        found = links((tmp_path / page).read_text(encoding="utf-8"))
        assert len(found) >= 2
        assert {urljoin(URL + page, address) for address in found} <= files
    feed = parsed(tmp_path / "feed.atom")
    assert feed.findtext(f"{ATOM}author/{ATOM}name") == "Office of Statistics"
    reports = {str(link.get("href")) for link in feed.findall(f"{ATOM}entry/{ATOM}link")}
    assert reports == {f"{URL}{path.relative_to(releases)}/report.html" for path in releases.glob("*/*/r1")}
    assert len({entry.findtext(f"{ATOM}id") for entry in feed.findall(f"{ATOM}entry")}) == len(reports)
    assert {str(link.get("href")) for link in feed.findall(f"{ATOM}link")} == {URL, f"{URL}feed.atom"}
    assert {one.text for one in parsed(tmp_path / "sitemap.xml").iter(f"{SITEMAP}loc")} <= files
    named = re.findall(r'"@id": "([^"]+)"', (tmp_path / "catalog.jsonld").read_text(encoding="utf-8"))
    own = [name for name in named if not re.match("http://|https://www|spdx:", name)]
    assert len(own) > len(files)
    assert all(name.startswith(URL) for name in own)
    for file in tmp_path.rglob("*.croissant.json"):
        assert {one["contentUrl"] for one in read(file)["distribution"]} <= files
        assert read(file)["url"] in files


def addresses(value: Any) -> set[str]:
    """Texts in JSON at the places of addresses."""
    if isinstance(value, list):
        return set().union(*map(addresses, value))
    if not isinstance(value, dict):
        return set()
    own = {value[name] for name in ("address", "newest") if isinstance(value.get(name), str)}
    return own.union(value.get("links", {}).values(), *map(addresses, value.values()))


@pytest.mark.parametrize("url", [None, URL])
def test_the_interface_for_programs_is_as_openapi_describes_it_and_leads_to_files(releases, tmp_path, url):
    """Of every kind; a program that knows the description alone reads it, and finds every file."""
    folder = write_site(
        releases, tmp_path, SiteDescription("Trips", url, "Office", LICENCE, "od@office.example")
    ).folder
    described = read(folder / "api/v1/openapi.json")
    for schema in described["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    assert urljoin(URL + "api/v1/openapi.json", described["servers"][0]["url"] + "/") == f"{URL}api/v1/"
    found = {"index.json", "openapi.json"}
    files = {URL + name for name in content(folder)}
    index = read(folder / "api/v1/index.json")
    for name, schema in [("index.json", "Index"), *((f"{one.key}.json", "Release") for one in published(releases))]:
        document = read(folder / "api/v1" / name)
        Draft202012Validator({**described, "$ref": f"#/components/schemas/{schema}"}).validate(document)
        leads = {urljoin(f"{URL}api/v1/{name}", address) for address in addresses(document)}
        assert len(leads) > len(KINDS)
        assert leads <= files
        found.add(name)
    assert {path.relative_to(folder / "api/v1").as_posix() for path in (folder / "api").rglob("*.json")} == found
    assert {one["series"] for one in index["series"]} == KINDS.keys()


def published(releases: Path) -> list[SiteRelease]:
    folders = sorted(releases.glob("*/*/r1"))
    return [SiteRelease.from_bundle(ReleaseKey.parse(str(one.relative_to(releases))), one) for one in folders]


def table_of(bundle: Path, levels: str) -> pd.DataFrame:
    (file,) = bundle.rglob(f"flows_{levels}.csv")
    return pd.read_csv(file, keep_default_na=False)


@pytest.mark.parametrize("series", ["commuters", "commuters_assisted"])
def test_the_interface_for_programs_repeats_the_largest_numbers_of_the_tables(site, series):
    """Against the CSV files: the largest flows between different zones, and the totals of all zones."""
    for place in (site / "api/v1" / series).rglob("*.json"):
        bundle = site / place.relative_to(site / "api/v1").with_suffix("")
        document, pairs = read(place), table_of(bundle, "zone_zone")
        numbers = [name for name in ("trips", "lower", "upper", "reliability") if name in pairs]
        key = ["origin", "destination"]
        between = pairs[(pairs["origin"] != pairs["destination"]) & (pairs["trips"] > 0)]
        largest = pd.DataFrame(document["largest_flows"])
        assert largest["trips"].tolist() == sorted(between["trips"], reverse=True)[:50]
        listed = largest[[*key, *numbers]].merge(between[[*key, *numbers]], how="left", indicator=True)
        assert set(listed["_merge"]) == {"both"}
        totals = pd.DataFrame(document["area_totals"])
        for direction, end, other in (("from", "zone_all", "origin"), ("to", "all_zone", "destination")):
            expected = table_of(bundle, end).set_index(other)
            found = totals[totals["direction"] == direction].set_index("area")
            assert found[numbers].sort_index().equals(expected.loc[found.index, numbers].sort_index())
            assert found.index.size == expected.index.size


class Tags(HTMLParser):
    """The ``meta`` elements of a page by property or name."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.stated: dict[str, str] = {}
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "meta" and (name := given.get("property") or given.get("name")):
            assert name not in self.stated
            self.stated[name] = given["content"] or ""


def test_pages_of_releases_say_what_to_show_where_they_are_shared(releases, tmp_path):
    """A title, a text and a picture of 1200 by 630, of every kind; the text of a series has its newest figure."""
    folder = write_site(releases, tmp_path, SiteDescription("Trips", URL, "Office of <Statistics>", LICENCE)).folder
    pages = ["index.html", "commuters/over_time.html", *(f"{name}/index.html" for name in KINDS)]
    for page in pages:
        tags = Tags(folder / page).stated
        assert tags["og:url"] == URL + page
        assert tags["og:title"] == tags["twitter:title"] != ""
        assert tags["description"] == tags["og:description"] == tags["twitter:description"]
        figure = r"\d.* (in|from) .*July 2001\.$|\d.* in June 2001\.$"  # a site has no figure of its own
        assert bool(re.search(figure, tags["og:description"])) == (page != "index.html")
        assert tags["og:image"] == tags["twitter:image"]
        series = page.partition("/")[0] if "/" in page else "commuters"
        picture = (folder / tags["og:image"].removeprefix(URL)).read_bytes()
        assert tags["og:image"] == f"{URL}{series}/picture.png"
        assert (picture[:8], struct.unpack(">II", picture[16:24])) == (b"\x89PNG\r\n\x1a\n", (1200, 630))
    for one in published(releases):
        drawn = parsed(folder / f"{one.key}.svg")
        texts = [" ".join((text.text or "").split()) for text in drawn.iter(f"{SVG}text")]
        for told in (one.title, "Office of <Statistics>", LICENCE.removeprefix("https://"), one.folder):
            assert told.replace(" ", "") in "".join(texts).replace(" ", "")
        assert (drawn.get("width"), drawn.get("height")) == ("1200", "630")
        assert ("90 % intervals" in " ".join(texts)) == ("interval" in one.certificate)
    relative = write_site(releases, tmp_path / "relative", SiteDescription("Trips")).folder
    assert Tags(relative / "departures/index.html").stated["og:image"] == "picture.png"
    assert "og:url" not in Tags(relative / "departures/index.html").stated
    assert "og:title" not in Tags(folder / "404.html").stated


def test_the_catalogue_has_what_dcat_ap_requires(site):
    """The mandatory properties, and those that may occur once, of DCAT-AP 3.0.0 for what the catalogue has."""
    catalogue = read(site / "catalog.jsonld")
    agent = catalogue["dct:publisher"]
    assert (agent["@type"], agent["foaf:name"]) == ("foaf:Agent", "Office of Statistics")
    assert catalogue["dct:license"] == {"@id": LICENCE, "@type": "dct:LicenseDocument"}
    named = []
    for one in [catalogue, *catalogue["dcat:dataset"]]:
        assert isinstance(one["dct:title"], str)
        assert isinstance(one["dct:description"], str)
        assert one["dct:publisher"]["@id"] == agent["@id"]
        named.append(one["@id"])
        for file in one.get("dcat:distribution", []):
            assert (site / file["dcat:accessURL"]["@id"]).is_file()
            assert file["dct:license"]["@id"] == LICENCE
            assert file["spdx:checksum"].keys() == {"@type", "spdx:algorithm", "spdx:checksumValue"}
    assert len(named) == len(set(named)) == 1 + len(KINDS) + len(list(site.glob("*/*/r1")))
    assert {one["dcat:inSeries"]["@id"] for one in catalogue["dcat:dataset"] if "dcat:inSeries" in one} <= set(named)


def test_without_a_publisher_none_is_made_up(releases, tmp_path):
    write_site(releases, tmp_path, SiteDescription("Trips"))
    assert "publisher" not in (tmp_path / "catalog.jsonld").read_text(encoding="utf-8")
    for file in tmp_path.rglob("*.croissant.json"):
        assert not read(file).keys() & {"creator", "publisher", "license"}


@pytest.mark.parametrize("series", KINDS)
def test_croissant_describes_every_file_and_the_records_of_every_table(site, series):
    """By the rules of Croissant 1.0 (1 March 2024), against the files themselves.

    All required properties; every file with its checksum; every field with a column and a data type; unique keys.
    """
    for file in sorted((site / series).glob("*/*.croissant.json")):
        described, folder = read(file), file.with_name(file.name.partition(".")[0])
        required = {"@context", "@type", "conformsTo", "description", "license", "name", "url", "creator"}
        assert described.keys() >= required | {"datePublished", "distribution", "recordSet", "version"}
        assert described["conformsTo"] == "http://mlcommons.org/croissant/1.0"
        objects = {one["@id"]: one for one in described["distribution"]}
        assert objects.keys() == {*files_of(folder)} - {"SHA256SUMS", "datapackage.json"}
        for one in objects.values():
            found = (file.parent / one["contentUrl"]).read_bytes()
            assert one["sha256"] == hashlib.sha256(found).hexdigest()
            assert one["contentSize"] == f"{len(found)} B"
        identifiers = [*objects]
        for records in described["recordSet"]:
            identifiers += [records["@id"], *(field["@id"] for field in records["field"])]
            [path] = {field["source"]["fileObject"]["@id"] for field in records["field"]}
            table = pq.read_table(file.parent / objects[path]["contentUrl"])
            columns = [field["source"]["extract"]["column"] for field in records["field"]]
            assert columns == table.column_names
            for field in records["field"]:
                assert TYPES[field["dataType"]](table.schema.field(field["name"]).type), field
            key = [one["@id"].partition("/")[2] for one in records["key"]]
            assert not pd.DataFrame(table.select(key).to_pydict()).duplicated().any()
        assert len(identifiers) == len(set(identifiers))
        assert {f"{one['@id']}.parquet" for one in described["recordSet"]} == {
            p.name for p in folder.rglob("*.parquet")
        }
