"""Name and read the declarations of a project, for commands and for Dagster alike. Dagster is not imported."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from pydantic import ValidationError

from od_assets.project import Project, find_current_project
from od_assets.series.flows import CountSeries, TripSeries
from od_assets.series.section import (
    DECLARATION,
    WAREHOUSE,
    Declaration,
    Section,
    describe_first_fault,
    find_field_line,
    list_declaration_files,
    read_component_type,
    read_yaml_documents,
)
from od_assets.series.series import Series
from od_assets.series.tables import GroupSizeSeries, StopsSeries
from od_core.errors import OdError, suggest_known_names

if TYPE_CHECKING:
    from od_assets.series.comparison import Comparison
    from od_core.published.site import SiteDescription

RELEASES = tuple(f"od_assets.components.{name}" for name in ("OdRelease", "OdCounts", "OdGroupSizes", "OdStops"))
"""Types of the components of release series."""

COMPARISON, SITE = (f"od_assets.components.{name}" for name in ("OdComparison", "OdSite"))

COMPONENTS = (*RELEASES, COMPARISON, SITE, WAREHOUSE)
"""Types of all components of this package."""


def list_series_names() -> tuple[str, ...]:
    """Return the names of the declared release series."""
    return tuple(sorted({path.parent.name for path in select_declaration_files(*RELEASES)}))


def list_comparison_names() -> tuple[str, ...]:
    """Return the names of the declared comparisons of mechanisms."""
    return tuple(sorted({path.parent.name for path in select_declaration_files(COMPARISON)}))


def find_declaration_file(name: str) -> Path:
    """Return the ``defs.yaml`` of a declared series or comparison. Raises OdError if several folders have its name."""
    files = select_declaration_files(*RELEASES, COMPARISON, named=name)
    if len(files) > 1:
        defs = find_current_project().defs
        folders = " and ".join(str(path.parent.relative_to(defs)) for path in files)
        raise OdError("OD-CONFIG", f"{name} is declared twice: in {folders}", next_step="rename or remove one of them")
    return files[0]


def select_declaration_files(*components: str, project: Project | None = None, named: str | None = None) -> list[Path]:
    """Return the declarations of some types of a project, by default the current one, in the order of their paths.

    If a name is given, only declarations in folders of that name are read.
    """
    files = (path for path in list_declaration_files(project) if named in (None, path.parent.name))
    return [path for path in files if read_component_type(path) in components]


def draft_missing_warehouse(project: Project) -> dict[Path, str]:
    """Return the file of the warehouse that a project lacks, and its text; nothing if the project declares one."""
    if select_declaration_files(WAREHOUSE, project=project):
        return {}
    return {project.defs / "warehouse" / DECLARATION: f"type: {WAREHOUSE}\n\nattributes: {{}}\n"}


S = TypeVar("S", bound=Section)
D = TypeVar("D", bound=Declaration)

MODELS: dict[str, type[Series[Any, Any]]] = dict(
    zip(RELEASES, (TripSeries, CountSeries, GroupSizeSeries, StopsSeries), strict=True)
)
"""Models of release series, by the component type that a declaration names."""


def read_declared_series(name: str) -> Series[Any, Any]:
    """Return a declared release series, whose values are valid.

    Raises:
        OdError: there is no such series, or a value of its declaration or of its data set is wrong. The error names the
            file, and a wrong field.
    """
    if not select_declaration_files(*RELEASES, named=name):
        for path in list_declaration_files():
            if path.parent.name == name:
                refuse_wrong_type(path)
        message = f"there is no release {name!r} ({suggest_known_names(name, list_series_names())})"
        raise OdError("OD-RELEASE-UNKNOWN", message, next_step="name a declared release; od-release init declares one")
    return read_series(find_declaration_file(name))


def read_series(path: Path) -> Series[Any, Any]:
    """Return the release series that a file declares, which no other file does; see :func:`read_declared_series`."""
    series = read_declaration(path, MODELS[read_component_type(path)])
    refuse_other_folder(series, path.parent)
    return series


def refuse_other_folder(series: Series[Any, Any], folder: Path | None) -> None:
    """Raise OdError if a folder with a declaration in YAML has another name than the series. No command would find it.

    The folder is None if it is not known.
    """
    name = series.stated_name
    if folder is not None and folder.name != name and (folder / DECLARATION).is_file():
        raise _make_declaration_error(
            f"{folder.name}/{DECLARATION}: name: {name!r} differs from the name of its folder"
        )


def read_comparison(name: str) -> Comparison:
    """Return the declaration of a comparison, whose values are valid. Raises OdError if it is absent or wrong."""
    from od_assets.series.comparison import Comparison  # with the evaluation, which most commands do not need

    if name not in list_comparison_names():
        message = f"there is no comparison {name!r} ({suggest_known_names(name, list_comparison_names())})"
        raise OdError("OD-EVALUATION-UNKNOWN", message, next_step="name a declared comparison")
    return read_declaration(find_declaration_file(name), Comparison)


class DeclaredSite(Declaration):
    """The declaration of a web site of all published releases."""

    owners: list[str]
    title: str = "Published trip statistics"
    url: str | None = None
    publisher: str | None = None
    licence: str | None = None
    contact: str | None = None
    folder: str | None = None
    automation: Literal["running", "stopped"] = "stopped"

    def require_valid(self) -> Self:
        """Return the declaration of the site. Raises OdError if a text or an address cannot be written on it."""
        self.to_site_description()
        return self

    def to_site_description(self) -> SiteDescription:
        """Return the description of the site. Raises OdError if a text or an address cannot be written."""
        from od_core.published.site import SiteDescription

        return SiteDescription(self.title, self.url, self.publisher, self.licence, self.contact)

    @property
    def place(self) -> Path:
        """Folder of the site."""
        return self.project.var / "site" if self.folder is None else self.project.root / self.folder


def read_site_declaration() -> DeclaredSite:
    """Return the declaration of the web site; one with default values if there is none. Raises OdError for several."""
    files = select_declaration_files(SITE)
    if len(files) > 1:
        raise _make_declaration_error(
            f"the site is declared twice: in {' and '.join(path.parent.name for path in files)}"
        )
    return read_declaration(files[0], DeclaredSite) if files else DeclaredSite.model_validate({"owners": []})


def read_declaration(path: Path, model: type[D]) -> D:
    """Return the declaration in a YAML file, whose values are valid.

    Raises OdError, which names the file, if a value is wrong, or another declaration is in a folder above.
    """
    where = f"{path.parent.name}/{path.name}"
    _refuse_declaration_above(path)
    try:
        [document] = read_yaml_documents(path, where)
        attributes = {} if document == {"type": WAREHOUSE} else document["attributes"]  # none is required
    except (KeyError, TypeError, ValueError):
        attributes = None
    declared = parse_declaration(attributes, model, where, lambda field: find_field_line(path, ["attributes", *field]))
    try:
        return declared.require_valid()
    except OdError as error:
        raise error if error.file else error.with_file(where) from None


def _refuse_declaration_above(path: Path) -> None:
    """Raise OdError if a folder above a declaration has another one, because Dagster does not look below that."""
    defs = find_current_project().defs
    for folder in path.parent.parents:
        above = folder / DECLARATION
        if folder.is_relative_to(defs) and above.is_file() and read_component_type(above) in COMPONENTS:
            where = f"{path.parent.name}/{path.name}"
            message = f"{where} is in the folder of {folder.name}/{DECLARATION}, below which Dagster loads nothing"
            raise OdError("OD-CONFIG", message, next_step="move its folder out of that one", file=where)


def parse_declaration(
    attributes: Any, model: type[S], where: str, line: Callable[[list[str]], int | None] | None = None
) -> S:
    """Return a declaration with the given attributes.

    Args:
        where: name of the file in messages.
        line: function that returns the line of a field in the file; None if there is no file yet.

    Raises:
        OdError: the attributes do not fit the model; the message names the file (``where``) and the field.
    """
    if not isinstance(attributes, dict) or not all(isinstance(name, str) for name in attributes):
        raise _make_declaration_error(f"{where} is not a YAML file with a component's attributes")
    try:
        return model.model_validate(attributes)
    except ValidationError as error:
        raise _make_declaration_error(f"{where}: {describe_first_fault(error.errors(), model, line)}", where) from None


def refuse_wrong_type(path: Path) -> None:
    """Check that a declaration names a component. The modules of other packages are not imported.

    Raises:
        OdError: the file cannot be parsed, or names no component, one that this package does not have, or one of a
            package that is not installed.
    """
    where = f"{path.parent.name}/{path.name}"
    for document in read_yaml_documents(path, where):
        component = document.get("type") if isinstance(document, dict) else None
        package, _, name = str(component).rpartition(".")
        if not isinstance(component, str) or not name:
            raise _make_declaration_error(f"{where}: type: must name a component, such as {RELEASES[0]}")
        top_package = package.partition(".")[0]
        if top_package == RELEASES[0].partition(".")[0] and component not in COMPONENTS:
            suggestion = suggest_known_names(name, tuple(known.rpartition(".")[2] for known in COMPONENTS))
            raise _make_declaration_error(f"{where}: type: there is no component {component} ({suggestion})")
        if top_package and find_spec(top_package) is None:
            raise _make_declaration_error(
                f"{where}: type: there is no package {top_package!r}, of which {component} would be a component"
            )


def _make_declaration_error(message: str, file: str | None = None) -> OdError:
    """Return the error for a wrong declaration."""
    return OdError("OD-CONFIG", message, next_step="correct the declaration", file=file)
