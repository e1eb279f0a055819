"""Locate a Dagster project that declares releases: its root, declarations, ``var`` folder and Dagster's home."""

from __future__ import annotations

import os
import tomllib
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from od_core.errors import OdError
from od_core.files.durable import PUBLIC_FILE_MODE, make_folder, write_durably

if TYPE_CHECKING:
    from dagster import ComponentLoadContext

CHECKOUT = Path(__file__).resolve().parents[1]
"""Folder that contains this package; in a checkout, it is a Dagster project."""

IS_CHECKOUT = (CHECKOUT / "od_assets" / "defs").is_dir()
"""Whether this is a checkout. Where packages are installed, a ``pyproject.toml`` beside them is that of another one."""

DOMAINS = "domains"
"""Name of the folder of privacy domains, below the declarations."""


@dataclass(frozen=True)
class Project:
    """A Dagster project that declares releases.

    Attributes:
        root: root folder; the relative paths in declarations begin there.
        defs: folder of the declarations.
        module: name of the module that contains the definitions of the project.
    """

    root: Path
    defs: Path
    module: str

    @classmethod
    def from_context(cls, context: ComponentLoadContext | None) -> Project:
        """Return the project that loads a component; the current project if ``context`` is None.

        Its root is the folder in ``OD_PROJECT``, if that folder is not another Dagster project.
        """
        if context is None:
            return find_current_project()
        module = f"{context.defs_module_name.rpartition('.')[0]}.definitions"
        return cls(context.project_root, context.defs_module_path, module)._with_root(os.environ.get("OD_PROJECT"))

    def _with_root(self, stated_root: str | None) -> Project:
        """Return the project with the root that ``OD_PROJECT`` in its ``.env`` states, or else ``stated_root``.

        Return the project unchanged if neither is stated, or the folder is itself a Dagster project. A relative path is
        relative to the folder of the project.
        """
        stated_root = read_variables(self.folder).get("OD_PROJECT", stated_root)
        root = self.folder / stated_root if stated_root else self.root
        return self if read_project(root.resolve()) else replace(self, root=root.resolve())

    @property
    def folder(self) -> Path:
        """Folder with the settings of ``dg``, and with ``.env``; the root if no folder above ``defs`` has any."""
        return next((place for place in self.defs.parents if "project" in _read_dg_settings(place)), self.root)

    @property
    def location(self) -> str:
        """Name of the code location in Dagster: ``code_location_name`` of ``dg``, or the name of the folder."""
        return str(_read_dg_settings(self.folder).get("project", {}).get("code_location_name") or self.folder.name)

    @property
    def domains(self) -> Path:
        """Folder of the privacy domains, with one file per data set."""
        return self.defs / DOMAINS

    @property
    def var(self) -> Path:
        """Folder of everything that releases write: ``OD_VAR``, or ``var`` in the project.

        Raises OdError as :func:`read_variable` does, or if ``OD_VAR`` of the environment is not the path of one folder.
        """
        stated = read_variable("OD_VAR", self.folder)
        if not stated:
            return self.root / "var"
        if "OD_VAR" not in read_variables(self.folder) and not Path(stated).is_absolute():
            message = "OD_VAR in the environment is a relative path, so that it is another folder in every folder"
            raise OdError("OD-PROJECT-ENV", message, next_step=f"write it as {Path(stated).resolve()}")
        return (self.folder / stated).resolve()


def find_current_project() -> Project:
    """Return the project that the command line works on.

    It is the folder in ``OD_PROJECT``; otherwise the nearest Dagster project, from the working directory upwards;
    otherwise the checkout that contains this package. If the folder in ``OD_PROJECT`` is not a Dagster project, it is
    the root of the data, and the declarations are those of the project that would be found without it. Raises OdError
    if there is no project.
    """
    folder = os.environ.get("OD_PROJECT")
    stated = read_project(Path(folder).resolve()) if folder else None
    if stated is not None:
        return stated._with_root(None)
    here = Path.cwd().resolve()
    nearest = find_project_above(here) or (read_project(CHECKOUT) if IS_CHECKOUT else None)
    if nearest is None:
        raise OdError(
            "OD-PROJECT-ABSENT",
            f"{here} is not in a Dagster project: no folder from there upwards has a pyproject.toml with"
            " [tool.dg.project]",
            next_step="change to the folder of a project, name it in OD_PROJECT, or make one: create-dagster project",
        )
    return nearest._with_root(str(Path(folder).resolve()) if folder else None)


