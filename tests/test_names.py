"""Functions are named by what they do, and take few parameters; files are not long; what texts refer to exists."""

import ast
import functools
import pydoc
import re
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
    "od_core/geography/geography.py": {"from_frame"},
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


REFERENCE = re.compile(
    r":(attr|class|data|func|meth|mod):`~?([\w.]+)`|``([A-Z]\w*[a-z]\w*\.\w+|od_(?:core|assets)\.[\w.]+)``"
)
"""A reference with a role, or the name of an attribute of a class or of a module between two backquotes."""


def name_module(path: Path) -> str:
    """The dotted name of a module, such as ``od_core.flows.plan``; a stub has that of what it is a stub of."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def bound_names(scope: ast.Module | ast.ClassDef) -> set[str]:
    """The names that a module or the body of a class defines or imports, and the attributes that methods set."""
    names: set[str] = set()
    statements: list[ast.AST] = [*scope.body]
    while statements:
        node = statements.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            continue  # what its body binds is its own
        if isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        statements += ast.iter_child_nodes(node)
    if isinstance(scope, ast.ClassDef):
        attributes = [node for node in ast.walk(scope) if isinstance(node, ast.Attribute)]
        names |= {
            each.attr for each in attributes if isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == "self"
        }
    return names


class Definitions:
    """What some modules define, by name. Of classes of one name, whose references cannot be told apart, any counts."""

    def __init__(self, texts: list[tuple[str, str]]) -> None:
        self.of_modules: dict[str, set[str]] = {}
        self.of_classes: dict[str, set[str]] = {}
        bases: dict[str, set[str]] = {}
        for module, text in texts:
            tree = ast.parse(text)
            self.of_modules.setdefault(module, set()).update(bound_names(tree))
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self.of_classes.setdefault(node.name, set()).update(bound_names(node))
                    named = {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}
                    bases.setdefault(node.name, set()).update(named - {node.name})
        while True:  # until no class inherits anything more
            before = sum(map(len, self.of_classes.values()))
            for name, members in self.of_classes.items():
                members.update(*(self.of_classes.get(base, set()) for base in bases[name]))
            if before == sum(map(len, self.of_classes.values())):
                break

    def has(self, reference: str, role: str, module: str, classes: list[str]) -> bool:
        """Whether there is what a reference names, which stands in a module and, within that, in some classes."""
        first, _, rest = reference.partition(".")
        if reference in self.of_modules or role == "mod":
            return reference in self.of_modules
        if not rest:
            near = self.of_modules[module].union(*(self.of_classes[name] for name in classes))
            is_elsewhere = any(first in names for names in self.of_modules.values())
            return first in near or (is_elsewhere and role in ("class", "data", "func") and not first.startswith("_"))
        if first in self.of_classes:
            return rest in self.of_classes[first]
        if first in ("od_core", "od_assets"):
            home = max((name for name in self.of_modules if reference.startswith(f"{name}.")), key=len)
            name, *member = reference.removeprefix(f"{home}.").split(".")
            return name in self.of_modules[home] and (not member or self.has(f"{name}.{member[0]}", role, home, []))
        is_imported = first in self.of_modules[module]  # as all of our own classes are found above
        return is_imported or pydoc.locate(reference) is not None  # of another package

    def list_lost(self, module: str, text: str) -> list[str]:
        """The references in the text of a module to what does not exist, each with its line."""
        classes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
        lost = []
        for number, line in enumerate(text.splitlines(), 1):
            around = [node.name for node in classes if node.lineno <= number <= (node.end_lineno or 0)]
            for role, target, quoted in REFERENCE.findall(line):
                if not self.has(target or quoted, role, module, around):
                    lost.append(f"{module}, line {number}: {target or quoted}")
        return lost


@functools.cache
def read_definitions() -> Definitions:
    """What the product defines. The stub of ``od_core`` has the public names."""
    files = [path for package in ("od_core", "od_assets") for path in (ROOT / package).rglob("*.py*")]
    sources = [path for path in files if path.suffix in (".py", ".pyi")]
    return Definitions([(name_module(path), path.read_text(encoding="utf-8")) for path in sources])


def test_texts_refer_to_what_exists() -> None:
    files = [path for package in ("od_core", "od_assets") for path in sorted((ROOT / package).rglob("*.py"))]
    texts = {name_module(path): path.read_text(encoding="utf-8") for path in files}
    assert [lost for module, text in texts.items() for lost in read_definitions().list_lost(module, text)] == []


@pytest.mark.parametrize(
    ("text", "is_lost"),
    [
        (":func:`od_core.release_flows`", False),
        (":func:`od_core.release_nothing`", True),
        (":meth:`od_core.flows.release.Release.flows_at`", False),  # of a base class
        (":meth:`od_core.flows.release.Release.flows_of`", True),
        ("# :attr:`Guarantee.odds`", False),
        ("``Guarantee.aside``", True),
        ("``NoSuchClass.odds``", True),
        ("``polars.DataFrame`` in ``README.txt``", False),
        (":mod:`od_core.flows.nothing`", True),
        (":class:`pathlib.Path`", False),
        ("``Decimal.exp``", False),  # of an imported class
        (":class:`pathlib.Pathway`", True),
        (":func:`plan_release`", False),  # of another module
        (":func:`_check_prior`", False),
        (":func:`_check_something`", True),
        (":meth:`odds`", True),  # outside of its class
    ],
)
def test_a_reference_to_what_does_not_exist_is_found(text: str, is_lost: bool) -> None:
    found = read_definitions().list_lost("od_core.privacy.posterior", f"{text if text[0] == '#' else repr(text)}\n")
    assert bool(found) == is_lost


def test_a_reference_within_a_class_is_to_its_members_and_those_of_its_bases() -> None:
    base = "class Base:\n    def __init__(self):\n        self.kept = 1\n"
    text = f"{base}class Case(Base):\n    ':attr:`kept` and :attr:`other`'\n"
    assert Definitions([("case", text)]).list_lost("case", text) == ["case, line 5: other"]
