"""No text of an error is made of another library's text, which may hold a record, a password or an address."""

import ast
import contextlib
import pickle
import re
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import od_assets
import od_core
from od_core.errors import OdError, hide_in_errors
from od_core.ledger.ledger import make_chain
from od_core.ledger.object_store import store_at

ROOTS = [Path(str(package.__file__)).parent for package in (od_core, od_assets)]

PLAIN = {"strerror", "errno", "filename", "sqlstate", "problem_mark", "__traceback__"}
"""Attributes of exceptions that are words of the system, numbers or names of declared files."""

OURS = {"OdError", "InputError"}
"""Names of exceptions whose text is public."""

TEXTS = {"message", "args", "msg", "problem", "reason", "stderr", "stdout", "output"}
"""Attributes under which libraries keep texts, of exceptions and of results."""

ALLOWED = {
    # Passed on as it is, and not as text.
    ("od_core/parallel.py", "processed.set_exception(error)"): "raised again where the result is taken",
    ("od_core/files/durable.py", "self._failure = failure"): "raised again by the next call",
    (
        "od_assets/cli/app.py",
        "Interrupted(number) if number is not None and isinstance(error, Exception) else error",
    ): "made an OdError by _to_od_error",
    ("od_assets/cli/app.py", "error.to_error"): "an interrupt of ours",
    ("od_assets/cli/releases.py", "stopped.number"): "the number of an interrupt of ours",
    ("od_assets/cli/app.py", "error if isinstance(error, OdError) else None"): "only if it is an OdError",
    ("od_core/records/postgres_table.py", "getattr(error, 'sqlstate', '')"): "the code of an error of PostgreSQL",
    ("od_assets/failures.py", "error.orig"): "the name of its code in SQLite alone",
    (
        "od_assets/code_location.py",
        "why if isinstance(why, str) else f'{type(why).__name__}{_describe_place(why)}'",
    ): "its kind",
    ("od_assets/code_location.py", "{why}"): "Dagster's words on invalid definitions, which name assets and resources",
    ("od_core/published/verification.py", "str(error)"): "only if it is an OdError",
    # Looked at, and not passed on.
    ("od_core/ledger/postgres_chain.py", "str(error)"): "compared with known texts of libpq",
    ("od_core/publication/database.py", "str(error)"): "compared with known texts of DuckDB",
    ("od_core/files/duckdb_session.py", "str(error)"): "compared with words of DuckDB; else the confidential detail",
    ("od_core/spark/counting.py", "str(error)"): "compared with words of Spark",
    ("od_core/records/open_file.py", "str(error)"): "compared with words of DuckDB; else the confidential detail",
    # Confidential details, given by position, and files of the confidential folder.
    ("od_core/records/zone_lists.py", "str(error)"): "a confidential detail",
    ("od_core/geography/geography.py", "str(error)"): "a confidential detail",
    ("od_core/geography/geography.py", "repr(error)"): "a confidential detail",
    ("od_core/spark/session.py", "{error}"): "a confidential detail",
    ("od_assets/assets/steps.py", "{error}"): "written to the log in the confidential folder",
    # Texts of what is declared in public. OdError hides what templates stand for.
    ("od_assets/components/series.py", "{error}"): "Dagster's words on owners and cron lines",
    ("od_assets/series/section.py", "error.problem"): "PyYAML names a sign, a tag, an anchor or a name",
    ("od_assets/cli/new_declaration.py", "error.errors"): "pydantic's words on a field, without its value",
    ("od_assets/series/section.py", "error.errors"): "pydantic's words on a field, without its value",
    ("od_assets/series/reading.py", "error.errors"): "pydantic's words on a field, without its value",
    ("od_assets/series/series.py", "error.errors"): "pydantic's words on a field, without its value",
    ("od_core/publication/read_back.py", "error.args"): "a KeyError: the name of a column or a fact",
    # Not texts of exceptions.
    ("od_core/flows/projection/linear_programs.py", "result.message"): "HiGHS states the status of the solver",
    ("od_core/group_sizes/area_totals.py", "result.message"): "HiGHS states the status of the solver",
}
"""Other uses of an exception or of a library's text, by file and expression, with the reason."""


def names(node: ast.AST | None) -> list[str]:
    """Names in an expression, such as the exceptions that a handler catches; of an attribute, the last name."""
    if node is None:
        return []
    if isinstance(node, ast.Attribute):
        return [node.attr]
    if isinstance(node, ast.Name):
        return [node.id]
    return [name for child in ast.iter_child_nodes(node) for name in names(child)]


def caught(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Every name of an exception that is not ours, and where it has that name: in a handler, or in a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.name and not set(names(node.type)) <= OURS:
            yield node.name, node
        if isinstance(node, ast.FunctionDef):
            for argument in (*node.args.args, *node.args.kwonlyargs):
                kinds = [name for name in names(argument.annotation) if name.endswith(("Error", "Exception"))]
                if kinds and not set(kinds) <= OURS:
                    yield argument.arg, node


@cache
def takers() -> set[str]:
    """Functions that take an exception: what they do with it is looked at in their own place."""
    found = {"type", "isinstance"}
    for tree in sources().values():
        found |= {at.name for _, at in caught(tree) if isinstance(at, ast.FunctionDef)}
    return found


def uses(tree: ast.AST, known: set[str]) -> Iterator[tuple[int, str]]:
    """Line and expression of every use of an exception that may be its text, and of every text of a library."""
    parent = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for name, scope in caught(tree):
        for node in ast.walk(scope):
            if not (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)):
                continue
            above = parent[node]
            if isinstance(above, ast.Attribute) and above.attr in (PLAIN | {"with_changes", "next_step"}):
                continue
            if isinstance(above, ast.Call) and node in above.args and set(names(above.func)) & known:
                continue
            if isinstance(above, ast.Call) and names(above.func) == ["getattr"] and is_plain(above):
                continue
            if not is_detail(node, parent):
                yield node.lineno, ast.unparse(above)
    for node in ast.walk(tree):
        if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Attribute) and node.value.attr in TEXTS:
            base = node.value.value
            if not (isinstance(base, ast.Name) and base.id in {"error", "fault", "first", "unstated", "self"}):
                yield node.lineno, ast.unparse(node.value)


