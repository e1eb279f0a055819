"""Fill in the templates of pages and documents, which lie in ``publication/templates``.

A template holds the words and the layout. A function passes to it the facts of a release, as numbers, texts and lists;
it decides nothing that a template can decide. A template whose name ends in ``.html`` escapes every value that is not
``Markup``, so an area code or a name in the data cannot inject markup; so do those of pictures (``.svg``) and ``.xml``.
A name that is not passed is an error. Templates write numbers with the filters of
:mod:`od_core.publication.number_formats`.
"""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from od_core.privacy.accounting import text_above
from od_core.publication import number_formats as formats


@cache
def _templates() -> Environment:
    environment = Environment(
        extensions=["jinja2.ext.do"],
        loader=PackageLoader("od_core.publication", "templates"),
        autoescape=select_autoescape(("html", "svg", "xml")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    written = (formats.number, formats.signed, formats.rounded, formats.percent, formats.fixed, formats.part_of)
    environment.filters |= {function.__name__: function for function in written}
    environment.filters["above"] = text_above
    environment.filters["between"] = lambda ends: formats.between(*ends)
    environment.globals |= {"shades": formats.SHADES, "ink": formats.INK}
    environment.globals |= {"paper": formats.PAPER, "accent": formats.ACCENT, "muted": formats.MUTED}
    return environment


def filled(name: str, **values: object) -> str:
    """Return the text of a template, filled in with values. The same values give the same bytes."""
    return _templates().get_template(name).render(values)


def filled_markup(name: str, **values: object) -> Markup:
    """Return an HTML template, filled in with values, as markup that a page can hold."""
    return Markup(filled(name, **values))  # noqa: S704 - the template escapes its values
