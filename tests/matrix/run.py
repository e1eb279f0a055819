"""Run a row: make it, show its pages, and return what the checks find."""

from __future__ import annotations

from pathlib import Path

from tests.matrix import (
    checks_claims,
    checks_files,
    checks_numbers,
    checks_promises,
    checks_sentences,
    checks_sources,
    checks_words,
)
from tests.matrix.findings import Finding, Signature, signature
from tests.matrix.made import Made, make
from tests.matrix.options import Row
from tests.matrix.pages import Page, pages_of

CHECKS = (
    *checks_words.CHECKS,
    *checks_promises.CHECKS,
    *checks_numbers.CHECKS,
    *checks_claims.CHECKS,
    *checks_sentences.CHECKS,
    *checks_files.CHECKS,
)


def run(row: Row, root: Path) -> tuple[Made, list[Page], dict[str, list[Finding]]]:
    """Return what a row has published, its pages, and the findings of each check by its name."""
    made = make(row, root)
    pages = pages_of(made)
    return made, pages, {check.__name__: [*check(made, pages)] for check in CHECKS}


def run_on_sources() -> dict[str, list[Finding]]:
    """Return what the checks of templates, documentation and shipped series find, by the name of the check."""
    return {check.__name__: [*check()] for check in checks_sources.CHECKS}


def signed(found: dict[str, list[Finding]]) -> dict[Signature, Finding]:
    """Return the first finding of each signature."""
    return {signature(check, each): each for check, some in found.items() for each in some[::-1]}
