"""The documentation: what stands in it and what it is about agree. ``make docs`` finds lost pages and broken links."""

import ast
import functools
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import od_core
from od_core import OdError
from od_core.meaning.features import read_support

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
ENTRY = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
CITED = re.compile(r"\[([a-z]+\d{4}[a-z]+)(?:, [^\]]*)?(?:; ([a-z]+\d{4}[a-z]+))?\]")


@functools.cache
def hooks() -> dict[str, Any]:
    """The functions of the site's hooks, which import their neighbours as MkDocs lets them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        functions = runpy.run_path(str(DOCS / "hooks.py"))
    codes = functions["error_codes"]
    codes.raised = functools.cache(codes.raised)  # it parses all sources
    return functions


def public_names() -> list[str]:
    """The names of ``__all__`` of od_core, read from its stub: nothing is imported."""
    tree = ast.parse((ROOT / "od_core" / "__init__.pyi").read_text(encoding="utf-8"))
    listed = [node.value for node in tree.body if isinstance(node, ast.Assign) and "__all__" in ast.unparse(node)]
    return list(ast.literal_eval(listed[0]))


def test_every_public_name_is_documented_once_and_nothing_else():
    entries = [entry for page in PAGES for entry in ENTRY.findall((DOCS / page).read_text(encoding="utf-8"))]
    assert sorted(entries) == sorted(f"od_core.{name}" for name in public_names())


def test_every_public_name_has_an_example_that_runs():
    """Those in docstrings run as tests, with the names of the tour in ``od_core``."""
    assert [name for name in public_names() if ">>>" not in (getattr(od_core, name).__doc__ or "")] == []


def test_the_first_example_of_the_library_runs_as_it_stands(capsys):
    text = (DOCS / "reference" / "library.md").read_text(encoding="utf-8")
    exec(text.split("```python\n")[1].split("```")[0], {})  # noqa: S102  # of our own documentation
    assert "expected_error" in capsys.readouterr().out


def test_every_source_that_is_cited_is_listed_and_every_one_listed_is_cited():
    listed = set(re.findall(r"^@\w+\{(\w+),", (DOCS / "references.bib").read_text(encoding="utf-8"), re.MULTILINE))
    folders = [ROOT / name for name in ("od_core", "od_assets", "benchmarks", "examples", "tests")]
    texts = [*DOCS.rglob("*.md"), *(file for folder in folders for file in folder.rglob("*.py"))]
    cited: set[str] = set()
    for path in texts:
        for found in CITED.findall(path.read_text(encoding="utf-8")):
            cited |= set(filter(None, found))
    assert cited == listed


def test_code_and_other_documents_name_files_of_the_documentation_that_exist():
    folders = [ROOT / name for name in ("od_core", "od_assets", "benchmarks", "tests", ".ci")]
    single = [ROOT / name for name in ("Makefile", "pyproject.toml", "README.md", "CONTRIBUTING.md", "SECURITY.md")]
    files = [*single, *(path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".md", ""))]
    named = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in files
        if path.is_file() and "__pycache__" not in path.parts
        for name in re.findall(r"\bdocs/([\w./-]*[\w-]\.(?:md|svg|png|py|bib|json))\b", path.read_text("utf-8"))
    }
    assert sorted((path, name) for path, name in named if not (DOCS / name).exists()) == []


@pytest.mark.parametrize("made", ["commands", "components", "domain"])
def test_every_command_option_and_key_has_a_meaning(made):
    lines = list(hooks()[made]())
    rows = [line.split(" | ") for line in "\n".join(lines).splitlines() if line.startswith("| `")]
    assert len(rows) > 5
    assert [row[0] for row in rows if not row[-1].strip(" |")] == []
    sections = re.findall(r"\n#+ ([^\n]*)\n\n([^\n]*)", "\n".join(lines))
    assert [title for title, text in sections if not text.strip()] == []


def test_pages_have_what_the_code_says():
    """If this fails, run ``make pages``."""
    functions, comments = hooks(), list[str]()
    for page in PAGES:
        text = (DOCS / page).read_text("utf-8")
        assert functions["fill_page"](text) == text, page
        comments += re.findall(r"^<!-- (\w+) -->$", text, re.M)
    assert sorted(comments) == sorted([*functions["MADE"], *["end"] * len(functions["MADE"])])


def test_what_a_page_says_besides_is_replaced():
    fill_page = hooks()["fill_page"]
    page = "# T\n\n<!-- estimators -->\nOld.\n<!-- end -->\n\nRest.\n"
    filled = fill_page(page)
    assert "Old" not in filled
    assert filled.startswith("# T\n\n<!-- estimators -->\n\n| rule |")
    assert filled.endswith("|\n\n<!-- end -->\n\nRest.\n")
    assert fill_page(filled) == filled


def test_every_error_code_of_the_source_is_listed_below_its_class():
    page = "\n".join(hooks()["errors"]())
    listed = {}
    for section in page.split("\n## ")[1:]:
        name, _, rows = section.partition("\n")
        listed |= dict.fromkeys(re.findall(r"^\| `(OD-[A-Z0-9-]+)`", rows, re.MULTILINE), name)
    files = [path for package in ("od_core", "od_assets") for path in (ROOT / package).rglob("*.py")]
    codes = {code for path in files for code in re.findall(r'"(OD-[A-Z0-9-]+)"', path.read_text("utf-8"))}
    codes |= {row.code for row in read_support().refusals}
    assert codes == set(listed)
    assert {code: type(OdError(code, "", next_step="")).__name__ for code in codes} == listed
    assert "OdError" not in listed.values()
