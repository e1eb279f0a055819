"""Fill in the templates of pages and documents, which lie in ``publication/templates``.

A template holds the words and the layout. A function passes to it the facts of a release, as numbers, texts and lists;
it decides nothing that a template can decide. A template whose name ends in ``.html`` escapes every value that is not
``Markup``, so an area code or a name in the data cannot inject markup. A name that is not passed is an error.
"""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("od_core.publication", "templates"),
        autoescape=select_autoescape(("html",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def filled(name: str, **values: object) -> str:
    """Return the text of a template, filled in with values. The same values give the same bytes."""
    return _templates().get_template(name).render(values)


def filled_markup(name: str, **values: object) -> Markup:
    """Return an HTML template, filled in with values, as markup that a page can hold."""
    return Markup(filled(name, **values))  # noqa: S704 - the template escapes its values
