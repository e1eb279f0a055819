"""Build HTML and SVG as text; anything that is not already markup is escaped, so no code or name can be markup."""

from __future__ import annotations

import base64
import html


class Markup(str):
    """A string that is markup, so it is not escaped again."""

    __slots__ = ()


def escaped(content: object) -> str:
    """Return markup unchanged, and anything else as text that is safe between tags and in attributes."""
    return content if isinstance(content, Markup) else html.escape(str(content))


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """Return an element of HTML or SVG.

    Args:
        tag: its name.
        content: text, numbers or markup.
        attributes: ``class_`` becomes ``class``, ``stroke_width`` becomes ``stroke-width``; None leaves one out.
    """
    stated = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{stated}>{''.join(map(escaped, content))}</{tag}>")


def data_address(picture: Markup) -> str:
    """Return an address that contains a whole SVG picture, for programs that show pictures by address only."""
    alone = picture.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"data:image/svg+xml;base64,{base64.b64encode(alone.encode()).decode()}"


def joined(*parts: object) -> Markup:
    """Return parts joined in order."""
    return Markup("".join(map(escaped, parts)))
