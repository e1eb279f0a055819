"""Define the base class of all sections of a YAML declaration, and describe their faults."""

import os
import re
from typing import Any, get_args

import dagster as dg
from pydantic import ValidationError, ValidationInfo, field_validator

from od_core.errors import nearest_known

Number = float | int | str
"""A decimal number. YAML reads 1e-8 as text and 1.0e-8 as a float; both are valid for the same number."""


_VARIABLE = re.compile(r"\{\{ *env\.(\w+) *\}\}")
"""Pattern of an environment variable in a text of a declaration, such as ``{{ env.LAKE }}``."""


class Section(dg.Model):
    """A section of a declaration. True and false are accepted only for fields that are switches."""

    @field_validator("*", mode="before")
    @classmethod
    def with_variables(cls, value: Any, field: ValidationInfo) -> Any:
        """Return a value with its environment variables. Refuse true and false for a field that is not a switch."""
        if isinstance(value, bool) and not is_switch(cls, field.field_name):
            raise ValueError("true and false are not valid here")
        return with_environment(value)


def with_environment(value: Any) -> Any:
    """Return a value of a declaration with the environment variables that its texts name, as in ``{{ env.LAKE }}``.

    Dagster replaces variables in the fields of a component, but not in its sections; and there, it would turn codes
    that look like numbers into numbers.

    Raises:
        ValueError: a variable is not set.
    """
    if isinstance(value, dict):
        return {name: with_environment(part) for name, part in value.items()}
    if isinstance(value, list):
        return [with_environment(part) for part in value]
    return _VARIABLE.sub(_variable, value) if isinstance(value, str) else value


def _variable(found: re.Match[str]) -> str:
    try:
        return os.environ[found[1]]
    except KeyError:
        raise ValueError(f"the environment variable {found[1]} is not set") from None


def is_switch(section: type[dg.Model], name: str | None) -> bool:
    """Return whether a field of a section is a switch, which is either true or false."""
    field = section.model_fields.get(str(name))
    return field is not None and field.annotation is bool


def _section_of(annotation: Any) -> Any:
    """Return the section class in a field's annotation, also if the field is optional; otherwise, the annotation."""
    return next((part for part in get_args(annotation) if hasattr(part, "model_fields")), annotation)


def first_fault(error: ValidationError, section: Any) -> str:
    """Return the field and the fault of a validation error, with the most similar known name for an unknown field.

    An unknown field is reported before a missing field, because it may be a misspelling of the missing one. Class names
    and line numbers that Dagster adds to the message are left out.

    Args:
        error: error of the validation.
        section: class that was validated.
    """
    faults = error.errors()
    first = next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])
    path, known = [], tuple[str, ...]()
    for name in ".".join(map(str, first["loc"])).partition(" at <string>")[0].split("."):
        if name == getattr(section, "__name__", None):
            continue
        path.append(name)
        fields = getattr(section, "model_fields", {})
        known = tuple(fields)
        section = _section_of(fields[name].annotation) if name in fields else None
    hint = f" ({nearest_known(path[-1], known)})" if first["type"] == "extra_forbidden" else ""
    return f"{'.'.join(path)}: {first['msg']}{hint}"
