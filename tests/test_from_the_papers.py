"""The page on the four papers: all that it names exists, and no cell is empty."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import od_core
from od_assets.cli.app import COMMANDS
from od_core.evaluation.known_flows import list_synthetic_data_sets
from od_core.flows.mechanisms import MECHANISMS
from od_core.group_sizes.mechanisms import MECHANISMS as OF_GROUP_SIZES
from od_core.privacy.accounting import CONVERSIONS
from od_core.stops.mechanisms import MECHANISMS as OF_STOPS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "from-the-papers.md"
SECTIONS = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]

KNOWN = {
    *(name for mechanisms in (MECHANISMS, OF_GROUP_SIZES, OF_STOPS) for name in mechanisms),
    *(*list_synthetic_data_sets(), *CONVERSIONS, "exact"),
}
"""Names that are neither of functions nor of files: mechanisms, data sets and accounting methods."""


def rows(section: str) -> list[list[str]]:
    """The rows of the only table of a section, without its head."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def spans() -> Iterator[str]:
    yield from re.findall(r"`([^`]+)`", "".join(SECTIONS))


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


def test_the_four_papers_have_tables_without_empty_cells():
    assert len(SECTIONS) == 4
    for section in SECTIONS:
        assert len(rows(section)) > 10
        assert [row for row in rows(section) if len(row) != 4 or not all(row)] == []


def test_every_name_and_command_of_the_page_exists():
    assert [span for span in spans() if not exists(span)] == []
