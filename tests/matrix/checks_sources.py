"""What no row shows: templates, documentation, shipped series, and texts of commands on a whole project."""

import re
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import yaml

from od_assets.cli.printing import print_status
from od_assets.failures import describe_failures
from od_assets.runs.period_status import read_release_status
from od_assets.terminal import console
from od_core.ledger.release_key import ReleaseKey
from tests.matrix.checks_words import untrue_claims
from tests.matrix.findings import Finding

ROOT = Path(__file__).parents[2]
ROW = "00-sources"
"""Name of the row of these findings in the list of known ones."""

_TEXTS = (".html", ".yaml", ".md", ".txt", ".json")
"""Ends of the names of templates with sentences."""

_READ = re.compile(
    r"""["'][^"']+["'] (?:not )?in [\w.]*(?:guarantee|said|clauses)\b(?!\w*\()[\w.]*"""
    r"""|["'][^"']+["'] (?:not )?in [\w.]+\[["']guarantee["']\]"""
    r"""|(?:guarantee|said|clauses)\.\w+ *\| *replace\("""
)
_OF_EARLY_CERTIFICATES = "certificate.py"
"""The program that reads certificates of early formats, which state some facts in sentences alone."""


def facts_out_of_sentences() -> Iterator[Finding]:
    """Yield each template and program that looks for words in a sentence, or edits one that is finished."""
    templates = sorted((ROOT / "od_core/publication/templates").rglob("*"))
    programs = [path for folder in ("od_core", "od_assets") for path in sorted((ROOT / folder).rglob("*.py"))]
    for path in [*templates, *programs]:
        if path.suffix in (*_TEXTS, ".py") and path.name != _OF_EARLY_CERTIFICATES:
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                if found := _READ.search(line):
                    yield Finding(path.name, "a fact is read out of a sentence", f"line {number}: {found[0]}")


def claims_of_documents() -> Iterator[Finding]:
    """Yield each claim of accuracy in a document or a template, also where no row has its sentence, as on a page."""
    guides = [path for folder in ("how-to", "tutorial") for path in sorted((ROOT / "docs" / folder).glob("*.md"))]
    templates = [path for path in (ROOT / "od_core/publication/templates").rglob("*") if path.suffix in _TEXTS]
    for path in (ROOT / "README.md", ROOT / "docs/index.md", *guides, *sorted(templates)):
        text = " ".join(path.read_text(encoding="utf-8").split())
        for what, claim in untrue_claims(text):
            yield Finding(str(path.relative_to(ROOT)), what, claim)


_RESOURCE = re.compile(r"resource `+(\w+)`")
_PLACE = re.compile(r"`((?:od_core|od_assets|docs|examples|benchmarks|deploy)/[a-z0-9_./-]+)`")
_CHECKOUT = "od_assets/defs"
"""Folder of the declarations of this checkout; a team has that of its own project."""


def names_in_documents() -> Iterator[Finding]:
    """Yield each resource, file and folder that a document or a docstring names, and that its reader does not have."""
    bound = {*re.findall(r'"(od_\w+)"', (ROOT / "od_assets/components/project.py").read_text(encoding="utf-8"))}
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("od_assets/**/*.py"))):
        page, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        for name in {*_RESOURCE.findall(text)} - bound:
            yield Finding(page, "a resource is named that no project has", name)
        if path.suffix == ".md":
            for place in _PLACE.findall(text):
                if not (ROOT / place).exists():
                    yield Finding(page, "a file or folder is named that there is not", place)
        if page.startswith("docs/how-to") and _CHECKOUT in text:
            yield Finding(page, "a guide for any project names a folder of the checkout", _CHECKOUT)


def pages_without_content() -> Iterator[Finding]:
    """Yield each page of the documentation that has a comment where its table should be."""
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for comment, text in re.findall(
            r"^<!-- *(\w+) *-->$(.*?)(?=^<!-- *\w+ *-->$|\Z)",
            path.read_text(encoding="utf-8"),
            re.MULTILINE | re.DOTALL,
        ):
            if comment != "end" and len(text.split()) < 20:
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


def status_of_many_periods() -> Iterator[Finding]:
    """Yield a finding if sixty days that wait for their files take more than a few rows of a status."""
    rows = []
    for number in range(60):
        key = ReleaseKey("trips", (date(2001, 1, 1) + timedelta(number)).isoformat())
        rows.append(
            read_release_status(key, None)
            | {"state": "waits", "waits_for": f"{key.period}.csv", "settings_changed": []}
        )
    with console.capture() as captured:
        print_status(rows)
    if (lines := len(captured.get().splitlines())) > 20:
        yield Finding("status", "periods that wait have a row each", f"{lines} lines of 60 days")


def failed_check_of_what_is_published() -> Iterator[Finding]:
    """Yield a finding if a published file that has changed is announced as if nothing had been published."""
    failed = SimpleNamespace(
        asset_key=SimpleNamespace(to_user_string=lambda: "trips/release"),
        severity=dg.AssetCheckSeverity.ERROR,
        check_name="stays_as_published",
        description="The published files are as they were.",
        passed=False,
    )
    event: Any = SimpleNamespace(event_type=_evaluation(), asset_check_evaluation_data=failed)
    for line in describe_failures([event], "trips"):
        if "nothing was published" in line:
            yield Finding("run", "a changed published file is announced as nothing published", line)


def _evaluation() -> Any:
    import dagster as dg  # slow to import, and of this check alone

    return dg.DagsterEventType.ASSET_CHECK_EVALUATION
