"""The releases that are declared below ``defs``, for the command line."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import yaml
from pydantic import ValidationError

from od_assets.components.od_release import OdRelease
from od_assets.components.section import first_fault
from od_core.errors import OdError, nearest_known

DEFS = Path(__file__).parent / "defs"


def declared_releases() -> tuple[str, ...]:
    """Names of the declared release series."""
    return tuple(sorted(path.parent.name for path in DEFS.glob("*/defs.yaml")))


def declaration(name: str) -> OdRelease:
    """The declaration of a release series.

    Raises:
        OdError: no such series, or a declaration that does not fit the component, with file and field.
    """
    if name not in declared_releases():
        raise OdError(
            "OD-RELEASE-UNKNOWN",
            f"there is no release {name!r} ({nearest_known(name, declared_releases())})",
            next_step="name a release declared below od_assets/defs",
        )
    release = read_declaration(DEFS / name / "defs.yaml")
    if release.name != name:
        raise _fault(f"{name}/defs.yaml: name: {release.name!r} is not the name of its folder")
    release.partitions()
    return release


def read_declaration(path: Path) -> OdRelease:
    """The declaration in a file. Raises OdError with file and field where it does not fit the component."""
    where = f"{path.parent.name}/{path.name}"
    try:
        attributes = yaml.safe_load(path.read_text(encoding="utf-8"))["attributes"]
        release: OdRelease = OdRelease.resolve_from_dict(attributes)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError):
        raise _fault(f"{where} is not a YAML file with a release's attributes") from None
    except ValidationError as error:
        raise _fault(f"{where}: {first_fault(error, OdRelease)}") from None
    except dg.DagsterError as error:
        raise _fault(f"{where}: {error}") from None
    return release


def _fault(message: str) -> OdError:
    return OdError("OD-CONFIG", message, next_step="correct the declaration")
