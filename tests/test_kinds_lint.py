"""Nothing outside the package of a kind asks which kind a plan, step, release or series is: its methods answer."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BASES = {"BundleKind", "Plan", "PlannedRelease", "ReleasedFlows", "Series", "Step"}


@cache
def modules() -> dict[Path, ast.Module]:
    """All modules of both packages."""
    files = (path for package in ("od_core", "od_assets") for path in sorted((ROOT / package).rglob("*.py")))
    return {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8")) for path in files}


def package_of(path: Path) -> str:
    """The package of a module, such as od_core/flows."""
    return "/".join(path.parts[:2])


@cache
def classes_of_kinds() -> dict[str, str]:
    """Package of each class that derives from one of the bases, by name of the class, with the bases themselves."""
    defined = {
        node.name: (package_of(path), [name_of(base) for base in node.bases])
        for path, module in modules().items()
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef)
    }
    found = set(BASES)
    while more := {name for name, (_, bases) in defined.items() if found & {*bases}} - found:
        found |= more
    return {name: defined[name][0] for name in found}


def name_of(node: ast.expr) -> str:
    """The last part of the name of a class, as in ``flows.Release`` or ``Kind[R]``."""
    if isinstance(node, ast.Subscript):
        return name_of(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def asked(module: ast.Module) -> Iterator[tuple[int, set[str]]]:
    """Lines on which a module asks for the class of a value, with the names of the classes."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and name_of(node.func) in ("isinstance", "issubclass"):
            yield node.lineno, {name_of(one) for one in ast.walk(node.args[1]) if isinstance(one, ast.expr)}
        if isinstance(node, ast.MatchClass):
            yield node.cls.lineno, {name_of(node.cls)}
        if isinstance(node, ast.Compare) and any(
            isinstance(one, ast.Call) and name_of(one.func) == "type" for one in (node.left, *node.comparators)
        ):
            yield node.lineno, {name_of(one) for one in ast.walk(node) if isinstance(one, ast.expr)}


def asked_outside(path: Path, module: ast.Module) -> Iterator[str]:
    """The questions of a module for classes of kinds that other packages define."""
    kinds = classes_of_kinds()
    for line, names in asked(module):
        for name in sorted(names & kinds.keys()):
            if kinds[name] != package_of(path):
                yield f"{path}:{line}: {name}"


def test_no_module_asks_which_kind_it_has():
    assert {"ReleasePlan", "GroupSizePlan", "StopsPlan", "DerivedFlows", "StopsSeries", "UncountedStep"} <= {
        *classes_of_kinds()
    }
    assert [one for path, module in modules().items() for one in asked_outside(path, module)] == []


@pytest.mark.parametrize(
    "question",
    [
        "isinstance(plan, ReleasePlan)",
        "isinstance(plan, int | od_core.StopsPlan)",
        "issubclass(found, (int, GroupSizeRelease))",
        "type(kind) is FlowKind",
        "match step:\n    case SegmentStep(): pass",
    ],
)
def test_each_way_to_ask_is_found(question):
    assert len([*asked_outside(Path("od_core/published/site.py"), ast.parse(question))]) == 1
    assert not [*asked_outside(Path("od_core/published/site.py"), ast.parse("isinstance(plan, dict)"))]
