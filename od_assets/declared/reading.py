"""Read declarations without Dagster."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from od_assets.declared.flows import DeclaredFlows
from od_assets.declared.group_sizes import DeclaredGroupSizes
from od_assets.declared.section import Section, yaml_documents
from od_assets.declared.series import DeclaredSeries
from od_assets.declared.stops import DeclaredStops
from od_assets.series.names import COMPONENTS, RELEASES, component_type
from od_core.errors import OdError, nearest_known


def refuse_wrong_type(path: Path) -> None:
    """Check that a declaration names a component. The modules of other packages are not imported.

    Raises:
        OdError: the file cannot be parsed, or names no component, one that this package does not have, or one of a
            package that is not installed.
    """
    where = f"{path.parent.name}/{path.name}"
    for document in yaml_documents(path, where):
        refuse_type_of(document, where)


def refuse_type_of(document: Any, where: str) -> None:
    """Check that a YAML document names a component, as :func:`refuse_wrong_type` does for a file.

    Args:
        document: the document.
        where: name of its file in messages.

    Raises:
        OdError: as in :func:`refuse_wrong_type`.
    """
    stated = document.get("type") if isinstance(document, dict) else None
    package, _, name = str(stated).rpartition(".")
    if not isinstance(stated, str) or not name:
        raise _fault(f"{where}: type: must name a component, such as {RELEASES[0]}")
    installed, own = package.partition(".")[0], RELEASES[0].partition(".")[0]
    if installed == own and stated not in COMPONENTS:
        known = nearest_known(name, tuple(known.rpartition(".")[2] for known in COMPONENTS))
        raise _fault(f"{where}: type: there is no component {stated} ({known})")
    if installed and find_spec(installed) is None:
        raise _fault(f"{where}: type: there is no package {installed!r}, of which {stated} would be a component")


def _fault(message: str) -> OdError:
    return OdError("OD-CONFIG", message, next_step="correct the declaration")


_DECLARED: dict[str, type[DeclaredSeries]] = dict(
    zip(RELEASES, (DeclaredFlows, DeclaredGroupSizes, DeclaredStops), strict=True)
)
"""Declarations of release series, by the component type that they name."""


def sound_series(path: Path) -> DeclaredSeries | None:
    """Return the declaration of a series, validated as its component is, but in a third of the time.

    Its type is checked as :func:`od_assets.declared.reading.refuse_wrong_type` does. Return None if the
    declaration has a fault, which the component states, or a text that Dagster evaluates.

    Args:
        path: the only declaration of the series, in a folder with its name.
    """
    try:
        [document] = yaml_documents(path, path.name)
        refuse_type_of(document, path.name)
        attributes = document["attributes"]
        declared = _DECLARED[component_type(path)].model_validate(attributes)
        declared.checked_periods()
        declared.settings()
    except (OdError, ValidationError, KeyError, TypeError, ValueError):
        return None
    texts = {field: value for field, value in attributes.items() if not isinstance(getattr(declared, field), Section)}
    return declared if declared.name == path.parent.name and not _is_evaluated(texts) else None


def _is_evaluated(value: Any) -> bool:
    """Return whether a value has a text of which Dagster's templates make something else, such as a number of "5"."""
    if isinstance(value, dict):
        return any(map(_is_evaluated, value.values()))
    if isinstance(value, list):
        return any(map(_is_evaluated, value))
    return isinstance(value, str) and _changes(value)


def _changes(text: str) -> bool:
    if any(opening in text for opening in ("{{", "{%", "{#")) or text.endswith("\n"):
        return True
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError):  # those that Jinja takes for a text
        return False
    except (TypeError, RecursionError):
        pass
    return True
