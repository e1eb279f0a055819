"""Run a row: make it, show its pages, and return what the checks find."""

import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

from tests.matrix import checks_sources
from tests.matrix.findings import Finding, Signature, signature
from tests.matrix.made import Made, make
from tests.matrix.options import Row
from tests.matrix.pages import Page, pages_of

Check = Callable[..., Iterator[Finding]]


def _checks_of(module: ModuleType) -> list[Check]:
    """Return the checks of a module: its public functions that yield findings."""
    own = (one for one in vars(module).values() if inspect.isfunction(one) and one.__module__ == module.__name__)
    return [one for one in own if one.__name__[0] != "_" and one.__annotations__["return"] == Iterator[Finding]]


CHECKS = [
    check
    for name in ("words", "promises", "numbers", "claims", "sentences", "files")
    for check in _checks_of(import_module(f"tests.matrix.checks_{name}"))
]


def run(row: Row, root: Path) -> tuple[Made, list[Page], dict[str, list[Finding]]]:
    """Return what a row has published, its pages, and the findings of each check by its name."""
    made = make(row, root)
    pages = pages_of(made)
    return made, pages, {check.__name__: [*check(made, pages)] for check in CHECKS}


def run_on_sources() -> dict[str, list[Finding]]:
    """Return what the checks of templates, documentation and shipped series find, by the name of the check."""
    return {check.__name__: [*check()] for check in _checks_of(checks_sources)}


def signed(found: dict[str, list[Finding]]) -> dict[Signature, Finding]:
    """Return the first finding of each signature."""
    return {signature(check, each): each for check, some in found.items() for each in some[::-1]}
