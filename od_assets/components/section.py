"""What every part of a declaration in YAML has in common."""

from typing import Any

import dagster as dg
from pydantic import field_validator

Number = float | int | str
"""YAML reads 1e-8 as text and 1.0e-8 as a float; both are the same decimal number here."""


class Section(dg.Model):
    """A part of a declaration. YAML's true and false are no numbers and no names."""

    @field_validator("*", mode="before")
    @classmethod
    def refuse_truth_values(cls, value: Any) -> Any:
        """Nothing in a declaration is true or false."""
        if isinstance(value, bool):
            raise ValueError("true and false have no meaning here")
        return value
