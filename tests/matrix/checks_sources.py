"""What no row of the matrix shows: facts that templates read out of sentences, pages without content, shipped words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.matrix.findings import Finding

ROOT = Path(__file__).parents[2]
ROW = "00-sources"
"""Name of the row of these findings in the list of known ones."""

_READ = re.compile(
    r"""["'][^"']+["'] (?:not )?in [\w.]*(?:guarantee|said)\b[\w.]*|(?:guarantee|said)\.\w+ *\| *replace\("""
)


def facts_out_of_sentences() -> Iterator[Finding]:
    """Yield each template that looks for words in a sentence, or edits one that is finished."""
    for path in sorted((ROOT / "od_core/publication/templates").rglob("*")):
        if path.is_file() and path.suffix in (".html", ".yaml", ".md", ".txt", ".json"):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                if found := _READ.search(line):
                    yield Finding(path.name, "a fact is read out of a sentence", f"line {number}: {found[0]}")


def pages_without_content() -> Iterator[Finding]:
    """Yield each page of the documentation that has a comment where its table should be."""
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for comment in re.findall(r"^<!-- *(\w+) *-->$", path.read_text(encoding="utf-8"), re.MULTILINE):
            yield Finding(str(path.relative_to(ROOT)), "a comment in place of a table", comment)


def words_of_shipped_series() -> Iterator[Finding]:
    """Yield each shipped series that describes other things than trips, and does not say that it counts them."""
    for path in sorted((ROOT / "od_assets/defs").glob("*/defs.yaml")):
        about = (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).get("attributes", {}).get("about") or {}
        described = f"{about.get('title', '')} {about.get('description', '')}"
        if about and "counted" not in about and not re.search(r"\btrips?\b", described, re.IGNORECASE):
            yield Finding(
                str(path.relative_to(ROOT)), "what is counted is described, and not declared", described.strip()
            )


CHECKS = (facts_out_of_sentences, pages_without_content, words_of_shipped_series)
