"""Name declared series, and the components of their kinds."""

import glob
from pathlib import Path

from od_assets.project import Project, current_project
from od_core.errors import OdError

DECLARATION = "defs.yaml"
"""Name of the file of a declaration."""

RELEASES = tuple(f"od_assets.components.{name}" for name in ("OdRelease", "OdGroupSizes", "OdStops"))
"""Types of the components of release series."""

COMPARISON, SITE, WAREHOUSE = (f"od_assets.components.{name}" for name in ("OdComparison", "OdSite", "OdWarehouse"))


COMPONENTS = (*RELEASES, COMPARISON, SITE, WAREHOUSE)
"""Types of all components of this package."""


def declared_releases() -> tuple[str, ...]:
    """Return the names of the declared release series."""
    return _declared(*RELEASES)


def declared_comparisons() -> tuple[str, ...]:
    """Return the names of the declared comparisons of mechanisms."""
    return _declared(COMPARISON)


def declaration_file(name: str) -> Path:
    """Return the ``defs.yaml`` of a declared series or comparison, which is in a folder with its name.

    Raises:
        OdError: Several folders of the project have this name.
    """
    files = [path for path in declarations_of(*RELEASES, COMPARISON) if path.parent.name == name]
    if len(files) > 1:
        defs = current_project().defs
        folders = " and ".join(str(path.parent.relative_to(defs)) for path in files)
        raise OdError("OD-CONFIG", f"{name} is declared twice: in {folders}", next_step="rename or remove one of them")
    return files[0]


def declaration_files(project: Project | None = None) -> list[Path]:
    """Return all files ``defs.yaml`` of a project, also those of other components, in the order of their paths.

    By default, the project is the current one.
    """
    defs = (project or current_project()).defs
    names = glob.glob(f"**/{DECLARATION}", root_dir=defs, recursive=True)  # noqa: PTH207  # it follows links, as Dagster does
    return [defs / name for name in sorted(names)]


def component_type(path: Path) -> str:
    """Return the component type that a declaration names; that of flows if it names none."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    stated = next((line for line in lines if line.startswith("type:")), f"type: {RELEASES[0]}")
    return stated.removeprefix("type:").partition(" #")[0].strip().strip("'\"")


def _declared(*components: str) -> tuple[str, ...]:
    return tuple(sorted({path.parent.name for path in declarations_of(*components)}))


def declarations_of(*components: str, project: Project | None = None) -> list[Path]:
    """Return the declarations of some types of a project, by default the current one, in the order of their paths."""
    return [path for path in declaration_files(project) if component_type(path) in components]
