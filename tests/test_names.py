"""Functions are named by what they do: none begins with a word that reads only inside a sentence of its author."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

UNCLEAR = """
about above after already around at before below between both by each every for further here how if in inside into near
no not nothing now of on once only other out over own per same since such than that then there these those together too
towards under until up upwards what when where which who whole why with within without yet

begun broken built chosen drawn found given held hidden kept known laid led left lost made meant paid risen said seen
sent shown spent stood taken told understood worn written
"""
"""First words that no function has: prepositions, conjunctions and adverbs, and participles that do not end in -ed."""

VERBS = {"embed", "exceed", "feed", "need", "seed"}
"""Words in -ed that are no participles."""

CONVERSIONS = {"as", "from", "to", "with"}
"""First words of conversions: a copy of a value with something changed, or a value of another type."""

ALLOWED = {
    "od_core/flows/estimation/fitted_tree.py": {"where"},  # as in NumPy and pandas
    "od_core/flows/plan.py": {"expected_segment_errors"},  # public; beside the property expected_errors
    "od_core/flows/released_flows.py": {"weighted_sum"},  # public
    "od_core/flows/step.py": {"of"},  # public: Segments.of
    "od_core/geography/geography.py": {"whole"},  # public: Geography.whole
    "od_core/group_sizes/release.py": {"at_most"},  # public
    "od_core/privacy/budget.py": {"allowed_rho"},  # public
    "od_core/stops/geometry.py": {"around"},  # public: MapGrid.around
    "od_assets/sensors/notices.py": {"failed", "published"},  # projects override them
    "od_assets/series/series.py": {"by_level"},
}
"""Names that stay, by file."""


def functions_of(module: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a module and the methods of its classes, but for properties."""
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            yield from functions_of(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = {ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list}
            if not any(name.endswith(("property", "setter")) for name in decorators):
                yield node


def is_unclear(name: str) -> bool:
    """Whether a name begins with a participle, a preposition or an adverb."""
    first = name.strip("_").split("_")[0]
    if name.startswith("__") or first in CONVERSIONS | VERBS:
        return False
    return first in UNCLEAR.split() or (first.endswith("ed") and len(first) > 3)


def test_functions_begin_with_clear_words() -> None:
    files = [path for package in ("od_core", "od_assets") for path in sorted((ROOT / package).rglob("*.py"))]
    assert len(files) > 150
    found = {
        str(path.relative_to(ROOT)): {node.name for node in functions_of(tree) if is_unclear(node.name)}
        for path in files
        for tree in [ast.parse(path.read_text(encoding="utf-8"))]
    }
    assert {file: names for file, names in found.items() if names} == ALLOWED


@pytest.mark.parametrize("name", ["carried", "_of_cells", "in_order", "by_month", "whole_counts", "kept_files"])
def test_an_unclear_name_is_found(name: str) -> None:
    module = ast.parse(f"class Case:\n    def {name}(self) -> None: ...\n")
    assert [node.name for node in functions_of(module) if is_unclear(node.name)] == [name]


@pytest.mark.parametrize("name", ["carry_levels", "with_seed", "from_frame", "need_budget", "ancestors", "__init__"])
def test_clear_names_are_not(name: str) -> None:
    assert not is_unclear(name)
