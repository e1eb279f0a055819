"""Write text as Markdown that shows names unchanged, with no markup, links or HTML in them."""

from __future__ import annotations

import html
import re

_MARKUP = re.compile(r"[\\`*{}\[\]|~#!$]|(?<!\w)_|_(?!\w)|(?<=www)\.|:(?=//)|(?<=\w)@(?=\w)")
"""Marks that may begin or end markup within a line, and marks by which readers find addresses in plain text.

A dollar sign begins a formula for some readers.
"""

_FIRST = re.compile(r"^(\d*)([-+=.)])")
"""Marks that begin a list, a rule or a heading underline, at the start of a line."""


def in_markdown(text: str) -> str:
    """Return text as Markdown that displays as that text, in one line.

    Any punctuation mark may follow a backslash. HTML characters become entities, so that no reader takes them for tags,
    even one that does not know backslash escapes.

    References:
        CommonMark 0.31.2, sections 2.4 and 2.5; GitHub Flavored Markdown 0.29, sections 4.10 and 6.9.
    """
    escaped = html.escape(_MARKUP.sub(r"\\\g<0>", " ".join(text.split())), quote=False)
    return _FIRST.sub(r"\1\\\2", escaped)
