"""Pages in other languages, as a bundle has them: whole, without English, and with the same facts."""

import json
import re
import shutil
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from od_core.flows.publishing.kind import FLOWS
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.bundle import write_bundle
from od_core.publication.bundle_files import NOTICE, locate_zip, write_zip
from od_core.publication.certify import build_certificate
from od_core.published.derived import publish_assisted, publish_sum
from od_core.published.site import write_site
from od_core.published.site_release import SiteDescription
from tests.od_core.publication.examples import CHECKS, RECORD
from tests.od_core.publication.reports import Reported, examples, flows, reported

ENGLISH = re.compile(
    r"\b(and|are|as|at|be|been|by|each|for|from|has|have|if|is|it|its|may|not|of|on|one|only|or|than|that|the|their"
    r"|they|this|to|which|with|without)\b"
)
"""Words that most English sentences have, and no German ones; a and all are also in names of areas and levels."""
PAGES = ("report.de.html", "certificate.de.html", "codebook.de.md", "README.de.txt")
ABOUT = {"title": "Eins", "licence": "CC0", "translations": {"de": {"title": "Zwei", "licence": "gemeinfrei"}}}


def publish(made: Reported, key: ReleaseKey, releases: Path) -> Path:
    """Write the bundle of a release in two languages, and return its folder."""
    facts = build_certificate(made.kind, made.release, key, "survey", CHECKS, record=RECORD, about=ABOUT)
    place = releases / str(key)
    place.mkdir(parents=True)
    render_report = partial(made.kind.render_report, made.release, context=made.context)
    write_bundle(made.kind, made.release, facts, render_report, place, balance=made.context.balance)
    write_zip(place, str(key), locate_zip(place))
    return place


@pytest.fixture(scope="module", params=sorted(examples()))
def folder(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of each kind in two languages."""
    releases = tmp_path_factory.mktemp("published") / "releases"
    return publish(examples()[request.param], ReleaseKey("small", "2001-06"), releases)


def read_displayed(path: Path) -> str:
    """Return the text of a page without code: tags, styles, names of columns, files and checks, and commands."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        text = re.sub(r"<(style|code|script)\b.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL)
    names = "|".join(check["check"].replace("_", " ") for check in CHECKS)
    return re.sub(rf"`[^`]*`|^ +sha256sum.*$|\b({names})\b", "", unescape(text), flags=re.MULTILINE)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_in_german_has_no_english_sentence(folder: Path, name: str) -> None:
    lines = [line.strip() for line in read_displayed(folder / name).splitlines()]
    assert [line for line in lines if ENGLISH.search(line)] == []


def test_the_pages_of_a_language_have_its_words_and_the_same_facts(folder: Path) -> None:
    facts = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    translated = facts["translations"]["de"]
    assert translated["about"]["title"] == "Zwei"
    assert translated.keys() <= {"about", "guarantee", "invariants", "known_limitations", "levels"}
    assert translated["guarantee"].keys() == facts["guarantee"].keys()
    english, german = ((folder / name).read_text(encoding="utf-8") for name in ("README.txt", "README.de.txt"))
    assert re.findall(r"[0-9a-f]{16}", english) == re.findall(r"[0-9a-f]{16}", german) != []
    page = (folder / "report.de.html").read_text(encoding="utf-8")
    assert '<html lang="de">' in page
    assert 'href="report.html" lang="en"' in page
    assert 'href="report.de.html" lang="de"' in (folder / "report.html").read_text(encoding="utf-8")


def test_a_site_has_its_pages_in_the_language_and_links_between_them(folder: Path, tmp_path: Path) -> None:
    site = write_site(folder.parents[2], tmp_path, SiteDescription("Titel")).folder
    pages = [site / "index.de.html", *sorted(site.glob("small/*.de.html"))]
    for page in pages:
        assert [line for line in read_displayed(page).splitlines() if ENGLISH.search(line)] == []
        addresses = re.findall(r'href="([^"#]+)"', page.read_text(encoding="utf-8"))
        assert [address for address in addresses if not (page.parent / address).is_file()] == []
        assert page.with_name(page.name.replace(".de", "")).resolve() in [
            (page.parent / address).resolve() for address in addresses
        ]
    assert 'href="small/2001-06/r1/report.de.html"' in pages[0].read_text(encoding="utf-8")
    assert "Zwei" in read_displayed(site / "small/index.de.html")


def test_no_page_in_the_language_stays_of_what_was_withdrawn(tmp_path: Path) -> None:
    """Neither while the site has other releases or series, nor when it has none; and then nothing is written again."""
    releases = tmp_path / "releases"
    gone, later, other = ReleaseKey("small", "2001-06"), ReleaseKey("small", "2001-07"), ReleaseKey("other", "2001-06")
    for key in (gone, later, other):
        publish(examples()["flows"], key, releases)

    def list_pages() -> list[str]:
        site = write_site(releases, tmp_path / "site", SiteDescription("Titel")).folder
        assert write_site(releases, tmp_path / "site", SiteDescription("Titel")).changed == ()
        return sorted(path.relative_to(site).as_posix() for path in site.glob("**/*.de.*"))

    assert f"{gone}/report.de.html" in list_pages()
    withdraw(releases, gone)
    assert f"{gone}/index.de.html" in list_pages()
    withdraw(releases, later)
    notices = ["small/index.de.html", f"{gone}/index.de.html", f"{later}/index.de.html"]
    assert [page for page in list_pages() if page.startswith("small")] == sorted(notices)
    withdraw(releases, other)
    assert list_pages() == []


def withdraw(releases: Path, key: ReleaseKey) -> None:
    """Replace a bundle by the notice that it was withdrawn."""
    place = releases / str(key)
    shutil.rmtree(place)
    locate_zip(place).unlink()
    facts = {"release": str(key), "withdrawn_at": "2001-08-01T09:00:00+00:00", "reason": "counted twice"}
    place.with_name(f"{place.name}{NOTICE}").write_text(json.dumps(facts), encoding="utf-8")


def test_sums_and_model_assisted_flows_are_translated_as_their_releases(tmp_path: Path) -> None:
    keys = [ReleaseKey("small", "2001-05"), ReleaseKey("small", "2001-06")]
    for key, seed in zip(keys, (7, 1), strict=True):
        publish(reported(flows(seed=seed), FLOWS), key, tmp_path)
    for published in (publish_sum(tmp_path, keys), publish_assisted(tmp_path, keys[-1])):
        assert published.certificate["translations"]["de"]["about"]["title"].startswith("Zwei (")
        for name in PAGES:
            lines = [line.strip() for line in read_displayed(published.folder / name).splitlines()]
            assert [line for line in lines if ENGLISH.search(line)] == []