def is_plain(call: ast.Call) -> bool:
    """Whether ``getattr`` asks for a code of an error."""
    return isinstance(call.args[1], ast.Constant) and call.args[1].value in {"sqlite_errorname", "response"}


def is_detail(node: ast.AST, parent: dict[ast.AST, ast.AST]) -> bool:
    """Whether an expression is a part of the confidential detail of an error."""
    while node in parent:
        node = parent[node]
        if isinstance(node, ast.keyword):
            return node.arg in {"confidential_detail", "detail"}
    return False


@cache
def sources() -> dict[str, ast.AST]:
    """Modules of both packages by the path of their file."""
    return {
        path.relative_to(root.parent).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for root in ROOTS
        for path in sorted(root.rglob("*.py"))
    }


def test_no_error_passes_on_the_text_of_another() -> None:
    known, found = takers(), dict[tuple[str, str], int]()
    for file, tree in sources().items():
        found |= {(file, expression): line for line, expression in uses(tree, known)}
    assert {use: line for use, line in found.items() if use not in ALLOWED} == {}
    assert set(ALLOWED) - set(found) == set(), "no longer used"


def test_no_error_has_another_as_its_cause() -> None:
    """Dagster and Python print causes, and contexts unless ``from None`` says otherwise."""
    for file, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Raise) and node.cause is not None:
                assert ast.unparse(node.cause) == "None", f"{file}, line {node.lineno}"


@pytest.mark.parametrize(
    "planted",
    [
        "try:\n    f()\nexcept ValueError as error:\n    raise OdError('OD-X', str(error), next_step='') from None",
        "try:\n    f()\nexcept Exception as fault:\n    raise OdError('OD-X', f'no: {fault}', next_step='') from None",
        "try:\n    f()\nexcept (OSError, OdError) as e:\n    said = ' '.join(str(e).split())",
        "try:\n    f()\nexcept OSError as e:\n    raise other(e) from None",
        "def fault(error: duckdb.Error) -> OdError:\n    return OdError('OD-X', f'no: {error.args[0]}', next_step='')",
        "raise OdError('OD-X', f'no: {done.stderr}', next_step='')",
    ],
)
def test_a_planted_text_of_another_is_found(planted: str) -> None:
    assert list(uses(ast.parse(planted), takers()))


def whole(error: BaseException) -> str:
    """All that Python, Dagster or a log could print of an error, with its arguments."""
    said = "".join(traceback.format_exception(error)) + repr(error) + str(vars(error))
    return re.sub(r"(?m)^    .*$", "", said)  # lines of source, those of the test included


@pytest.mark.parametrize("sign", ["%", "@", "/", "[", "?", "#", ":", "%zz", "/@", "&", "=", " "])
def test_no_error_shows_a_part_of_the_password_of_the_ledger(tmp_path: Path, sign: str) -> None:
    """Whatever libpq takes for the host, the port or an option."""
    pytest.importorskip("psycopg")
    for rest in ("", ":no-port", "/d?sslmode=hunter2", "/d?hunter2=1"):
        address = f"postgresql://role:hunter2{sign}WREN@127.0.0.1{rest}"
        refusal = pytest.raises(OdError, match=r"^OD-LEDGER-(ADDRESS|UNAVAILABLE): ")
        with refusal as refused, contextlib.ExitStack() as left:
            left.enter_context(make_chain(tmp_path / "ledger.sqlite", address).open_transaction())
        assert not re.findall("hunter2|WREN", whole(refused.value))


@pytest.mark.parametrize(
    "address", ["s3://key:hunter2@bucket", "s3://k:a/hunter2@b/c", "s3://b/c?secret=hunter2", "x://:hunter2@"]
)
def test_no_error_shows_the_password_of_an_object_store(address: str) -> None:
    with pytest.raises(OdError, match=r"^OD-STORE-(ADDRESS|UNSAFE): ") as refused:
        store_at(address)
    assert "hunter2" not in whole(refused.value)


def test_no_error_shows_a_hidden_value() -> None:
    """In a sentence, in quotes and escaped; a word or a short text only where it is quoted."""
    for number, value in enumerate(["pass/word 7", 'it\'s \\ "8"', "plain", "12", "hunter2"]):
        hide_in_errors(value, f"{{{{ env.V{number} }}}}")
        step = f"write another than '{value}'"
        error = OdError("OD-CONFIG", f"no {value!r}, {[value]}", next_step=step, file="a.yaml")
        for each in (error, error.with_file("b"), pickle.loads(pickle.dumps(error))):  # noqa: S301
            assert value not in whole(each).replace("V12", "")
    said = OdError("OD-CONFIG", "at hunter2, hunter21, pass/word 71: 12 plain words", next_step="")
    assert said.message == "at {{ env.V4 }}, hunter21, {{ env.V0 }}1: 12 plain words"
