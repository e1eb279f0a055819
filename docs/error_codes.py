"""Collect the error codes of the library from its source, with the cause and the remedy that each message states."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from od_core.meaning.features import read_support

ROOT = Path(__file__).parents[1]
CODE = re.compile(r"OD-[A-Z0-9-]+")


@dataclass(frozen=True, order=True)
class Raised:
    """An error that the source raises or makes.

    Attributes:
        code: code of the error.
        cause: message, with the names of what it quotes in angle brackets; empty if it is put together elsewhere.
        remedy: next step; empty if it is put together elsewhere.
    """

    code: str
    cause: str
    remedy: str


@dataclass(frozen=True)
class Helper:
    """A function that makes an error from a message.

    Attributes:
        code: code of the error; empty if the caller gives it.
        remedy: next step of the error.
    """

    code: str
    remedy: str


@cache  # all sources are parsed
def raised() -> list[Raised]:
    """Return the errors of od_core and od_assets, in order of their codes."""
    found: set[Raised] = set()
    files = [path for package in ("od_core", "od_assets") for path in sorted((ROOT / package).rglob("*.py"))]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in files]
    own = [dict(_helpers_of(tree)) for tree in trees]
    shared = {name: each for helpers in own for name, each in helpers.items() if name[0] != "_"}
    for tree, helpers in zip(trees, own, strict=True):
        everywhere = _constants(tree.body)
        for function in _functions(tree):
            nodes = sorted((one for one in ast.walk(function) if hasattr(one, "lineno")), key=lambda one: one.lineno)
            for place, call in enumerate(nodes):
                if isinstance(call, ast.Call):  # a name has the text that was last given to it above
                    found |= {*_of(call, {**shared, **helpers}, {**everywhere, **_constants(nodes[:place])})}
        codes = (_text(node, {}) for node in ast.walk(tree) if isinstance(node, ast.Constant))
        found |= {Raised(code, "", "") for code in codes if CODE.fullmatch(code)}
    found |= {Raised(row.code, row.reason, row.next_step) for row in read_support().refusals}
    told = {one.code for one in found if one.cause}
    stepped = {one.code for one in found if one.remedy}
    return sorted(
        one for one in found if one.cause or (one.code not in told and (one.remedy or one.code not in stepped))
    )


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def _helpers_of(tree: ast.Module) -> Iterator[tuple[str, Helper]]:
    """Yield the helpers of a file by their names."""
    everywhere = _constants(tree.body)
    for function in _functions(tree):
        yield from ((function.name, each) for each in _helpers(function, everywhere))


def _of(call: ast.Call, helpers: Mapping[str, Helper], known: Mapping[str, str]) -> Iterator[Raised]:
    """Yield the error that a call makes, if one of its arguments is a code, or if it calls a helper that has one."""
    named = {keyword.arg: _text(keyword.value, known) for keyword in call.keywords}
    texts = [_text(argument, known) for argument in call.args]
    helper = helpers.get(call.func.id if isinstance(call.func, ast.Name) else "", Helper("", ""))
    spoken = [text for text in texts if " " in text]
    remedy = named.get("next_step") or helper.remedy or next(iter(spoken[1:]), "")
    if named.get("code"):  # registry.choose and refuse_unknown word the message
        yield Raised(named["code"], f"there is no such {texts[0] or 'name'}", remedy)
    elif code := next((text for text in texts if text.startswith("OD-")), ""):
        yield Raised(code, next((text for text in texts[texts.index(code) + 1 :] if " " in text), ""), remedy)
    elif helper.code:
        yield Raised(helper.code, next(iter(spoken), ""), remedy)


def _helpers(function: ast.FunctionDef, everywhere: Mapping[str, str]) -> Iterator[Helper]:
    """Yield the function as a helper, if it makes an OdError from a message that its caller gives."""
    known = {**everywhere, **_constants(ast.walk(function))}
    given = (*function.args.defaults, *(each for each in function.args.kw_defaults if each is not None))
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "OdError":
            remedy = "".join(_text(keyword.value, known) for keyword in call.keywords if keyword.arg == "next_step")
            takes_message = len(call.args) > 1 and not _text(call.args[1], known)
            code = _text(call.args[0], known) if call.args and takes_message else ""
            yield Helper(code, remedy or "".join(_text(each, known) for each in given))


def _constants(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Return the names that are bound to a text."""
    bound: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            pairs = zip(target.elts, value.elts, strict=False) if several else [(target, value)]  # type: ignore[attr-defined]
            texts = ((name, _text(node, {})) for name, node in pairs if isinstance(name, ast.Name))
            bound |= {name.id: text for name, text in texts if text}
    return bound


def _text(node: ast.expr, known: Mapping[str, str]) -> str:
    """Return a text, with the names of what it quotes in angle brackets; empty if the node is something else."""
    if isinstance(node, ast.Name):
        return known.get(node.id, "")
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"<{_quoted(part)}>" for part in node.values
        )
    return ""


def _quoted(part: ast.expr) -> str:
    """Return the name of a quoted expression, such as ``levels`` for ``{self.levels[level - 1]!r}``."""
    names = [node.attr for node in ast.walk(part) if isinstance(node, ast.Attribute)]
    names += [node.id for node in ast.walk(part) if isinstance(node, ast.Name)]
    return names[0].strip("_").replace("_", " ") if names else "value"
