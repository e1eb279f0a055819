"""Text as Markdown: whatever a name holds is shown as it is, and is no markup, link or HTML."""

from __future__ import annotations

import html
import re

_MARKUP = re.compile(r"[\\`*{}\[\]|~#!$]|(?<!\w)_|_(?!\w)|(?<=www)\.|:(?=//)|(?<=\w)@(?=\w)")
"""Marks that may begin or end markup within a line, and those by which readers find addresses in plain text.

A dollar sign begins a formula for some readers.
"""

_FIRST = re.compile(r"^(\d*)([-+=.)])")
"""What begins a list, a rule or the line below a heading, at the beginning of a line."""


def in_markdown(text: str) -> str:
    """Return text as Markdown that reads as the text, in one line.

    Any mark of punctuation may follow a backslash. The marks of HTML stand as what HTML has for them, so that no reader
    takes them for tags, whether it knows of backslashes or not.

    References:
        CommonMark 0.31.2, sections 2.4 and 2.5; GitHub Flavored Markdown 0.29, sections 4.10 and 6.9.
    """
    escaped = html.escape(_MARKUP.sub(r"\\\g<0>", " ".join(text.split())), quote=False)
    return _FIRST.sub(r"\1\\\2", escaped)
