"""Fill in the templates of pages and documents, which lie in ``publication/templates``.

A template holds the words and the layout. A function passes to it the facts of a release, as numbers, texts and lists;
it decides nothing that a template can decide. The ending of a template's name says how values are written, so that no
area code and no name in the data can inject anything:

- ``.html``, ``.svg`` and ``.xml``: every value that is not ``Markup`` is escaped.
- ``.md``: every value is escaped, unless the filter ``safe`` marks it as Markdown.
- ``.json``: every value is written as JSON.
- ``.sql``: every text is written as a literal; the filter ``quoted`` makes a name of it, and ``safe`` an expression.
- ``.yaml``: the file is data whose texts are templates, and the values are filled in after it was read.

A name that is not passed is an error. Templates write numbers with the filters of
:mod:`od_core.publication.number_formats`, and of the accounting.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Any, cast

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from jinja2.utils import missing
from markupsafe import Markup

from od_core.files.duckdb_session import quote_identifier, quote_literal
from od_core.languages import (
    get_language,
    localise_number,
    name_in_language,
    name_language,
    translate,
    translate_source,
)
from od_core.meaning.subject import Subject
from od_core.privacy.accounting import format_promise, format_rounded_down, format_rounded_up, round_up_to_float
from od_core.publication import number_formats as formats
from od_core.publication.certificate import (
    Certificate,
    bound_right_guesses_of_100,
    compute_certificate_digest,
    count_summed_releases,
    format_release_title,
    is_selected,
    read_guarantee_for_one_unit,
    read_subject,
)


class _TranslatedLoader(PackageLoader):
    """Loads the templates of a folder in the language that is used at the time."""

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool] | None]:
        """Return the translated text of a template, its path, and whether it is up to date."""
        source, path, is_current = super().get_source(environment, template)
        return translate_source(source, template), path, is_current


class _Absent(StrictUndefined):
    """A fact that a certificate lacks. Its use raises KeyError, as in Python."""

    def __init__(
        self, hint: str | None = None, obj: object = missing, name: str | None = None, exc: type[Exception] = KeyError
    ) -> None:
        super().__init__(hint, obj, name, exc)  # type: ignore[arg-type]  # Jinja2 names its own errors alone

    @property
    def _undefined_message(self) -> str:
        """Name of the fact, which becomes the message of the KeyError."""
        return str(self._undefined_name)


_MARKUP = re.compile(r"[\\`*{}\[\]|~#!$]|(?<![^\W_])_|_(?![^\W_])|(?<=www)\.|:(?=//)|(?<=\w)@(?=\w)")
"""Pattern of characters that may begin or end markup, a link or (in some programs) a formula.

An underscore begins none between two letters or digits, as in `origin_level`.
"""

_LINE_START = re.compile(r"^(\d*(?=[.)](?:\s|$)))?([-+=.)])")
"""Pattern of characters that begin a list, a rule or a heading underline, at the start of a line."""


def escape_markdown(text: str) -> str:
    """Return one line of Markdown that is displayed as the given text.

    Any punctuation mark may follow a backslash. HTML characters become entities, so that no program treats them as
    tags, even a program that does not support backslash escapes.

    References:
        CommonMark 0.31.2, sections 2.4 and 2.5; GitHub Flavored Markdown 0.29, sections 4.10 and 6.9.
    """
    escaped = html.escape(_MARKUP.sub(r"\\\g<0>", " ".join(text.split())), quote=False)
    return _LINE_START.sub(r"\1\\\2", escaped)


def unescape_markdown(text: str) -> str:
    """Return the text that a line of :func:`escape_markdown` displays."""
    return html.unescape(re.sub(r"\\(.)", r"\1", text))


def _as_markdown(value: object) -> str:
    """Return a value of a Markdown template as it is written: escaped, unless it is markup."""
    return value if isinstance(value, Markup) else escape_markdown(str(value))


def _as_json(value: object) -> str:
    """Return a value as JSON text; a type that JSON lacks is a string. Raises KeyError for an absent fact."""
    return json.dumps(value, default=str)  # values of other types as text, which an absent fact refuses to be


def _as_sql(value: object) -> Markup:
    """Return a value of an SQL template as it is written: a text as a literal, unless it is markup."""
    if isinstance(value, Markup):
        return value
    return Markup(quote_literal(value) if isinstance(value, str) else str(value))  # noqa: S704 - no markup


_VALUE_WRITERS: dict[str, Callable[[object], str]] = {"md": _as_markdown, "json": _as_json, "sql": _as_sql}
"""Functions that return each value of a template as it is written, by the ending of the template's name."""


_IDENTIFIER = re.compile(r"[a-z]+(?:_[a-z0-9]+)*")
"""Values of fields that programs compare, such as ``user_period``."""


def _write_localised(write: Callable[..., str]) -> Callable[..., str]:
    """Return a function that writes numbers as ``write`` does, but with the separators of the language."""
    return lambda *given, **named: localise_number(write(*given, **named))


