"""A series may have a title and words for its readers: they are on its pages, and no program is misled by them."""

from __future__ import annotations

import calendar
import datetime
import html
import json
import zipfile
from html.parser import HTMLParser
from typing import Any

import pytest

from od_core.periods import Period
from od_core.publication.bundle import as_published, bundle_faults, differing_files
from od_core.publication.certificate import certificate_digest
from tests.od_core.publication.examples import atlas_header, facts, release, staged_bundle

ABOUT = {
    "title": "Trips <b>& more</b>, {{ '7' * 7 }}",
    "description": "What is counted | and what is not",
    "source": "The agency, 'table 5'",
    "licence": "CC BY 4.0",
    "counted": "ferry <i>trips</i>",
    "coverage": "a tenth of <b>all</b> riders",
}


class Titles(HTMLParser):
    """Texts of the elements title and h1."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.found = False, []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag in ("title", "h1"):
            self.inside = True
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("title", "h1")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.found[-1] += data


def test_a_title_is_on_every_page_as_it_was_declared(tmp_path):
    made, folder = release(), tmp_path / "bundle"
    stated = facts(made, about=ABOUT)
    titled = f"{ABOUT['title']}, {calendar.month_name[int(stated['period'][5:])]} {stated['period'][:4]}"
    with staged_bundle(made, stated, folder):
        pass
    for page in ("report.html", "atlas.html"):
        text = (folder / page).read_text(encoding="utf-8")
        titles = Titles()
        titles.feed(text)
        assert titles.found[0].strip() == titled
        assert "<b>& more</b>" not in text
    report = (folder / "report.html").read_text(encoding="utf-8")
    assert "exactly " in report
    assert "ferry &lt;i&gt;trips&lt;/i&gt;" in report
    assert "<i>trips" not in report
    package = json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))
    assert package["title"] == titled
    assert package["sources"] == [{"title": ABOUT["source"]}]
    assert package["licenses"][0]["title"] == ABOUT["licence"]
    readme = (folder / "README.txt").read_text(encoding="utf-8")
    assert readme.splitlines()[0] == titled
    assert f"choose areas, and see their {ABOUT['counted']}" in readme
    assert f"{ABOUT['title']}. {stated['release'].split('/')[0]}, period" in " ".join(readme.split())
    assert json.loads((folder / "certificate.json").read_text(encoding="utf-8"))["about"] == ABOUT
    assert list(bundle_faults(folder)) == []


def test_the_words_of_a_certificate_that_was_read_back_make_the_same_files(tmp_path):
    """Verification states the words in the order of the JSON file, which is not that of a declaration."""
    made = release()
    for name, about in (
        ("declared", ABOUT),
        ("read", dict(sorted(ABOUT.items()))),
        ("last", dict(sorted(ABOUT.items())[::-1])),
    ):
        with staged_bundle(made, facts(made, about=about), tmp_path / name):
            pass
    for name in ("read", "last"):
        assert not list(differing_files(tmp_path / "declared", tmp_path / name))


def test_pages_that_state_intervals_say_what_these_do_not_cover(tmp_path):
    """The words of the publisher as text: in HTML escaped, in the atlas as data, in the workbook as a cell."""
    made, words = release(), "Records: A tenth of <b>all</b> riders. The intervals cover the noise of the release, not"
    for name, about in (("stated", ABOUT), ("silent", {"title": "T"})):
        with staged_bundle(made, facts(made, about=about), tmp_path / name):
            pass
        with zipfile.ZipFile(tmp_path / name / "spreadsheet" / "flows.xlsx") as book:
            first = html.unescape(" ".join(book.read(part).decode() for part in book.namelist()))
        texts = {
            page: (tmp_path / name / page).read_text("utf-8") for page in ("report.html", "codebook.md", "README.txt")
        }
        texts = {page: " ".join(html.unescape(text).split()) for page, text in texts.items()} | {"flows.xlsx": first}
        for page, text in texts.items():
            assert text.count(words) == (name == "stated"), page
        atlas = tmp_path / name / "atlas.html"
        assert (words in atlas_header(atlas)["notes"][0]) == (name == "stated")
        assert "<b>all</b>" not in atlas.read_text("utf-8")


@pytest.mark.parametrize("later", [None, {"title": "Another title"}])
def test_what_is_published_keeps_its_words(tmp_path, later):
    made, folder = release(), tmp_path / "bundle"
    first = facts(made, about=ABOUT)
    with staged_bundle(made, first, folder):
        pass
    again = as_published(facts(made, about=later), folder, certificate_digest(first))
    assert again["about"] == ABOUT
    assert certificate_digest(again) == certificate_digest(first)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2001", "2001"),
        ("2001-Q2", "2nd quarter of 2001"),
        ("2001-W05", "week 5 of 2001"),
        ("2018-11--2020-02", "November 2018 to February 2020"),
    ],
)
def test_a_period_is_said_in_words(text, words):
    assert Period(text).in_words == words


def test_days_and_months_are_said_as_the_calendar_names_them():
    for day in (datetime.date(2001, month, 28 - month) for month in range(1, 13)):
        assert Period(day.isoformat()).in_words == f"{day.day} {day:%B} {day.year}"
        assert Period(day.isoformat()[:7]).in_words == f"{day:%B} {day.year}"
