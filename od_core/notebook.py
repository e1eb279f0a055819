"""Show objects in notebooks, as small tables of HTML by one template that escapes every text, or show no value."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Template


class Confidential:
    """An object whose text shows none of its values. Data classes that inherit from it need ``repr=False``."""

    def __repr__(self) -> str:
        """Return the name of the class, without any value."""
        return f"{type(self).__name__}(confidential)"


class Shown:
    """An object that a notebook shows as a table of names and texts: by default, of its fields that are not None."""

    def _list_notebook_facts(self) -> Mapping[str, object]:
        """Return the values to show, by name. All of them must be public."""
        return {name.replace("_", " "): value for name, value in vars(self).items() if value is not None}

    def _render_picture(self) -> str:
        """Return markup of a picture to show below the table; by default, an empty text."""
        return ""

    def _repr_html_(self) -> str:
        """Return the HTML that Jupyter shows: a table of the facts, and the picture."""
        rows = {name: _format_value(value) for name, value in self._list_notebook_facts().items()}
        return _load_template().render(what=type(self).__name__, rows=rows, picture=self._render_picture())


def _format_value(value: object) -> str:
    """Return a value as text; a fraction as a decimal number if 12 significant digits state it exactly."""
    if isinstance(value, Fraction):
        decimal = f"{float(value):.12g}"
        if Fraction(decimal) == value:
            return decimal
    return str(value)


@cache
def _load_template() -> Template:
    """Return the template of the table; see :class:`Shown`."""
    from jinja2 import Environment, PackageLoader  # a notebook alone needs it

    return Environment(autoescape=True, loader=PackageLoader("od_core.publication")).get_template("notebook.html")
