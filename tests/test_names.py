"""Functions are named by what they do, and take few parameters; files are not long."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

Function = ast.FunctionDef | ast.AsyncFunctionDef

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
}
"""Names that stay, by file."""


MOST_PARAMETERS = 7
"""What a function takes at most. Compiled kernels take arrays, which no object can hold."""

WIDE = {
    "od_assets/cli/published.py": {"compare"},  # options of a command, as are the next three
    "od_assets/cli/releases.py": {"plan", "compare_mechanisms"},
    "od_core/evaluation/known_flows.py": {"draw_gravity_flows"},
    "od_core/flows/estimation/refinement.py": {"move_to_profile"},  # the arrays of a projection, as is the next
    "od_core/flows/projection/onto_area_totals.py": {"project_to_area_totals"},
    "od_core/flows/plan.py": {"plan_release"},  # public, as are the next four
    "od_core/flows/release.py": {"release_flows"},
    "od_core/group_sizes/plan.py": {"plan_group_sizes"},
    "od_core/group_sizes/release.py": {"release_group_sizes"},
    "od_core/stops/release.py": {"release_stops"},
    "od_core/ledger/measurements.py": {"begin_release"},
    "od_core/publication/certify.py": {"build_certificate"},
    "od_core/records/load.py": {"load_records"},
    "od_core/spark/counting.py": {"count_in_spark"},
}
"""Functions that take more, by file."""


def functions_of(module: ast.Module | ast.ClassDef) -> Iterator[Function]:
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


def takes_many(node: Function) -> bool:
    """Whether a function that is not compiled has more than the allowed parameters, ``self`` and ``cls`` aside."""
    names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    is_compiled = any(ast.unparse(decorator).startswith("kernel") for decorator in node.decorator_list)
    return not is_compiled and len(names) - (names[:1] in (["self"], ["cls"])) > MOST_PARAMETERS


@pytest.fixture(scope="module")
def functions() -> dict[str, list[Function]]:
    """The functions of the product, by file."""
    files = [path for package in ("od_core", "od_assets") for path in sorted((ROOT / package).rglob("*.py"))]
    assert len(files) > 150
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}
    return {file: list(functions_of(ast.parse(text))) for file, text in texts.items()}


@pytest.mark.parametrize(
    ("is_found", "allowed"),
    [(lambda node: is_unclear(node.name), ALLOWED), (takes_many, WIDE)],
    ids=["names", "parameters"],
)
def test_functions_begin_with_clear_words_and_take_few_parameters(
    functions: dict[str, list[Function]], is_found: Callable[[Function], bool], allowed: dict[str, set[str]]
) -> None:
    found = {file: {node.name for node in nodes if is_found(node)} for file, nodes in functions.items()}
    assert {file: names for file, names in found.items() if names} == allowed


@pytest.mark.parametrize("name", ["carried", "_of_cells", "in_order", "by_month", "whole_counts", "kept_files"])
def test_an_unclear_name_is_found(name):
    module = ast.parse(f"class Case:\n    def {name}(self) -> None: ...\n")
    assert [node.name for node in functions_of(module) if is_unclear(node.name)] == [name]


def test_no_file_has_more_than_900_lines():
    files = [path for package in ("od_core", "od_assets") for path in (ROOT / package).rglob("*.py")]
    lines = {path.name: path.read_text(encoding="utf-8").count("\n") for path in files}
    assert {name: number for name, number in lines.items() if number > 900} == {}


def test_many_parameters_are_found_but_in_kernels() -> None:
    text = "def made(self, a, b, c, d, e, f, *, g{}): ..."
    assert not takes_many(ast.parse(text.format("")).body[0])  # type: ignore[arg-type]  # a function
    assert takes_many(ast.parse(text.format(", h")).body[0])  # type: ignore[arg-type]
    assert not takes_many(ast.parse("@kernel\n" + text.format(", h")).body[0])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["carry_levels", "with_seed", "from_frame", "need_budget", "ancestors", "__init__"])
def test_clear_names_are_not(name):
    assert not is_unclear(name)
