"""What every part of a declaration in YAML has in common."""

from typing import Any, get_args

import dagster as dg
from pydantic import ValidationError, ValidationInfo, field_validator

from od_core.errors import nearest_known

Number = float | int | str
"""YAML reads 1e-8 as text and 1.0e-8 as a float; both are the same decimal number here."""


class Section(dg.Model):
    """A part of a declaration. YAML's true and false are no numbers and no names."""

    @field_validator("*", mode="before")
    @classmethod
    def refuse_truth_values(cls, value: Any, field: ValidationInfo) -> Any:
        """Nothing in a declaration is true or false, but for switches."""
        if isinstance(value, bool) and not is_switch(cls, field.field_name):
            raise ValueError("true and false have no meaning here")
        return value


def is_switch(section: type[dg.Model], name: str | None) -> bool:
    """Whether a field of a part of a declaration is either true or false."""
    field = section.model_fields.get(str(name))
    return field is not None and field.annotation is bool


def _section_of(annotation: Any) -> Any:
    """The part of a declaration that a field is, where it may be left out, too."""
    return next((part for part in get_args(annotation) if hasattr(part, "model_fields")), annotation)


def first_fault(error: ValidationError, section: Any) -> str:
    """Field and fault, with the nearest known field where there is none of that name.

    A name that is unknown comes before one that is missing: it may be the missing one, misspelt.
    ``section`` is the class that was read. What Dagster adds is left out: names of classes, and lines of a text that
    it has written itself.
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
