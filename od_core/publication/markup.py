"""Write text and pictures for Markdown."""

from __future__ import annotations

import base64
import html
import re

from markupsafe import Markup


def data_address(picture: Markup) -> str:
    """Return a data URL that contains an SVG picture, for programs that accept only the address of a picture."""
    alone = str(picture).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"data:image/svg+xml;base64,{base64.b64encode(alone.encode()).decode()}"


_MARKUP = re.compile(r"[\\`*{}\[\]|~#!$]|(?<![^\W_])_|_(?![^\W_])|(?<=www)\.|:(?=//)|(?<=\w)@(?=\w)")
"""Pattern of characters that may begin or end markup, a link or (in some programs) a formula.

An underscore begins none between two letters or digits, as in `origin_level`.
"""

_FIRST = re.compile(r"^(\d*(?=[.)](?:\s|$)))?([-+=.)])")
"""Pattern of characters that begin a list, a rule or a heading underline, at the start of a line."""


def in_markdown(text: str) -> str:
    """Return one line of Markdown that is displayed as the given text.

    Any punctuation mark may follow a backslash. HTML characters become entities, so that no program treats them as
    tags, even a program that does not support backslash escapes.

    References:
        CommonMark 0.31.2, sections 2.4 and 2.5; GitHub Flavored Markdown 0.29, sections 4.10 and 6.9.
    """
    escaped = html.escape(_MARKUP.sub(r"\\\g<0>", " ".join(text.split())), quote=False)
    return _FIRST.sub(r"\1\\\2", escaped)
