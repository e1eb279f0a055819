"""Print to the terminal safely, so that markup and control codes in names of areas and files have no effect."""

import json
import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from od_assets.project import find_current_project
from od_core.errors import OdError


def escape_unprintable(text: str) -> str:
    r"""Return the text with every unprintable character, except line feeds, written as an escape such as ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(sign if sign == "\n" or sign.isprintable() else repr(sign)[1:-1] for sign in text)


class PlainConsole(Console):
    """A console that prints strings as plain text, without markup, emoji codes and control characters.

    Names of levels, files and folders may contain markup of the library rich, or codes that a terminal executes. Only
    text written in this project is styled, as :class:`rich.text.Text`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **{"highlight": False} | options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a string as unstyled text. The library rich calls this method for every string that it shows."""
        return super().render_str(escape_unprintable(text), **options)


console = PlainConsole(width=None if sys.stdout.isatty() else 120)


def print_json(facts: object) -> None:
    """Print the result of a command as JSON, for programs."""
    print(json.dumps(facts, indent=2))


WRONG = "bold red"
"""Style of faults on the terminal."""


def move_detail_to_file(error: OdError) -> None:
    """Write any confidential detail of an error to a file that only the owner can read, named in its next step."""
    if error.confidential_detail is not None:
        from od_core.ledger.confidential import ConfidentialFolder

        ConfidentialFolder(find_current_project().var / "confidential").move_detail_to_file(error)
