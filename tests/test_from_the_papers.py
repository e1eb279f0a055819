"""The page on the four papers: all that it names exists, no cell is empty, and no figure of a paper is left out."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown.extensions.toc import slugify

import od_core
from od_assets.cli.app import COMMANDS
from od_core.evaluation.known_flows import synthetic_data_sets
from od_core.flows.mechanisms import MECHANISMS
from od_core.group_sizes.mechanisms import MECHANISMS as OF_GROUP_SIZES
from od_core.privacy.accounting import CONVERSIONS
from od_core.stops.mechanisms import MECHANISMS as OF_STOPS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "from-the-papers.md"
SECTIONS = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]

NUMBERED = [
    {"Figure": 6, "Table": 1, "Algorithm": 4, "Section": 6},
    {"Figure": 6, "Table": 0, "Algorithm": 2, "Section": 7},
    {"Figure": 9, "Table": 7, "Algorithm": 2, "Section": 12, "Model": 3, "Theorem": 5, "Lemma": 7},
    {"Figure": 8, "Table": 3, "Algorithm": 3, "Section": 7},
]
"""How many of each kind a paper has, in the order of the page: Boninsegna, Kuo, Fioretto, Shaham."""

KNOWN = {
    *(name for mechanisms in (MECHANISMS, OF_GROUP_SIZES, OF_STOPS) for name in mechanisms),
    *(*synthetic_data_sets(), *CONVERSIONS, "exact"),
}
"""Names that are neither of functions nor of files: mechanisms, data sets and accounting methods."""


def rows(section: str) -> list[list[str]]:
    """The rows of the only table of a section, without its head."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def numbers(kind: str, text: str) -> set[int]:
    """The whole numbers after a kind, in the singular or the plural: ``Figures 4 to 6``, ``Sections 1, 2 and 4.1``."""
    found: set[int] = set()
    for listed in re.findall(rf"\b{kind}s? ((?:\d+(?:\.\d+)*(?:, | and | to )?)+)", text):
        for first, last in re.findall(r"(\d+)(?:\.\d+)*(?: to (\d+))?", listed):
            found |= set(range(int(first), int(last or first) + 1))
    return found


def spans() -> Iterator[str]:
    yield from re.findall(r"`([^`]+)`", "".join(SECTIONS))


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as the documentation site makes them, and of its documented names."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        stated = re.search(r"\{ #([\w-]+) \}", heading)
        found.add(stated[1] if stated else slugify(heading.replace("`", ""), "-"))
    return found | set(re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE))


def named(dotted: str) -> Any:
    """The object with a dotted name. Raises ImportError or AttributeError if there is none."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise ImportError(dotted)


def exists(span: str) -> bool:
    """Whether what a span of code names exists; for a command, its options as well."""
    program, _, rest = span.partition(" ")
    words = rest.split()
    if program == "make":
        return re.search(rf"^{rest}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE) is not None
    if program == "od-release":
        return " ".join(words) in COMMANDS
    if program == "python":
        source = ROOT / f"{words[1].replace('.', '/')}.py"
        return source.exists() and all(f'"{word}"' in source.read_text("utf-8") for word in words if word[:2] == "--")
    if re.fullmatch(r"[A-Z]\w+\(.*\)", span):
        call = ast.parse(span, mode="eval").body
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Name)
        not_public = {kind.__name__: kind for kind in OF_GROUP_SIZES.values()}
        kind = not_public.get(call.func.id) or getattr(od_core, call.func.id)
        options = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        return kind(*map(ast.literal_eval, call.args), **options) is not None  # raises if it refuses its arguments
    if re.fullmatch(r"(od_core|od_assets|benchmarks)(\.\w+)+", span):
        return named(span) is not None
    return span in KNOWN or ("/" in span and (ROOT / span).exists())


def test_the_four_papers_have_tables_without_empty_cells() -> None:
    assert len(SECTIONS) == len(NUMBERED)
    for section in SECTIONS:
        assert len(rows(section)) > 10
        assert [row for row in rows(section) if len(row) != 4 or not all(row)] == []


@pytest.mark.parametrize("paper", range(4))
def test_every_numbered_thing_of_a_paper_has_a_row(paper: int) -> None:
    text = "\n".join(row[0] for row in rows(SECTIONS[paper]))
    for kind, number in NUMBERED[paper].items():
        assert (kind, numbers(kind, text)) == (kind, set(range(1, number + 1)))


def test_every_name_and_command_of_the_page_exists() -> None:
    assert [span for span in spans() if not exists(span)] == []


def test_every_link_of_the_page_leads_somewhere() -> None:
    broken = []
    for link in re.findall(r"\]\(([^)]+)\)", PAGE.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        page = PAGE.parent / path
        if not page.is_file() or (anchor and anchor not in anchors(page)):
            broken.append(link)
    assert broken == []
