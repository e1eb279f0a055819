"""Read the declaration of a series without Dagster, where Dagster would read the same."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from od_assets.declared.flows import DeclaredFlows
from od_assets.declared.group_sizes import DeclaredGroupSizes
from od_assets.declared.named_component import refuse_type_of
from od_assets.declared.section import Section
from od_assets.declared.series import DeclaredSeries
from od_assets.declared.stops import DeclaredStops
from od_assets.declared.yaml_file import yaml_documents
from od_assets.series.declared_names import RELEASES, component_type
from od_core.errors import OdError

_DECLARED: dict[str, type[DeclaredSeries]] = dict(
    zip(RELEASES, (DeclaredFlows, DeclaredGroupSizes, DeclaredStops), strict=True)
)
"""Declarations of release series, by the component type that they name."""


def sound_series(path: Path) -> DeclaredSeries | None:
    """Return the declaration of a series, validated as its component is, but in a third of the time.

    Its type is checked as :func:`od_assets.declared.named_component.refuse_wrong_type` does. Return None if the
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
