"""Write texts for readers in their language.

The texts of this project are in English: in templates, in YAML files, and a few in Python. A translation is a gettext
catalog, ``translations/LANGUAGE.po``, which any editor of such files can change. A *message* is a piece of a text that
is translated as a whole, with one space for all white space:

- of a template of a page: what is between two tags that are not inline, without the statements at its ends; an
  attribute that is read aloud or displayed; and a statement that contains words, such as a heading;
- of Markdown and plain text: a line; of a YAML file: each line of each text;
- of a template, also a literal that is given to the filter ``translated``;
- of Python: a text that is given to :func:`translate`.

Statements and values of Jinja2 within a message belong to it, and a translation may have others, as its grammar needs.
What has no translation stays English. :func:`use_language` chooses the language of a thread.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.resources import files
from typing import IO, TYPE_CHECKING, Any, TypeVar

import yaml

if TYPE_CHECKING:  # English needs no catalog
    from babel.messages.catalog import Catalog

ENGLISH = "en"

Text = TypeVar("Text", bound=str)

_language = ContextVar("language", default=ENGLISH)


def get_language() -> str:
    """Return the code of the language in which texts are written now, such as ``de``."""
    return _language.get()


@contextmanager
def use_language(language: str) -> Iterator[None]:
    """Write texts in a language. Other threads keep theirs.

    Examples:
        >>> with use_language("de"):
        ...     print(translate("likely none"))
        wohl keine
    """
    token = _language.set(language)
    try:
        yield
    finally:
        _language.reset(token)


def name_in_language(file: str) -> str:
    """Return the name of a file in the language that is used, such as ``report.de.html`` for ``report.html``."""
    stem, _, ending = file.rpartition(".")
    return file if get_language() == ENGLISH else f"{stem}.{get_language()}.{ending}"


@cache
def list_languages() -> tuple[str, ...]:
    """Return the codes of the languages into which the texts are translated, in the order of the alphabet."""
    catalogs = files("od_core").joinpath("translations").iterdir()
    return tuple(sorted(file.name.removesuffix(".po") for file in catalogs if file.name.endswith(".po")))


@cache
def read_catalog(language: str) -> Catalog:
    """Return the catalog of a language of :func:`list_languages`."""
    from babel.messages.pofile import read_po

    with files("od_core").joinpath("translations", f"{language}.po").open("rb") as file:
        return read_po(file, locale=language)


def name_language(language: str) -> str:
    """Return the name of a language in this language, such as ``Deutsch``."""
    from babel import Locale

    return str(Locale.parse(language).get_display_name(language))


@cache
def _read_separators(language: str) -> dict[int, str]:
    """Return how the comma and the point of an English number are written in a language, for ``str.translate``."""
    from babel.numbers import get_decimal_symbol, get_group_symbol

    return str.maketrans({",": get_group_symbol(language), ".": get_decimal_symbol(language)})


def localise_number(text: str) -> str:
    """Return a number, written as in English such as ``1,234.5``, with the separators of the language."""
    return text if get_language() == ENGLISH else text.translate(_read_separators(get_language()))


def localise_date(day: datetime.date, skeleton: str) -> str:
    """Return a date in the words of the language, with the parts that a skeleton of Unicode CLDR names."""
    from babel.dates import format_skeleton

    return str(format_skeleton(skeleton, day, locale=get_language()))


def translate(message: str) -> str:
    """Return a message in the language, or itself if it has no translation."""
    return _find_translation(message) if get_language() != ENGLISH else message


def message(text: Text) -> Text:
    """Return a text unchanged, which is translated where it is displayed. Its words are a message of the catalogs."""
    return text


def translate_texts(part: Any) -> Any:
    """Return data of a YAML file with all its texts, but for names, in the language."""
    if isinstance(part, dict):
        return {name: translate_texts(item) for name, item in part.items()}
    if isinstance(part, list):
        return [translate_texts(item) for item in part]
    return translate(part) if isinstance(part, str) else part


def _find_translation(message: str) -> str:
    """Return the translation of a message whose white space may be any, or itself if there is none."""
    found = read_catalog(get_language()).get(" ".join(message.split()))
    return str(found.string) if found is not None and found.string and not found.fuzzy else message


_INLINE = "a|abbr|b|br|code|em|i|kbd|mark|q|small|span|strong|sub|sup|time|wbr"
_STATEMENT = r"\{%(?:(?!%\}).)*%\}"
_JINJA = rf"(?:{_STATEMENT}|\{{\{{(?:(?!\}}\}}).)*\}}\}})"
_OWN_LINE = rf"(?:[ \t]*(?:{_STATEMENT}|\{{\{{ \w+\((?:(?!\}}\}}).)*\}}\}}))+[ \t]*"
"""Statements, or calls of macros, that fill their lines."""

_TAG = rf"<(?!/?(?:{_INLINE})\b)/?[!\w](?:{_JINJA}|[^<>])*>"
_HTML = re.compile(rf"(\{{#.*?#\}}|<!--.*?-->|<(?:style|script)\b.*?</(?:style|script)>|{_TAG})", re.DOTALL)
_LINES = re.compile(r"(\{#.*?#\}|\n(?!(?:(?!\{[%{]).)*[%}]\}))", re.DOTALL)
"""Pattern of what separates the messages of a text: comments, and ends of lines that are not within Jinja2."""

_FIRST = re.compile(rf"\A\s*{_OWN_LINE}(?=\n|\Z)", re.DOTALL)
_LAST = re.compile(rf"(?:(?<=\n)|\A){_OWN_LINE}\s*\Z", re.DOTALL)
_DISPLAYED = re.compile(r'(?<=\s)((?:aria-label|title|alt|placeholder)=")([^"{}]*[^\W\d_]{2}[^"{}]*)(?=")')
_NO_WORDS = re.compile(rf"{_JINJA}|\{{\w+\}}|<[^<>]*>|&\w+;|`[^`]*`", re.DOTALL)
_LITERAL = re.compile(r""" "([^"\n]*)" | '([^'\n]*)' """, re.VERBOSE)
_TRANSLATED = re.compile(r'"([^"\n]*)" \| translated')
_WORD = re.compile(r"[^\W\d_]{2}")
_PHRASE = re.compile(r"[^\W\d_]{2}.*\s|\s.*[^\W\d_]{2}|^[A-Z][a-z]")
"""Pattern of a literal that is displayed: it has a word and a space, or it begins with a capital letter."""