@cache
def _make_environment(ending: str, language: str) -> Environment:
    """Return the Jinja environment, with filters, of the templates whose names end with ``ending``, in a language."""
    environment = Environment(
        extensions=["jinja2.ext.do"],
        loader=_TranslatedLoader("od_core.publication", "templates"),
        autoescape=ending in ("html", "svg", "xml", "sql"),  # noqa: S701 - other formats escape in another way, or need not
        finalize=_VALUE_WRITERS.get(ending),
        undefined=_Absent,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    environment.filters |= {
        "number": formats.format_number,
        "signed": formats.format_change,
        "rounded": formats.format_rounded,
        "percent": formats.format_percent,
        "fixed": formats.format_decimals,
        "part_of": formats.compute_percent_of_largest,
        "promise_text": format_promise,
        "sentence": format_sentence,
        "plain": unescape_markdown,
        "capital": capitalise,
        "translated": translate,
        "localised": localise_number,
        "in_language": name_in_language,
        "language_name": name_language,
    }
    environment.filters |= {
        "float_above": round_up_to_float,
        "above": _write_localised(format_rounded_up),
        "below": _write_localised(format_rounded_down),
        "fraction": Fraction,
        "digest": compute_certificate_digest,
        "titled": format_release_title,
        "subject": read_subject,
        "clauses": render_clauses,
        "is_selected": is_selected,
        "summed": count_summed_releases,
        "right_of_100": bound_right_guesses_of_100,
        "best_guess": lambda certificate: bound_right_guesses_of_100(read_guarantee_for_one_unit(certificate)),
    }
    environment.filters |= {
        "md": escape_markdown,
        "quoted": lambda name: Markup(quote_identifier(name)),  # noqa: S704 - no markup
        "trips": formats.format_trips_rounded_up,
        "whole_trips": formats.round_up_trips,
        "between": lambda ends: formats.format_interval(*ends),
        "interval_and_word": lambda number_and_ends: formats.format_interval_and_word(*number_and_ends),
        "reliability": lambda number_and_ends: formats.choose_reliability_word(*number_and_ends),
    }
    environment.tests["identifier"] = lambda value: isinstance(value, str) and _IDENTIFIER.fullmatch(value) is not None
    environment.globals |= {"language": language}
    environment.globals |= {"shades": formats.SHADES, "ink": formats.INK}
    environment.globals |= {"paper": formats.PAPER, "accent": formats.ACCENT, "muted": formats.MUTED}
    return environment


def render_template(name: str, /, **values: object) -> str:
    """Return the text of a template, filled in with values. The same values give the same text.

    ``name`` is that of a file in ``publication/templates``. The nouns of the release are added to the values.
    """
    _, _, ending = name.rpartition(".")
    return _make_environment(ending, get_language()).get_template(name).render(_add_subject(values))


def render_markup(name: str, /, **values: object) -> Markup:
    """Return the text of a template that escapes its values, as markup that a page can hold."""
    return Markup(render_template(name, **values))  # noqa: S704 - the template escapes its values


def make_data_url(picture: Markup) -> str:
    """Return a data URL that contains an SVG picture, for programs that accept only the address of a picture."""
    document = str(picture).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"data:image/svg+xml;base64,{base64.b64encode(document.encode()).decode()}"


def capitalise(text: str) -> str:
    """Return a text with a capital letter at its beginning; all other letters stay."""
    return text[:1].upper() + text[1:]


def format_sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop; an empty text stays empty."""
    return capitalise(text) + ("" if not text or text.endswith(".") else ".")


def render_data(name: str, /, **values: object) -> Any:
    """Return the data of a JSON or YAML template, filled in with values.

    In YAML, every text is a template. The parts of a mapping are filled in in their order, and each may use the parts
    before it by their names. White space becomes one space, and lines that are not blank are kept. A value that is
    marked as ``!fact`` is an expression, and is replaced by its result. If the result is None, its name is left out.
    """
    if name.endswith(".json"):
        return json.loads(render_template(name, **values))
    return _render_part(_read_yaml_template(name), _add_subject(values))


def render_clauses(subject: Subject) -> dict[str, str]:  # a filter
    """Return clauses on what one privacy unit of a subject is, and on the protected change, by name."""
    return dict(render_data("subject.yaml", subject=subject))


def _add_subject(values: dict[str, object]) -> dict[str, object]:
    """Return the values of a template with its ``subject``, and with the ``nouns`` of this subject.

    If the values have no subject, it is read from their ``certificate``. Without either, nothing is added.
    """
    certificate = values.get("certificate")
    if "subject" in values:
        subject = cast("Subject", values["subject"])
    elif isinstance(certificate, Mapping):
        subject = read_subject(cast("Certificate", certificate))
    else:
        return values
    return {"subject": subject, "nouns": subject.nouns, **values}


@dataclass(frozen=True)
class _Fact:
    """An expression in a YAML template, which is replaced by its result."""

    expression: str


class _Loader(yaml.SafeLoader):
    """A safe loader of YAML that reads the mark ``!fact`` as a :class:`_Fact`."""


_Loader.add_constructor("!fact", lambda _, node: _Fact(str(node.value)))


@cache
def _read_yaml_template(name: str) -> object:
    """Return the data of a YAML template, whose texts are not filled in."""
    text = (files("od_core.publication") / "templates" / name).read_text(encoding="utf-8")
    return yaml.load(text, _Loader)  # noqa: S506 - a safe loader with one mark


@cache
def _compile_template(text: str, language: str) -> Template:
    """Return a text of a YAML template in a language, which is the one used at the time, compiled."""
    return _make_environment("yaml", language).from_string(translate_source(text, "yaml"))


def _render_part(part: object, values: dict[str, object]) -> object:
    """Return a part of the data of a YAML template, filled in with values; see :func:`render_data`."""
    language = get_language()
    if isinstance(part, str):
        if "{" not in part:
            return translate(part)
        lines = [" ".join(line.split()) for line in _compile_template(part, language).render(values).splitlines()]
        return "\n".join(line for line in lines if line)
    if isinstance(part, _Fact):
        return _make_environment("yaml", language).compile_expression(part.expression, undefined_to_none=False)(values)
    if isinstance(part, list):
        return [_render_part(item, values) for item in part]
    if not isinstance(part, dict):
        return part
    filled: dict[str, object] = {}
    for name, item in part.items():
        value = _render_part(item, values | filled)
        if value is not None or not isinstance(item, _Fact):
            filled[name] = value
    return filled
