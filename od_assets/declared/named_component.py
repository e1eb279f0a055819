"""Check that a declaration names a component that exists, without importing Dagster."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from od_assets.declared.yaml_file import yaml_documents
from od_assets.series.declared_names import COMPONENTS, RELEASES
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
