"""Texts in other languages: what a message is, and whether each has a translation that fits it."""

import io
import re
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.frontend import parse_mapping_cfg
from babel.numbers import format_decimal

import od_core
from od_core.languages import (
    extract_messages,
    list_languages,
    localise_number,
    read_catalog,
    translate,
    translate_source,
    use_language,
)
from od_core.meaning.subject import Nouns

PACKAGE = Path(od_core.__file__).parent


@pytest.fixture(scope="module")
def messages() -> dict[str, str]:
    """All messages, each with a file that has it, as ``make translations`` finds them."""
    with (PACKAGE / "translations/babel.cfg").open(encoding="utf-8") as config:
        methods, options = parse_mapping_cfg(config)
    found = extract_from_dir(PACKAGE, methods, options, keywords={"translate": None, "message": None})
    return {text: path for path, _, text, _, _ in found}


@pytest.mark.parametrize("language", list_languages())
def test_every_message_has_a_translation_and_every_translation_a_message(
    messages: dict[str, str], language: str
) -> None:
    """After a change of a text: ``make translations``, and translate what is empty or fuzzy."""
    translated = {entry.id for entry in read_catalog(language) if entry.id and entry.string and not entry.fuzzy}
    assert {text: path for text, path in messages.items() if text not in translated} == {}
    assert translated - messages.keys() == set()


def names_in(text: str) -> set[str]:
    """Return the names of values in Jinja2 and in braces of a message."""
    code = " ".join(re.findall(r"\{[{%].*?[%}]\}|\{\w+\}", text, re.DOTALL))
    return set(re.findall(r"[a-z_]{3,}", re.sub(r"\"[^\"]*\"|'[^']*'", "", code)))


@pytest.mark.parametrize("language", list_languages())
def test_a_translation_has_no_other_values_than_its_message(language: str) -> None:
    """It may repeat or reorder them, and have others of ``nouns``; the words of statements may differ."""
    grammar = {"else", "elif", "endif", "nouns", "and", "not", "none", "set", "capital", "replace", "localised"}
    nouns = Nouns.__dataclass_fields__.keys()
    for entry in read_catalog(language):
        if entry.id:
            assert names_in(entry.string) - names_in(entry.id) <= grammar | nouns, entry.id


@pytest.mark.parametrize("language", list_languages())
def test_a_translation_keeps_the_tags_and_links_of_its_message(language: str) -> None:
    """A tag that is lost would change the page, and a column or file that is renamed would mislead."""
    for entry in read_catalog(language):
        if entry.id:
            for pattern in (r"</?[a-z]+", r"(?<=href=\")#[^\"]*"):
                before, after = (set(re.findall(pattern, str(text))) for text in (entry.id, entry.string))
                assert before == after, entry.id


PAGE = """{# a comment #}
{% call section("Known totals") %}
<p class="note">
{% if exact %}
The number of {{ trips }} is <em>exact</em>.
{% endif %}
</p>
<img alt="A map" src="a b.png">
<style>p { color: red }</style>
<td>{{ "yes" if exact else "not known" }}</td><td>{{ trips | number }}</td>
{% endcall %}
"""
MESSAGES = [
    '{% call section("Known totals") %}',
    "The number of {{ trips }} is <em>exact</em>.",
    "A map",
    '{{ "yes" if exact else "not known" }}',
]


def named(name: str, text: str) -> io.BytesIO:
    file = io.BytesIO(text.encode())
    file.name = name
    return file


def test_messages_of_a_page_are_its_sentences_and_the_words_within_statements() -> None:
    assert [text for _, _, text, _ in extract_messages(named("page.html", PAGE))] == MESSAGES


def test_messages_of_texts_are_lines_and_of_data_the_texts_that_are_displayed() -> None:
    text = "# Files\n\n{% if x %}\nOne {{ y }}.\n{% endif %}\n"
    assert [text for _, _, text, _ in extract_messages(named("a.md", text))] == ["# Files", "One {{ y }}."]
    data = "trips:\n  name: trips\n  columns: [origin]\n  title: Trips\n  notes: |-\n    One.\n    Two.\n"
    assert [text for _, _, text, _ in extract_messages(named("a.yaml", data))] == ["Trips", "One.", "Two."]


def test_a_translated_page_has_the_same_layout_and_an_unknown_message_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog("de")
    catalog.add("The number of {{ trips }} is <em>exact</em>.", "{{ trips }} ist <em>exakt</em>.")
    catalog.add("A map", "Eine Karte")
    monkeypatch.setattr("od_core.languages.read_catalog", lambda _: catalog)
    with use_language("de"):
        page = translate_source(PAGE, "page.html")
    expected = PAGE.replace("The number of {{ trips }} is <em>exact</em>.", "{{ trips }} ist <em>exakt</em>.")
    assert page == expected.replace("A map", "Eine Karte")
    assert translate_source(PAGE, "page.html") == PAGE
    assert translate("A map") == "A map"


@pytest.mark.parametrize("language", list_languages())
def test_numbers_have_the_separators_of_the_language(language: str) -> None:
    with use_language(language):
        assert localise_number(f"{1234567.25:,}") == format_decimal(1234567.25, locale=language)
    assert localise_number("1,234.5") == "1,234.5"