def find_project_above(folder: Path) -> Project | None:
    """Return the Dagster project of the nearest folder from a given one upwards; None if there is none."""
    return next(filter(None, map(read_project, (folder, *folder.parents))), None)


def read_project(root: Path) -> Project | None:
    """Return the Dagster project that a folder's ``dg.toml`` or ``pyproject.toml`` states; None if there is none.

    Raises OdError if its package cannot be found.
    """
    settings = _read_dg_settings(root).get("project")
    if not isinstance(settings, dict) or "root_module" not in settings:
        return None
    package = str(settings["root_module"])
    defs = _find_module_folder(root, str(settings.get("defs_module", f"{package}.defs")))
    return Project(root, defs, str(settings.get("code_location_target_module", f"{package}.definitions")))


def _read_dg_settings(root: Path) -> dict[str, Any]:
    """Return the settings of ``dg`` from ``dg.toml`` or ``pyproject.toml``; empty if there are none."""
    for name, path in (("dg.toml", ()), ("pyproject.toml", ("tool", "dg"))):
        try:
            settings = _parse_toml(root / name, (root / name).stat().st_mtime_ns)
            for part in path:
                settings = settings[part]
        except (OSError, ValueError, KeyError):
            continue
        return settings
    return {}


@cache
def _parse_toml(file: Path, _changed_at: int) -> dict[str, Any]:
    """Return the content of a TOML file. ``_changed_at`` is in the cache's key: a changed file is read again."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


ENVIRONMENT = "OD_ENVIRONMENT"
"""Variable with the name of the environment, such as ``staging``, which the ledger enters and holds it to."""

PLACES = ("OD_PROJECT", "OD_VAR", "OD_LEDGER", ENVIRONMENT)
"""Names of the variables that decide where a project writes and charges. The file ``.env`` may state them.

See :func:`read_variable`.
"""

INSTEAD: dict[str, str] = {}
"""Values that a test sets for :func:`read_variable`, by name; they precede those of the environment and ``.env``."""


def read_variable(name: str, folder: Path) -> str | None:
    """Return a variable of the ``.env`` of a project's folder or, if that does not state it, of the environment.

    Dagster's commands replace the environment by the ``.env`` of their working directory, which other processes do not
    read. It is read here so that all processes use one ledger. Raises OdError if the environment states another value
    than the project's ``.env``, or if the working directory is another folder and its ``.env`` has another value.
    """
    if name in INSTEAD:
        return INSTEAD[name]
    environment_value = os.environ.get(name)
    folders = _list_variable_folders(folder)
    file_values = [variables[name] for variables in map(_read_variable_file, folders) if name in variables]
    here = Path.cwd()
    value_here = None if here in folders else _read_variable_file(here).get(name)
    valid_values = {None, *(_resolve_value(name, value, folder) for value in file_values)}
    if value_here is not None and _resolve_value(name, value_here, folder) not in valid_values:
        source, step = str(here / ".env"), f"state it in {folder / '.env'} instead"
    elif file_values and _resolve_value(name, environment_value, folder) not in valid_values:
        source, step = "the environment", "state it in one of them only"
    else:
        return file_values[-1] if file_values else environment_value  # the project's own file is the last
    two = "environments" if name == ENVIRONMENT else "ledgers"
    message = f"{name} in {source} differs from {folder / '.env'}, so that one project would have two {two}"
    raise OdError("OD-PROJECT-ENV", message, next_step=step)


def _resolve_value(name: str, value: str | None, folder: Path) -> str | Path | None:
    """Return a variable's value in a form in which equal ones are equal: for ``OD_VAR``, the path without links."""
    return (folder / value).resolve() if name == "OD_VAR" and value else value


def read_variables(folder: Path) -> dict[str, str]:
    """Return all variables in the ``.env`` of a project's folder and of the ``dg`` workspace above it, as Dagster does.

    The project's own values replace those of the workspace. Raises OdError if a file cannot be read.
    """
    variables: dict[str, str] = {}
    for variable_folder in _list_variable_folders(folder):
        variables |= _read_variable_file(variable_folder)
    return variables


REPLACED: set[str] = set()
"""Names of the variables of the environment whose values :func:`load_variables` has replaced by others."""


