"""The claims of ``docs/explanation/assurance.md`` name sources, tests and planted defects, and all of them exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "assurance.md").read_text(encoding="utf-8")
CLAIMS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| **")]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_claim_names_a_source_tests_and_the_defects_that_they_find():
    assert len(CLAIMS) >= 20
    for name, source, tests, defects in CLAIMS:
        assert source.strip(), name
        for cell in (tests, defects):
            assert TEST.findall(cell), name
            assert cell.count("`") == 2 * len(TEST.findall(cell)), name  # nothing is named in another way


def test_every_test_and_page_that_is_named_exists():
    defined = {
        file: set(re.findall(r"^(?:    )?def (\w+)\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE))
        for file in {file for file, _ in TEST.findall(PAGE)}
    }
    assert [(file, name) for file, name in TEST.findall(PAGE) if name not in defined[file]] == []
    pages = set(re.findall(r"\]\(([^)#]+)", PAGE))
    assert [page for page in pages if not (ROOT / "docs" / "explanation" / page).exists()] == []
