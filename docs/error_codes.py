"""Collect the error codes of the library from its source, with the cause and the remedy that each message states."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, order=True)
class Raised:
    """A place that raises an error, or a helper that makes one.

    Attributes:
        code: code of the error.
        cause: message, with the names of what it quotes in angle brackets; empty if a helper words it.
        remedy: next step; empty if a helper words it.
    """

    code: str
    cause: str
    remedy: str


def raised() -> list[Raised]:
    """Return every code of od_core and od_assets with its messages, in order of the codes."""
    found = set()
    for package in ("od_core", "od_assets"):
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            remedies = dict(_helpers(tree))
            for call in ast.walk(tree):
                if isinstance(call, ast.Call):
                    found |= set(_of(call, remedies))
    said = {one.code for one in found if one.cause}
    return sorted(one for one in found if one.cause or one.code not in said)


def _of(call: ast.Call, remedies: dict[str, str]) -> Iterator[Raised]:
    """Yield what a call raises, if one of its arguments is a code."""
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    texts = [_text(argument) for argument in call.args]
    stated = _text(named["code"]) if "code" in named else next((t for t in texts if t.startswith("OD-")), "")
    if not stated.startswith("OD-"):
        return
    if "code" in named:  # registry.choose and refuse_unknown word the message
        cause = f"there is no {texts[0]} of this name" if texts and texts[0] else ""
    else:
        cause = next((text for text in texts[texts.index(stated) + 1 :] if " " in text), "")
    helper = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    remedy = _text(named["next_step"]) if "next_step" in named else remedies.get(helper, "")
    yield Raised(stated, cause, remedy)


def _helpers(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the functions of a module that return an error, with the next step that they state."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for call in ast.walk(function):
                steps = [k.value for k in getattr(call, "keywords", []) if k.arg == "next_step"]
                if steps and isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "OdError":
                    yield function.name, _text(steps[0])


def _text(node: ast.expr) -> str:
    """Return a literal text, with the names of what it quotes in angle brackets; empty if it is no literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"<{_name(part)}>" for part in node.values
        )
    return ""


def _name(part: ast.expr) -> str:
    """Return the last name in a quoted expression, such as ``level`` for ``{self.levels[level - 1]!r}``."""
    names = [node.attr for node in ast.walk(part) if isinstance(node, ast.Attribute)]
    names += [node.id for node in ast.walk(part) if isinstance(node, ast.Name)]
    return names[0].replace("_", " ").strip() if names else "value"