def load_variables() -> None:
    """Set the variables in the ``.env`` of the current project in the environment, as ``dg`` does.

    Those of :data:`PLACES` are not set, except for :data:`ENVIRONMENT` if the environment does not state it:
    :func:`read_variable` reads them. Without a project, or if a file cannot be read, nothing is set.
    """
    with suppress(OdError):  # a command that needs a project says that there is none
        variables = read_variables(find_current_project().folder)
        REPLACED.clear()
        set_here = {name: value for name, value in variables.items() if name not in PLACES}
        REPLACED.update(name for name, value in set_here.items() if os.environ.get(name, value) != value)
        os.environ.update(set_here)
        if ENVIRONMENT in variables:
            os.environ.setdefault(ENVIRONMENT, variables[ENVIRONMENT])


def list_variable_files(folder: Path) -> list[Path]:
    """Return the existing ``.env`` files that a project reads: that of its ``dg`` workspace, then its own."""
    files = [variable_folder / ".env" for variable_folder in _list_variable_folders(folder)]
    return [file for file in files if os.path.lexists(file)]


@cache
def _list_variable_folders(folder: Path) -> list[Path]:
    """Return the folders whose ``.env`` a project reads: the nearest ``dg`` workspace above it, then its own."""
    workspaces = [place for place in folder.parents if "workspace" in _read_dg_settings(place)]
    return [*workspaces[:1], folder]


def _read_variable_file(folder: Path) -> dict[str, str]:
    """Return the variables of the file ``.env`` in a folder; none if there is no such file.

    Raises OdError if the file cannot be read.
    """
    file = folder / ".env"
    try:
        return _parse_variables(file, file.stat().st_mtime_ns) if os.path.lexists(file) else {}
    except (OSError, ValueError) as error:
        message = f"{file} cannot be read: {type(error).__name__}"
        step = "write it in UTF-8, readable for this user, each line as NAME=value"
        raise OdError("OD-PROJECT-ENV", message, next_step=step) from None


@cache
def _parse_variables(file: Path, _changed_at: int) -> dict[str, str]:
    """Return the variables of a file. ``_changed_at`` is part of the cache's key, so a changed file is read again.

    Raises ValueError if a line that cannot be parsed has the name of one of :data:`PLACES`.
    """
    from dotenv import dotenv_values  # as Dagster does
    from dotenv.parser import parse_stream

    with file.open(encoding="utf-8") as lines:
        faulty = "".join(line.original.string for line in parse_stream(lines) if line.error)
    if any(name in faulty for name in PLACES):  # such as a quote that is not closed
        raise ValueError(file)
    return {name: value for name, value in dotenv_values(file).items() if value is not None}


def _find_module_folder(root: Path, module: str) -> Path:
    """Return the folder of a package: in a project, perhaps below ``src``, or where it is installed.

    Raises OdError if there is none.
    """
    parts = module.split(".")
    for folder in (root / "src", root):
        if folder.joinpath(*parts).is_dir():
            return folder.joinpath(*parts)
    try:
        spec = find_spec(module)
    except ImportError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        message = f"the project in {root} names the module {module}, which does not exist"
        step = "correct defs_module or root_module in its pyproject.toml"
        raise OdError("OD-PROJECT-ABSENT", message, next_step=step)
    return Path(next(iter(spec.submodule_search_locations)))


DAGSTER_SETTINGS = Path(__file__).parent / "dagster.yaml"
"""Settings of Dagster for a project that has no Dagster home of its own."""


def locate_dagster_home(var: Path) -> Path:
    """Return Dagster's home below the ``var`` folder."""
    return var / "dagster"


def find_environment_home() -> Path | None:
    """Return the folder in ``DAGSTER_HOME`` if it has a ``dagster.yaml``; otherwise None, as for a new folder."""
    home = os.environ.get("DAGSTER_HOME")
    return Path(home).resolve() if home and (Path(home) / DAGSTER_SETTINGS.name).is_file() else None


def prepare_dagster_home() -> Path:
    """Return Dagster's home: the folder in ``DAGSTER_HOME`` if it has settings; otherwise a folder below ``var``.

    The folder below ``var`` is created with this package's settings, and ``DAGSTER_HOME`` is set to it.
    """
    own_home = locate_dagster_home(find_current_project().var)
    stated_folder = find_environment_home()
    if stated_folder is not None and stated_folder != own_home:
        return stated_folder
    make_folder(own_home)
    settings = DAGSTER_SETTINGS.read_bytes()
    own_settings = own_home / DAGSTER_SETTINGS.name
    if not own_settings.exists() or own_settings.read_bytes() != settings:
        write_durably(own_settings, lambda file: file.write_bytes(settings), mode=PUBLIC_FILE_MODE)
    os.environ["DAGSTER_HOME"] = str(own_home)
    return own_home
