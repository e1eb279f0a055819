"""Names as Markdown: whatever they hold, a page shows the name itself, and no reader takes it for HTML."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from od_core.publication.markdown import in_markdown

READERS = (MarkdownIt("commonmark"), MarkdownIt("gfm-like", {"linkify": False}))


def shown(text: str, reader: MarkdownIt) -> str:
    """What a reader shows of text that is a paragraph by itself; it must be one, without any markup in it."""
    page = reader.render(in_markdown(text))
    if page == "":
        return ""
    found = re.fullmatch(r"<p>([^<>]*)</p>\n", page)
    assert found, page
    return html.unescape(found[1])


@settings(max_examples=50)
@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp", "Zs", "Cf")) | st.just(" ")))
@pytest.mark.parametrize("reader", READERS, ids=["commonmark", "gfm"])
def test_a_reader_shows_the_text_itself(reader, text):
    assert shown(text, reader) == " ".join(text.split())


MARKS = "".join(chr(code) for code in range(33, 127) if not chr(code).isalnum())


@settings(max_examples=50)
@given(st.text(st.sampled_from(f"{MARKS} a1\n"), max_size=12))
@pytest.mark.parametrize("reader", READERS, ids=["commonmark", "gfm"])
def test_marks_of_punctuation_are_shown_as_they_are(reader, text):
    assert shown(text, reader) == " ".join(text.split())


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "&lt;b&gt;", "a | b", "[x](javascript:y)", "<!-- x -->"])
def test_there_is_no_html_in_it_for_a_reader_that_knows_no_backslash(text):
    assert not set("<>") & set(in_markdown(text))
    assert "|" not in in_markdown(text).replace("\\|", "")


def test_sentences_without_marks_are_left_alone():
    for text in ("Flows from all to zone, as OpenMatrix.", "epsilon 1.0 (rounded up); at most 2 trips", "origin_level"):
        assert in_markdown(text) == text
