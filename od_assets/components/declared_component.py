"""Define the base class of all components."""

from functools import partial
from typing import Any, Self

import dagster as dg
from pydantic import BaseModel

from od_assets.declared.section import Section, by_kind, hide_variables


class Declared(dg.Component, dg.Resolvable, Section):  # type: ignore[misc]  # Dagster's bases are untyped
    """Base of all components: a declaration whose JSON schema, for ``dg check yaml``, tells sections apart."""

    @classmethod
    def get_model_cls(cls) -> type[BaseModel] | None:
        """Return the model of the declaration, whose JSON schema has the same change as that of every section."""
        model: type[BaseModel] | None = super().get_model_cls()
        extra = None if model is None else model.model_config.get("json_schema_extra")
        if model is not None and not callable(extra):
            model.model_config["json_schema_extra"] = partial(by_kind, dict(extra or {}))
        return model

    @classmethod
    def resolve_from_model(cls, context: Any, model: BaseModel) -> Self:
        """Return the component of a declaration. No error of this process shows what its templates stand for."""
        hide_variables(model.model_dump())
        made: Self = super().resolve_from_model(context, model)
        return made
