"""The terminal: a name that is printed is text, which neither styles nor moves anything."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from od_assets.project import var_folder
from od_core.errors import OdError


def printable(text: str) -> str:
    r"""Return the text with every character that cannot be printed, line feeds apart, written as ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(sign if sign == "\n" or sign.isprintable() else repr(sign)[1:-1] for sign in text)


class PlainConsole(Console):
    """A console to which a string is text: no markup, no codes of pictures, and nothing that a terminal obeys.

    Levels, files and folders may have names that mean something to rich or to a terminal. What we style ourselves is a
    :class:`rich.text.Text` of our own words.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a string as rich prints it, also in tables and titles."""
        return super().render_str(printable(text), **options)


# Confidential: what errors know beyond their public parts, where the command line meets them.


def keep_detail_of(error: OdError) -> None:
    """Write it into the confidential folder, and its place into the next step; without a detail nothing is made."""
    if error.confidential_detail is not None:
        from od_core.ledger.confidential import ConfidentialFolder

        ConfidentialFolder(var_folder() / "confidential").keep_detail_of(error)
