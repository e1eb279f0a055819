"""HTML and SVG as text: whatever is not markup already is escaped, so that no code or name can be any."""

from __future__ import annotations

import base64
import html


class Markup(str):
    """Text that is markup."""

    __slots__ = ()


def escaped(content: object) -> str:
    """Markup as it is; anything else as text, safe between tags and in attributes."""
    return content if isinstance(content, Markup) else html.escape(str(content))


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """An element of HTML or SVG.

    Args:
        tag: its name.
        content: text, numbers, or markup.
        attributes: ``class_`` is ``class``, ``stroke_width`` is ``stroke-width``; None leaves one out.
    """
    stated = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{stated}>{''.join(map(escaped, content))}</{tag}>")


def data_address(picture: Markup) -> str:
    """An SVG picture as an address that holds it whole, for what shows pictures by address alone."""
    alone = picture.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"data:image/svg+xml;base64,{base64.b64encode(alone.encode()).decode()}"


def joined(*parts: object) -> Markup:
    """Parts one after the other."""
    return Markup("".join(map(escaped, parts)))
