"""Names on pages: whatever they hold, a page shows the name itself, and no reader takes it for Markdown or HTML."""

import html
import json
import re
from html.parser import HTMLParser

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from od_core import Budget, Geography, PrivacyUnit, release_flows
from od_core.flows.publishing import flow_files
from od_core.publication.templates import escape_markdown, unescape_markdown
from tests.od_core.publication.examples import facts, publish_bundle

READERS = (MarkdownIt("commonmark"), MarkdownIt("gfm-like", {"linkify": False}))


def shown(text: str, reader: MarkdownIt) -> str:
    """What a reader shows of text that is a paragraph by itself; it must be one, without any markup in it."""
    page = reader.render(escape_markdown(text))
    if page == "":
        return ""
    found = re.fullmatch(r"<p>([^<>]*)</p>\n", page)
    assert found, page
    return html.unescape(found[1])


MARKS = "".join(chr(code) for code in range(33, 127) if not chr(code).isalnum())
LETTERS = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp", "Zs", "Cf"))


@given(st.text(LETTERS | st.just(" ")) | st.text(st.sampled_from(f"{MARKS} a1\n"), max_size=12))
@example("__0__")
@pytest.mark.parametrize("reader", READERS, ids=["commonmark", "gfm"])
def test_a_reader_shows_the_text_itself_with_all_its_marks(reader, text):
    assert shown(text, reader) == unescape_markdown(escape_markdown(text)) == " ".join(text.split())


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "&lt;b&gt;", "a | b", "[x](javascript:y)", "<!-- x -->"])
def test_there_is_no_html_in_it_for_a_reader_that_knows_no_backslash(text):
    assert not set("<>") & set(escape_markdown(text))
    assert "|" not in escape_markdown(text).replace("\\|", "")


def test_sentences_without_marks_are_left_alone():
    for text in ("Flows from all to zone, as OpenMatrix.", "epsilon 1.0 (rounded up); at most 2 trips", "origin_level"):
        assert escape_markdown(text) == text


LEVELS = ["<img src=x onerror=alert(1)>", "a|b **c** [d](e)", "<script>zone"]


class Tags(HTMLParser):
    """The tags of a page, with the names of their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[tuple[str, ...]] = set()
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.add((tag, *(name for name, _ in attributes)))

    def handle_data(self, data):
        self.text += data


def test_names_that_are_html_are_text_on_every_page_of_a_bundle(tmp_path, monkeypatch):
    """Levels and a version, in whatever a person opens; also those that are too large."""
    monkeypatch.setattr(flow_files, "MAX_MATRIX_CELLS", 5)
    monkeypatch.setattr(flow_files, "MOST_LISTED", 5)
    zones = pd.DataFrame([("n", "n1", "001"), ("n", "n2", "002"), ("s", "s1", "<b>3</b>")], columns=LEVELS, dtype="str")
    geography = Geography.from_frame(zones, LEVELS, version="<u>|2024|")
    trips = pd.DataFrame({"origin": ["001", "<b>3</b>"], "destination": ["002", "001"], "trips": [40, 9]})
    made = release_flows(trips, geography, unit=PrivacyUnit("trip"), budget=Budget(rho=2, delta="1e-8"))
    publish_bundle(made, facts(made), tmp_path / "r1")
    paths = [path for path in (tmp_path / "r1").rglob("*.*") if path.suffix in SHOWN]
    files = {path.name: path.read_text(encoding="utf-8") for path in paths}
    pages = {name: text for name, text in files.items() if name.endswith(".html")}
    pages["codebook.md"] = MarkdownIt("gfm-like", {"linkify": False}).render(files["codebook.md"])
    package = json.loads(files["datapackage.json"])
    described = [package, *(f for r in package["resources"] if "schema" in r for f in r["schema"]["fields"])]
    for number, part in enumerate(described):
        pages[f"description {number}"] = MarkdownIt("commonmark").render(part["description"])
    for name, text in pages.items():
        page = Tags(text)
        assert not {tag for tag in page.tags if "onerror" in tag or "src" in tag or tag[0] in ("b", "u")}, name
        assert not ({tag[0] for tag in page.tags} & {"a", "img"} and name == "codebook.md"), name
    shown = Tags(pages["codebook.md"]).text
    assert f"Flows from {LEVELS[0]} to {LEVELS[0]}, as OpenMatrix." in shown
    assert f"{LEVELS[1]} by {LEVELS[2]}" in shown.partition("cells are left out: ")[2]
    assert f"In the flows from {LEVELS[2]} to {LEVELS[2]}, a pair" in shown
    assert "version <u>|2024|." in shown
    assert all(level in Tags(pages["certificate.html"]).text for level in LEVELS)


SHOWN = (".html", ".md", ".json")