def _has_words(piece: str) -> bool:
    """Return whether a piece of a template has words to translate, beside Jinja2 or in literals of Jinja2."""
    if _WORD.search(_NO_WORDS.sub(" ", piece)):
        return True
    statements = re.findall(_JINJA, _TRANSLATED.sub("", piece), re.DOTALL)
    literals = (max(pair) for code in statements for pair in _LITERAL.findall(code))
    return any(_PHRASE.search(literal) for literal in literals)


def _replace_in_piece(piece: str, replace: Callable[[str], str]) -> str:
    """Return what is between two separators with its messages replaced: statements at its ends, and what is between."""
    for pattern in (_FIRST, _LAST):
        at_end = pattern.search(piece)
        if at_end is not None and at_end.group().strip():
            before, after = piece[: at_end.start()], piece[at_end.end() :]
            statement = _replace_message(at_end.group(), replace)
            return _replace_in_piece(before, replace) + statement + _replace_in_piece(after, replace)
    return _replace_message(piece, replace)


def _replace_message(piece: str, replace: Callable[[str], str]) -> str:
    """Return a piece that is one message replaced, with the white space at its ends; without words, the same piece."""
    message = piece.strip()
    if not message or not _has_words(message):
        return piece
    start = piece.index(message[0])
    return piece[:start] + replace(message) + piece[start + len(message) :]


def replace_messages(source: str, replace: Callable[[str], str], *, is_html: bool) -> str:
    """Return the source of a template with each message replaced by what ``replace`` returns for it."""
    pieces = (_HTML if is_html else _LINES).split(source)
    for number, piece in enumerate(pieces):
        if number % 2 == 0:
            pieces[number] = _replace_in_piece(piece, replace)
        elif is_html and not piece.startswith(("{#", "<style", "<script")):
            pieces[number] = _DISPLAYED.sub(lambda shown: shown.group(1) + replace(shown.group(2)), piece)
    return "".join(pieces)


def translate_source(source: str, name: str) -> str:
    """Return the source of a template with its messages in the language, given its name.

    Sources that are neither pages nor texts for people, such as those of JSON, stay as they are.
    """
    ending = name.rpartition(".")[2]
    if get_language() == ENGLISH or ending not in ("html", "svg", "md", "txt", "yaml"):
        return source
    return replace_messages(source, _find_translation, is_html=ending in ("html", "svg"))


def extract_messages(
    file: IO[bytes], *_given: object, **_options: object
) -> Iterator[tuple[int, None, str, list[str]]]:
    """Yield the line, no function, the text and no comments of each message of a template or a YAML file, for Babel."""
    source, ending, messages = file.read().decode(), file.name.rpartition(".")[2], list[str]()

    def add(message: str) -> str:
        messages.append(" ".join(message.split()))
        return message

    if ending == "yaml":
        for text in _iterate_texts(yaml.compose(source)):
            replace_messages(text, add, is_html=False)
    else:
        replace_messages(source, add, is_html=ending in ("html", "svg"))
        messages += _TRANSLATED.findall(source)
    for message in messages:
        yield 1, None, message, []


_FOR_PROGRAMS = frozenset({"columns", "distances", "key", "like", "listed", "name", "of", "table", "type"})
"""Names in YAML files whose texts, or lists of texts, are names of columns and tables."""

_OF_DATABASE = frozenset({"database", "of_all_kinds"})
"""Names in ``tables.yaml`` of the comments of the database, which are in English."""


def _iterate_texts(node: Any, *, displayed: bool = True) -> Iterator[str]:
    """Yield the texts of a YAML document that are ``displayed``: neither names of mappings nor for programs."""
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value not in _OF_DATABASE:
                yield from _iterate_texts(value, displayed=name.value not in _FOR_PROGRAMS)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _iterate_texts(value, displayed=displayed)
    elif displayed and node.tag == "tag:yaml.org,2002:str":
        yield node.value
