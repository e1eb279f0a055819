"""Read the declared components of a project."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import dagster as dg
from pydantic import ValidationError

from od_assets.components import OdComparison, OdGroupSizes, OdRelease, OdSite, OdStops, OdWarehouse
from od_assets.components.series import Declared, Series
from od_assets.declared.reading import refuse_wrong_type
from od_assets.declared.section import first_fault, is_switch, line_of, yaml_documents
from od_assets.series.names import (
    COMPARISON,
    RELEASES,
    SITE,
    WAREHOUSE,
    component_type,
    declaration_file,
    declaration_files,
    declarations_of,
    declared_comparisons,
    declared_releases,
)
from od_core.errors import OdError, nearest_known

D = TypeVar("D", bound=Declared)

SERIES: dict[str, type[Series]] = dict(zip(RELEASES, (OdRelease, OdGroupSizes, OdStops), strict=True))
"""Components of release series, by the component type that a declaration names."""


def comparison(name: str) -> OdComparison:
    """Return the declaration of a comparison. Raises OdError if it is absent or does not fit the component."""
    if name not in declared_comparisons():
        raise OdError(
            "OD-EVALUATION-UNKNOWN",
            f"there is no comparison {name!r} ({nearest_known(name, declared_comparisons())})",
            next_step="name a declared comparison",
        )
    return read_declaration(declaration_file(name), OdComparison)


def declaration(name: str) -> Series:
    """Return the declaration of a release series. Raises OdError if it is absent or does not fit the component."""
    if name not in declared_releases():
        for path in declaration_files():
            if path.parent.name == name:
                refuse_wrong_type(path)
        raise OdError(
            "OD-RELEASE-UNKNOWN",
            f"there is no release {name!r} ({nearest_known(name, declared_releases())})",
            next_step="name a declared release; od-release init declares one",
        )
    path = declaration_file(name)
    release = read_declaration(path, SERIES[component_type(path)])
    release.refuse_other_folder(path.parent)
    try:
        release.partitions()
        release.settings()
    except OdError as error:
        raise error if error.file else error.in_file(f"{name}/defs.yaml") from None
    return release


def read_declaration(path: Path, component: type[D]) -> D:
    """Return the declaration in a YAML file.

    Raises:
        OdError: the declaration does not fit the component; the message names the file and the field.
    """
    where = f"{path.parent.name}/{path.name}"
    try:
        [documents] = _documents(path)
        attributes = documents["attributes"]
    except (KeyError, TypeError, ValueError):
        raise _no_attributes(where) from None
    return declared_by(attributes, component, where, lambda field: line_of(path, ["attributes", *field]))


def _documents(path: Path) -> list[Any]:
    """Return the YAML documents of a declaration. Raises OdError, with the line, if they cannot be parsed."""
    return yaml_documents(path, f"{path.parent.name}/{path.name}")


def declared_site() -> OdSite:
    """Return the declaration of the web site; one with no owners and default values if the project has none.

    Raises:
        OdError: the declaration does not fit the component, or there are several.
    """
    files = declarations_of(SITE)
    if len(files) > 1:
        raise _fault(f"the site is declared twice: in {' and '.join(path.parent.name for path in files)}")
    return _site(files[0]) if files else declared_by({"owners": []}, OdSite, "the site")


def _site(path: Path) -> OdSite:
    """Return the site that a file declares. Raises OdError if the declaration does not fit the component."""
    found = read_declaration(path, OdSite)
    try:
        found.described()
    except OdError as error:
        raise error.in_file(f"{path.parent.name}/{path.name}") from None
    return found


def declared_at(path: Path) -> Series | OdComparison | OdSite | OdWarehouse | None:
    """Return what a file declares; None if it names a component of another package.

    Raises:
        OdError: the declaration cannot be parsed, does not fit its component, or is refused by Dagster.
    """
    refuse_wrong_type(path)
    stated, name = component_type(path), path.parent.name
    if stated in SERIES:
        series = declaration(name)
        refuse_unloadable(series)
        return series
    if stated == COMPARISON:
        return comparison(name)
    if stated == SITE:
        return _site(path)
    return read_declaration(path, OdWarehouse) if stated == WAREHOUSE else None


def broken_declarations() -> dict[Path, OdError]:
    """Return the fault of every broken declaration of the project, by its file, in the order of their paths."""
    faults = {}
    for path in declaration_files():
        try:
            declared_at(path)
        except OdError as error:
            faults[path] = error
    return faults


def refuse_broken_declarations() -> None:
    """Raise OdError with the first broken declaration of the project, if there is one."""
    for fault in broken_declarations().values():
        raise fault


def declared_by(
    attributes: dict[str, Any], component: type[D], where: str, line: Callable[[list[str]], int | None] | None = None
) -> D:
    """Return a declaration with the given attributes.

    Args:
        attributes: attributes of the component.
        component: class of the component.
        where: name of the file in messages.
        line: function that returns the line of a field in the file; None if there is no file yet.

    Raises:
        OdError: the attributes do not fit the component; the message names the file (``where``) and the field.
    """
    try:
        for name, value in attributes.items():
            if isinstance(value, bool) and not is_switch(component, name):  # Dagster would read these as 1 and 0
                raise _fault(f"{where}: {name}: true and false are not valid here")
        made: D = component.resolve_from_dict(attributes)  # type: ignore[attr-defined]  # of all components
    except (AttributeError, KeyError, TypeError):
        raise _no_attributes(where) from None
    except ValidationError as error:
        raise _fault(f"{where}: {first_fault(error, component, line)}") from None
    except dg.DagsterError as error:
        raise _fault(f"{where}: {error}") from None
    return made


def refuse_unloadable(component: Series) -> None:
    """Raise OdError if Dagster refuses the definitions of a series, such as its owners, cron lines or deadlines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about beta and preview parts of Dagster
        try:
            component.build_defs(None)  # type: ignore[arg-type]  # our components do not use the context
        except (dg.DagsterError, ValueError) as error:
            raise _fault(f"{component.name}/defs.yaml: {error}") from None


def _no_attributes(where: str) -> OdError:
    return _fault(f"{where} is not a YAML file with a component's attributes")


def _fault(message: str) -> OdError:
    return OdError("OD-CONFIG", message, next_step="correct the declaration")
