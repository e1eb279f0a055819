"""What an HTML page loads or names: read with Python's parser, not with expressions of ours on the whole page."""

import re
from html.parser import HTMLParser
from pathlib import Path

_LOADING = {"src", "srcset", "data", "poster", "background", "formaction", "action", "manifest", "xlink:href"}
"""Attributes whose address a browser asks for, of any element."""

_IN_STYLE = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")
_ADDRESS = re.compile(r"(?:\bhttps?:|\bwss?:)?//[\w-]+(?:\.[\w-]+)+", re.IGNORECASE)
_NAMESPACE = re.compile(r"http://www\.w3\.org/(?:XML/)?\d{4}/\w+")
"""Name of a kind of XML, which looks like an address."""


class _Page(HTMLParser):
    """The addresses of a page that a browser loads, and those that it offers as links."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.loaded: list[str] = []
        self.links: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        runs = tag == "script" and dict(attrs).get("type") in (None, "module", "text/javascript")  # others are data
        self._inside = tag if tag == "style" or runs else ""
        for name, value in attrs:
            if name == "href":
                (self.links if tag in ("a", "area") else self.loaded).append(value or "")
            elif name in _LOADING:
                self.loaded.append(value or "")
            elif name == "style":
                self._read_style(value or "")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            self._read_style(data)
        elif self._inside == "script":
            self.loaded += _ADDRESS.findall(_NAMESPACE.sub("", data))

    def _read_style(self, style: str) -> None:
        self.loaded += [address or other for address, other in _IN_STYLE.findall(style)]


def _read(page: Path) -> _Page:
    parser = _Page()
    parser.feed(page.read_text(encoding="utf-8"))
    parser.close()
    return parser


def loaded_by(page: Path) -> list[str]:
    """The addresses of other hosts that a page loads something from, scripts included."""
    return [address for address in _read(page).loaded if _ADDRESS.match(address)]


def addresses_in(page: Path) -> list[str]:
    """The addresses of other hosts that a page loads something from or links to."""
    return [*loaded_by(page), *(address for address in _read(page).links if _ADDRESS.match(address))]
