"""The sentences of a file as a reader sees them: without markup, code, and names of files and columns."""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from zipfile import ZipFile

_INLINE = {"a", "abbr", "b", "bdi", "em", "i", "q", "small", "span", "strong", "sub", "sup", "tspan"}
_CODE = {"code", "kbd", "pre", "samp"}
_SHOWN = {"alt", "aria-label", "content", "data-counted", "data-of", "placeholder", "title"}
"""Attributes whose text is shown or read aloud."""

_FENCE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
_NAME = re.compile(r"\S*(?:\w[/_]\w|\.(?:parquet|csv|json|html|md|omx|xlsx|gpkg|geojson|xml|txt|zip|py|sqlite))\S*")
"""A name of a file, of a column or of a function."""

_QUOTED = re.compile(r'"((?:[^"\\\n]|\\.){8,300})"|`((?:[^`\\\n]|\\.){8,300})`')
CODE = "…"
"""What stands in place of code."""


class _Page(HTMLParser):
    """The blocks of text of a page, and of its attributes; scripts are kept apart."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[str] = [""]
        self.scripts: list[tuple[str, str]] = []
        self._hidden: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "style"):
            self.scripts.append((given.get("type") or tag, ""))
            self._hidden.append(tag)
        elif tag in _CODE:
            self.blocks[-1] += CODE
            self._hidden.append(tag)
        elif tag not in _INLINE:
            self.blocks.append("")
        is_code = tag == "meta" and (given.get("name") or "") not in ("description", "title")
        shown = [value for name, value in attrs if name in _SHOWN and value and not is_code]
        self.blocks[:-1] = [*self.blocks[:-1], *shown]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._hidden and tag == self._hidden[-1]:
            self._hidden.pop()
        elif tag not in _INLINE:
            self.blocks.append("")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.blocks[-1] += data
        elif self._hidden[-1] in ("script", "style"):
            kind, text = self.scripts[-1]
            self.scripts[-1] = kind, text + data


def of_html(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the blocks of a page, and its scripts and styles with their types."""
    page = _Page()
    page.feed(text)
    page.close()
    return [text for block in page.blocks if (text := " ".join(block.split()))], page.scripts


def of_markdown(text: str) -> list[str]:
    """Return the paragraphs, rows and headings of Markdown or plain text."""
    lines = re.split(r"\n(?=\s*[|#*-])|\n\s*\n", _FENCE.sub(CODE, text))
    return [re.sub(r"\s*\n\s*", " ", line) for line in lines if line.strip(" |-:#")]


def of_json(value: Any) -> Iterator[str]:
    """Yield the texts of several words in a document of JSON or YAML."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list):
        for each in value:
            yield from of_json(each)
    elif isinstance(value, str) and " " in value.strip():
        yield from of_markdown(value)


@lru_cache(maxsize=8)
def of_program(text: str) -> tuple[str, ...]:
    """Return the quoted texts of a program that are words: some letters and spaces, and no signs of a program."""
    found = []
    for match in _QUOTED.finditer(text):
        quoted = match[1] or match[2]
        words = re.sub(r"\$\{[^}]*\}", CODE, quoted)
        if len(re.findall(r"\b[a-z]{2,}\b", words)) > 1 and not re.search(r"[;{}=<>\[\]]|\w\.\w|\(\w*\)", words):
            found.append(words)
    return (*found,)


def of_workbook(path: Path) -> Iterator[str]:
    """Yield the texts of the cells and the names of the sheets of a workbook."""
    with ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".xml"):
                text = archive.read(name).decode()
                yield from re.findall(r'<sheet [^>]*name="([^"]*)"', text)
                yield from (cell for cell in re.findall(r"<t[^>]*>([^<]*)</t>", text) if " " in cell.strip())


def of_file(path: Path) -> list[str]:
    """Return the blocks of text of a public file; none of a table, which has numbers and codes alone."""
    if path.suffix in (".html", ".svg"):
        blocks, scripts = of_html(path.read_text(encoding="utf-8"))
        for kind, text in scripts:
            if kind.endswith("json"):
                blocks += of_json(json.loads(text))
            elif kind in ("script", "module", "text/javascript"):
                blocks += of_program(text)
        return blocks
    if path.name.endswith((".schema.json", "openapi.json")) or path.suffix in (".geojson", ".csv"):
        return []
    if path.suffix in (".json", ".jsonld"):
        return [*of_json(json.loads(path.read_text(encoding="utf-8")))]
    if path.suffix in (".md", ".txt", ".yaml"):
        return of_markdown(path.read_text(encoding="utf-8"))
    if path.suffix in (".xml", ".atom"):
        return [text for text in re.findall(r">([^<>]+)<", path.read_text(encoding="utf-8")) if text.strip()]
    return [*of_workbook(path)] if path.suffix == ".xlsx" else []


def words_of(block: str) -> str:
    """Return a block without code and names of files and columns."""
    return _NAME.sub(CODE, _FENCE.sub(CODE, block))
