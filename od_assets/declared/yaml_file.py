"""Read the YAML files of declarations and privacy domains, and refuse a field that is written twice."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from od_core.errors import OdError

_MOST_NODES = 100_000
"""Largest number of values, names included, in a document. A large declaration has some hundred."""


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a mapping in which a name is written twice. YAML would keep the last value.

    It also refuses aliases that stand for more than :data:`_MOST_NODES` values: a few lines can stand for billions.
    """

    def construct_document(self, node: yaml.Node) -> Any:
        """Return the value of a document."""
        if _nodes(node, {}) > _MOST_NODES:
            raise yaml.constructor.ConstructorError(
                None, None, f"its aliases (*) stand for more than {_MOST_NODES:,} values", node.start_mark
            )
        return super().construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return the mapping of a node."""
        names = [name.value for name, _ in node.value if name.tag != "tag:yaml.org,2002:merge"]
        for (name, _), text in zip(node.value, names, strict=False):
            if names.count(text) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{text!r} is written twice", name.start_mark)
        return super().construct_mapping(node, deep=deep)


def _nodes(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of nodes that a node stands for. ``known`` has those of nodes that were counted before."""
    if id(node) not in known:
        known[id(node)] = _MOST_NODES + 1  # while it is counted: a node that contains itself has no end
        parts = node.value if isinstance(node, yaml.CollectionNode) else []
        inner = [part for each in parts for part in (each if isinstance(each, tuple) else (each,))]
        known[id(node)] = 1 + sum(_nodes(part, known) for part in inner)
    return known[id(node)]


def yaml_documents(path: Path, where: str) -> list[Any]:
    """Return the YAML documents of a file.

    Args:
        path: the file.
        where: name of the file in messages.

    Raises:
        OdError: the file cannot be opened, is not UTF-8 text or is not valid YAML; the message names the line.
    """
    try:
        return deepcopy(_documents(path.read_text(encoding="utf-8")))
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f" (line {error.problem_mark.line + 1})"
        raise _fault(where, f"is not valid YAML{line}: {error.problem}") from None
    except OSError as error:
        raise _fault(where, f"cannot be opened: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _fault(where, "is not UTF-8 text") from None
    except RecursionError:
        raise _fault(where, "is not valid YAML: it is nested too deeply") from None
    except (yaml.YAMLError, ValueError):  # a character, a number or a date
        raise _fault(where, "is not valid YAML: it has a character, a number or a date that cannot be read") from None


@lru_cache(maxsize=64)
def _documents(text: str) -> list[Any]:
    """Return the documents of a text. All series of a data set read its file, so the same texts are parsed often."""
    return list(yaml.load_all(text, Loader=_Loader))  # a safe loader


def line_of(path: Path, field: Sequence[str]) -> int | None:
    """Return the line of a field in a YAML file that can be parsed; that of its section if the field is not written.

    Return None if the section is the whole file.

    Args:
        path: the file.
        field: names of the sections and of the field; a place in a list is its number.
    """
    node, line = yaml.compose(path.read_text(encoding="utf-8"), Loader=_Loader), None
    for name in field:
        parts = {}
        if isinstance(node, yaml.MappingNode):
            parts = {key.value: (key, value) for key, value in node.value}
        elif isinstance(node, yaml.SequenceNode):
            parts = {str(place): (value, value) for place, value in enumerate(node.value)}
        if name not in parts:
            break
        key, node = parts[name]
        line = key.start_mark.line + 1
    return line


def _fault(where: str, message: str) -> OdError:
    return OdError("OD-CONFIG", f"{where} {message}", next_step="correct the file", file=where)
