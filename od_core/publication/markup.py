"""Escape text for HTML and Markdown.

Every value that is not a ``Markup`` is escaped, so an area code or a name in the data cannot inject markup.
"""

from __future__ import annotations

import base64
import html
import re

from markupsafe import Markup, escape


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """Return an element of HTML or SVG.

    Args:
        tag: name of the element.
        content: text, numbers or markup.
        attributes: values by name. ``class_`` becomes ``class``, and ``stroke_width`` becomes ``stroke-width``.
            Attributes whose value is None are left out.
    """
    stated = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{stated}>{''.join(map(escape, content))}</{tag}>")  # noqa: S704 - both parts are escaped


def data_address(picture: Markup) -> str:
    """Return a data URL that contains an SVG picture, for programs that accept only the address of a picture."""
    alone = picture.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"data:image/svg+xml;base64,{base64.b64encode(alone.encode()).decode()}"


def joined(*parts: object) -> Markup:
    """Return the parts joined in order; parts that are not ``Markup`` are escaped."""
    return Markup("").join(map(escape, parts))


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
