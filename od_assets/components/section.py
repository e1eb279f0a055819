"""Define the base class of all sections of a YAML declaration, and describe their faults."""

from typing import Any, get_args

import dagster as dg
from pydantic import ValidationError, ValidationInfo, field_validator

from od_core.errors import nearest_known

Number = float | int | str
"""A decimal number. YAML reads 1e-8 as text and 1.0e-8 as a float; both are the same number here."""


class Section(dg.Model):
    """A section of a declaration. YAML's true and false are accepted for switches only, not as numbers or names."""

    @field_validator("*", mode="before")
    @classmethod
    def refuse_truth_values(cls, value: Any, field: ValidationInfo) -> Any:
        """Refuse true and false for every field that is not a switch."""
        if isinstance(value, bool) and not is_switch(cls, field.field_name):
            raise ValueError("true and false are not valid here")
        return value


def is_switch(section: type[dg.Model], name: str | None) -> bool:
    """Return whether a field of a section is a switch, which is either true or false."""
    field = section.model_fields.get(str(name))
    return field is not None and field.annotation is bool


def _section_of(annotation: Any) -> Any:
    """Return the section class in a field's annotation, also if the field is optional; otherwise, the annotation."""
    return next((part for part in get_args(annotation) if hasattr(part, "model_fields")), annotation)


def first_fault(error: ValidationError, section: Any) -> str:
    """Return the field and the fault of a validation error, with the nearest known name for an unknown field.

    An unknown field is reported before a missing field, because it may be a misspelling of the missing one. Class names
    and line numbers of generated text, which Dagster adds to the message, are left out.

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
