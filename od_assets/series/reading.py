"""Name and read the declarations of a project, for commands and for Dagster alike. Dagster is not imported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar

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
from od_assets.series.series import Series, read_domain
from od_assets.series.series_table import SeriesTable
from od_assets.series.tables import GroupSizeSeries, StopsSeries
from od_core.errors import OdError, suggest_known_names

if TYPE_CHECKING:
    from od_assets.series.comparison import Comparison
    from od_core.published.site_release import SiteDescription

RELEASES = tuple(f"od_assets.components.{name}" for name in ("OdRelease", "OdCounts", "OdGroupSizes", "OdStops"))
"""Types of the components of release series."""

COMPARISON, SITE, SERIES_TABLE = (f"od_assets.components.{name}" for name in ("OdComparison", "OdSite", "OdReleases"))

ROWS = "rows"
"""Name of a table of series that is declared in no file."""

COMPONENTS = (*RELEASES, SERIES_TABLE, COMPARISON, SITE, WAREHOUSE)
"""Types of all components of this package."""


class SeriesSource(NamedTuple):
    """Where a release series is declared.

    Attributes:
        name: Stated name of the series, which is that of the folder of its declaration, or stands in its row.
        path: The file ``defs.yaml``.
        row: Number of its row in the table of the declaration, from 1; None if the file declares one series.
        shares_assets: Whether it shares its assets with the other rows, which have the name of the folder.
    """

    name: str
    path: Path
    row: int | None = None
    shares_assets: bool = False

    @property
    def graph(self) -> str:
        """First part of the names of the assets and the job, without the prefix; see :attr:`Series.graph`."""
        return self.path.parent.name if self.shares_assets else self.name

    def describe(self) -> str:
        """Return the folder and the name of the file, and the row if there is one, for messages."""
        return f"{self.path.parent.name}/{self.path.name}" + ("" if self.row is None else f", row {self.row}")


def list_series(project: Project | None = None, named: str | None = None) -> list[SeriesSource]:
    """Return where the release series of a project are declared, in the order of their files and rows.

    A table of series, or a module, that cannot be read is left out; Dagster and :func:`find_series` state its fault.

    Args:
        project: the project, by default the current one.
        named: stated name of the only series to list, or of a table, all of whose rows are listed if they share their
            assets. Other files are then not read, except for tables.
    """
    found: list[SeriesSource] = []
    for path in list_declaration_files(project):
        component, name = read_component_type(path), path.parent.name
        with suppress(OdError):
            if component == SERIES_TABLE:
                table = read_series_table(path, project)
                names = enumerate(table.list_names(), 1)
                found += [SeriesSource(series_name, path, number, table.shares_assets) for number, series_name in names]
            elif named in (None, name) and find_series_model(component, name, project) is not None:
                found.append(SeriesSource(name, path))
    return [source for source in found if named in (None, source.name, source.graph)]


def list_series_names(project: Project | None = None) -> tuple[str, ...]:
    """Return the stated names of the declared release series of a project, by default the current one."""
    return tuple(sorted({source.name for source in list_series(project)}))


def list_comparison_names() -> tuple[str, ...]:
    """Return the names of the declared comparisons of mechanisms."""
    return tuple(sorted({source.name for source in _list_comparisons()}))


def select_declaration_files(*components: str, project: Project | None = None) -> list[Path]:
    """Return the declarations of some types of a project, by default the current one, in the order of their paths."""
    return [path for path in list_declaration_files(project) if read_component_type(path) in components]


def draft_missing_warehouse(project: Project) -> dict[Path, str]:
    """Return the text of the declaration of a warehouse, by its path; empty if the project has such a declaration."""
    if select_declaration_files(WAREHOUSE, project=project):
        return {}
    return {project.defs / "warehouse" / DECLARATION: f"type: {WAREHOUSE}\n\nattributes: {{}}\n"}


S = TypeVar("S", bound=Section)
D = TypeVar("D", bound=Declaration)

MODELS: dict[str, type[Series[Any, Any]]] = dict(
    zip(RELEASES, (TripSeries, CountSeries, GroupSizeSeries, StopsSeries), strict=True)
)
"""Models of release series, by the component type that a declaration names."""


def find_series_model(component: str, where: str, project: Project | None = None) -> type[Series[Any, Any]] | None:
    """Return the model of the series that a type of component declares; None if it declares none.

    Of the project's own package, the module is imported, because its components may be subclasses of ours; modules of
    other packages are not. Raises OdError, which names the declaration ``where``, if the import fails.
    """
    module, _, name = component.rpartition(".")
    own_package = (project or find_current_project()).module.partition(".")[0]
    if component in COMPONENTS or not module or module.partition(".")[0] != own_package:
        return MODELS.get(component)
    try:
        found = getattr(import_module(module), name, None)
    except Exception as error:  # noqa: BLE001  # any exception of the project's code
        message = f"{where}: type: {module} cannot be imported ({type(error).__name__})"
        raise OdError("OD-CONFIG", message, next_step="correct the module") from None
    return found if isinstance(found, type) and issubclass(found, Series) else None


def find_series(name: str) -> SeriesSource:
    """Return where a release series is declared.

    Raises OdError if there is no such series, or several declarations have its name.
    """
    sources = list_series(named=name)
    refuse_doubles(name, [*sources, *_list_comparisons()])
    for source in sources:
        if source.name == name:
            return source
    for path in list_declaration_files():
        if path.parent.name == name or read_component_type(path) == SERIES_TABLE:
            refuse_unlisted(path)  # the series may be in a table that cannot be read
    message = f"there is no release {name!r} ({suggest_known_names(name, list_series_names())})"
    raise OdError("OD-RELEASE-UNKNOWN", message, next_step="name a declared release; od-release init declares one")


def list_declared(project: Project | None = None) -> list[SeriesSource]:
    """Return where the series and the comparisons of a project are declared. :func:`refuse_doubles` compares names."""
    return [*list_series(project), *_list_comparisons(project)]


def _list_comparisons(project: Project | None = None) -> list[SeriesSource]:
    """Return where the comparisons of a project are declared."""
    return [SeriesSource(path.parent.name, path) for path in select_declaration_files(COMPARISON, project=project)]


def refuse_doubles(name: str, declared: Sequence[SeriesSource], project: Project | None = None) -> None:
    """Raise OdError if several declarations of a project have the same name, which may be that of a shared table."""
    having_name = (source for source in declared if name in (source.name, source.graph))
    # All rows of a table that is called by the name are one declaration.
    sources = dict.fromkeys(
        source if source.name == name else SeriesSource(name, source.path) for source in having_name
    )
    if len(sources) > 1:
        defs = (project or find_current_project()).defs
        folders = []
        for source in sources:
            row = "" if source.row is None else f" (row {source.row})"
            folders.append(f"{source.path.parent.relative_to(defs)}{row}")
        message = f"{name} is declared twice: in {' and '.join(folders)}"
        raise OdError("OD-CONFIG", message, next_step="rename or remove one of them")


def read_declared_series(name: str) -> Series[Any, Any]:
    """Return a declared release series, whose values are valid.

    Raises:
        OdError: there is no such series, or a value of its declaration or of its data set is wrong. The error names the
            file, and a wrong field.
    """
    return read_series(find_series(name))


def read_series(source: SeriesSource) -> Series[Any, Any]:
    """Return the release series of a declaration or of a row. Raises OdError as :func:`read_declared_series` does."""
    if source.row is not None:
        return read_row(read_series_table(source.path), source.row, source.path)
    model = find_series_model(read_component_type(source.path), source.describe())
    if model is None:
        raise _make_declaration_error(f"{source.describe()}: type: declares no series")
    series = read_declaration(source.path, model)
    refuse_other_folder(series, source.path.parent)
    return series


def read_unchecked_attributes(source: SeriesSource) -> list[Any]:
    """Return what a declaration states of a series, without a check of its values.

    For a row of a table, the one item is its attributes; otherwise, the items are the YAML documents of the file.
    Raises OdError if the file is not valid YAML, or the table has a fault.
    """
    if source.row is not None:
        return [read_series_table(source.path).fill_row(source.row)]
    return read_yaml_documents(source.path, source.path.parent.name)


def read_series_table(path: Path, project: Project | None = None) -> SeriesTable:
    """Return the declaration of many series in a file. Raises OdError if it cannot be read."""
    table = read_declaration(path, SeriesTable)
    return table if project is None else table.with_project(project)


def read_row(table: SeriesTable, number: int, path: Path | None) -> Series[Any, Any]:
    """Return the series of a row of a table, whose values are valid.

    Args:
        number: number of the row, from 1.
        path: path of the declaration of the table; None if it is in no file.

    Raises:
        OdError: a value is wrong, or the table cannot be read; the message names the file and the row.
    """
    place = "a table of series" if path is None else f"{path.parent.name}/{path.name}"
    where = f"{place}, row {number}"
    model = find_series_model(table.component, where, table.project)
    if model is None:
        known = suggest_known_names(table.component, RELEASES)
        raise _make_declaration_error(f"{where}: component: {table.component} declares no series ({known})")

    def find_line(field: list[str]) -> int | None:
        return None if path is None else find_field_line(path, ["attributes", "series", *field])

    declared = parse_declaration(table.fill_row(number), model, where, find_line)
    series = _require_valid(declared.with_project(table.project), where)
    if not table.shares_assets:
        return series
    _refuse_other_assets(series, table, number, where)
    return series.with_table(ROWS if path is None else path.parent.name)


def _refuse_other_assets(series: Series[Any, Any], table: SeriesTable, number: int, where: str) -> None:
    """Raise OdError if the data set of a row needs other assets than the data set of the rows before it.

    It is compared with that of the first earlier row whose data set can be read. Without one, nothing is compared.
    """
    for earlier in range(1, number):
        with suppress(OdError):
            first_domain = read_domain(table.project, table.fill_row(earlier)["domain"])
            break
    else:
        return
    own_domain = read_domain(table.project, series.stated_domain)
    for name in ("unit", "column", "neighbours", "time_zone"):
        if getattr(own_domain, name) != getattr(first_domain, name):
            raise _make_declaration_error(
                f"{where}: data sets {first_domain.name} and {own_domain.name} differ in {name}, but rows share their"
                " assets",
                where,
            )


def refuse_other_folder(series: Series[Any, Any], folder: Path | None) -> None:
    """Raise OdError if the folder of a declaration in YAML has another name than its series: no command would find it.

    Nothing is checked if the folder is None, which is not known, or has no declaration in YAML.
    """
    name = series.stated_name
    if folder is not None and folder.name != name and (folder / DECLARATION).is_file():
        raise _make_declaration_error(
            f"{folder.name}/{DECLARATION}: name: {name!r} differs from the name of its folder"
        )


def read_comparison(name: str) -> Comparison:
    """Return the declaration of a comparison, whose values are valid. Raises OdError if it is absent or wrong."""
    from od_assets.series.comparison import Comparison  # with the evaluation, which most commands do not need

    sources = [source for source in _list_comparisons() if source.name == name]
    if not sources:
        message = f"there is no comparison {name!r} ({suggest_known_names(name, list_comparison_names())})"
        raise OdError("OD-EVALUATION-UNKNOWN", message, next_step="name a declared comparison")
    refuse_doubles(name, [*list_series(named=name), *sources])
    return read_declaration(sources[0].path, Comparison)


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
        from od_core.published.site_release import SiteDescription

        return SiteDescription(self.title, self.url, self.publisher, self.licence, self.contact)

    @property
    def place(self) -> Path:
        """Folder of the site: by default ``site`` in ``var``, otherwise as declared, relative to the project's root."""
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
    return _require_valid(declared, where)


def _require_valid(declared: D, where: str) -> D:
    """Return a declaration whose values are valid. Raises OdError, which names the declaration, if one is wrong."""
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
    """Return a declaration with the given attributes, of which only the types are checked.

    Args:
        attributes: content of the YAML mapping ``attributes``; anything but a mapping with texts as names is refused.
        model: class of the declaration.
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


def refuse_unlisted(path: Path) -> None:
    """Raise OdError if a file may declare series that :func:`list_series` does not list, because it has a fault."""
    component, where = read_component_type(path), f"{path.parent.name}/{path.name}"
    if component == SERIES_TABLE:
        read_series_table(path).list_names()
    elif find_series_model(component, where) is None:
        refuse_wrong_type(path)


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
