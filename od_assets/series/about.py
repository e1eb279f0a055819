"""Declare the words about a series for its readers, in English and in other languages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from od_assets.series.section import Section
from od_core.errors import OdError
from od_core.languages import list_languages

_MAX_CHARACTERS = {"title": 120, "counted": 40, "groups": 40}
"""Largest number of characters of a text about a series, by name: those that are shown in headings are short."""

_MAX_CHARACTERS_OF_OTHERS = 1000
"""Largest number of characters of the other texts about a series."""


class TranslatedWords(Section):
    """Words about a series in another language, in which its pages are then published, too."""

    title: str | None = None
    description: str | None = None
    source: str | None = None
    licence: str | None = None
    counted: str | None = None
    coverage: str | None = None
    groups: str | None = None
    publisher: str | None = None
    contact: str | None = None


class About(TranslatedWords):
    """Words about a series for its readers, which are published with each release."""

    title: str
    translations: dict[str, TranslatedWords] | None = None

    def to_texts(self) -> dict[str, Any]:
        """Return the stated texts by name, and under ``translations`` those in other languages, by language and name.

        Raises OdError if one is not a line of a fitting length, or a language is unknown.
        """
        texts = self.model_dump(exclude_none=True)
        translations = texts.get("translations", {})
        for language in translations.keys() - set(list_languages()):
            message = f"about.translations: {language!r} is none of the languages {', '.join(list_languages())}"
            raise OdError("OD-CONFIG", message, next_step="name one of these languages")
        for words in (texts, *translations.values()):
            _check_words({name: text for name, text in words.items() if name != "translations"})
        return texts


def _check_words(words: Mapping[str, str]) -> None:
    """Raise OdError if one of the words about a series, by name, is not a line of a fitting length."""
    for name, text in words.items():
        maximum = _MAX_CHARACTERS.get(name, _MAX_CHARACTERS_OF_OTHERS)
        if not text.strip() or not text.isprintable() or len(text) > maximum:
            message = (
                f"about.{name} is blank, longer than {maximum} characters, or has characters that are not printable"
            )
            raise OdError("OD-CONFIG", message, next_step=f"give a {name} of one line")
