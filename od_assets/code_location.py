"""Load the definitions of a project as Dagster does, but without the declarations that are broken.

Dagster loads all declarations or none. Here, the other releases go on (docs/decisions/0034-broken-declarations.md).
"""

import importlib
import logging
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from od_assets.compatibility import is_left_out, leave_out_folders, skip_json_schemas
from od_assets.components.project import find_broken_declarations, list_all_faults
from od_assets.project import Project, find_current_project, find_project_above, read_project
from od_assets.resources.upstream import refuse_wrong_upstream
from od_assets.resources.warehouse import Warehouse
from od_assets.sensors.broken_declarations import BROKEN, make_faults_sensor, merge_faults
from od_assets.series.reading import list_series, read_series
from od_assets.series.section import (
    list_declaration_files,
    read_declaration_content,
    read_key_prefix,
    read_yaml_documents,
)
from od_core.errors import OdError, suggest_similar_name

_LOG = logging.getLogger(__name__)

VALIDATION = "DAGSTER_IS_DEFS_VALIDATION_CLI"
"""Environment variable that ``dg check defs`` sets, for code that is to behave differently in a check."""


def load_from_defs_folder(*, path_within_project: Path) -> dg.Definitions:
    """Return the definitions of a project, as Dagster's function of this name does, without broken declarations.

    The log names each declaration that is left out, and a sensor fails with their faults. In ``dg check defs``, nothing
    is left out, and a broken declaration raises OdError. A broken declaration of the warehouse, which every release
    needs, always raises OdError.
    """
    with _set_current_project(path_within_project.resolve()):
        faults = list_all_faults() if os.environ.get(VALIDATION) else []
        if faults:
            raise merge_faults(faults)
        return _load_unbroken_declarations(lambda: dg.load_from_defs_folder(path_within_project=path_within_project))


def load_definitions() -> dg.Definitions:
    """Return all definitions of the current project, as its code location has them, without broken declarations.

    Raises OdError if they cannot be loaded for another reason, or the declaration of the warehouse is broken.
    """
    project = find_current_project()
    try:
        with skip_json_schemas():
            definitions = _load_unbroken_declarations(lambda: _load_module_definitions(project))
    except OdError:
        raise
    except Exception as error:  # noqa: BLE001  # any exception of the project's code or YAML; no record is involved
        raise make_unloadable_error(error) from None
    warehouse = (definitions.resources or {}).get("od_warehouse")
    if isinstance(warehouse, Warehouse) and warehouse.var != project.var:
        other = f"another copy of the project, which writes to {warehouse.var} and not to {project.var}"
        raise make_unloadable_error(f"Python imports {project.module} from {other}")
    return definitions


def make_unloadable_error(why: str | Exception) -> OdError:
    """Return the error for a project whose definitions cannot be loaded.

    ``why`` is the message, or an exception. Of an exception, the message has its type and the last line of the project
    that raised it, but not its text, which may contain a password or another value of a variable. Only Dagster's text
    on invalid definitions is kept, which names assets.
    """
    message = why if isinstance(why, str) else f"{type(why).__name__}{_describe_place(why)}"
    if isinstance(why, dg.DagsterInvalidDefinitionError):
        message += f": {why}"
    return OdError("OD-CODE-LOCATION", message, next_step="correct the project; dg check defs shows the whole error")


def _describe_place(error: Exception) -> str:
    """Return the last line of the project in an exception's traceback, such as `` in a.py, line 3``; or empty text."""
    root = find_current_project().root.resolve()
    lines = [
        line
        for line in traceback.extract_tb(error.__traceback__)
        if Path(line.filename).resolve().is_relative_to(root) and "site-packages" not in line.filename
    ]
    return f" in {Path(lines[-1].filename).name}, line {lines[-1].lineno}" if lines else ""


def _load_module_definitions(project: Project) -> dg.Definitions:
    """Return the definitions in the module of a project. Raises OdError if it has none, or is another project's."""
    module = importlib.import_module(project.module)
    declaring = find_project_above(project.defs.resolve().parent)
    imported = find_project_above(Path(str(module.__file__)).resolve().parent)
    # Installed packages are in no project.
    if declaring is not None and imported is not None and declaring.root != imported.root:
        raise make_unloadable_error(
            f"Python imports {project.module} from another copy of the project, {imported.root}, not from"
            f" {declaring.root}"
        )
    found = getattr(module, "defs", None)
    definitions = found() if callable(found) else found
    if not isinstance(definitions, dg.Definitions):
        raise make_unloadable_error(f"{project.module} has no definitions named defs")
    return definitions


def _load_unbroken_declarations(load: Callable[[], dg.Definitions]) -> dg.Definitions:
    """Return the result of a loader of declarations; if it fails, load again without the broken declarations.

    Raises the error of the loader if no declaration is broken. Raises OdError if the warehouse would be left out or,
    where Dagster only validates definitions, for any fault.
    """
    try:
        _refuse_endless_aliases()
        definitions = load()
    except Exception:
        faults = find_broken_declarations() or _find_refused_declarations(load)
        if not faults:
            raise
    else:
        faults = _find_upstream_faults(definitions)
        if os.environ.get(VALIDATION):
            all_faults = [*faults.values(), *_find_misspelt_keys(definitions)]
            if all_faults:
                raise merge_faults(all_faults) from None
        if not faults:
            return definitions
    with leave_out_folders(path.parent for path in faults):
        definitions = load()
    if "od_warehouse" not in (definitions.resources or {}):
        raise merge_faults(faults.values())
    for path, fault in faults.items():
        _LOG.error("the folder %s is left out, because its declaration is broken: %s", path.parent, fault)
    sensor = make_faults_sensor(BROKEN, {path.parent.name: fault for path, fault in faults.items()})
    return dg.Definitions.merge(definitions, dg.Definitions(sensors=[sensor]))


def _find_refused_declarations(load: Callable[[], dg.Definitions]) -> dict[Path, OdError]:
    """Return the fault of each declaration that Dagster refuses for its ``post_processing``, by file.

    Return none if the project does not even load without all declarations that have this section.
    """
    processed = [path for path in list_declaration_files() if b"post_processing:" in read_declaration_content(path)]
    if _try_without(load, processed) is not None:
        return {}
    # Each is loaded alone, without the others.
    errors = {path: _try_without(load, [other for other in processed if other != path]) for path in processed}
    return {
        path: error.with_changes(message=f"{path.parent.name}/{path.name}: post_processing: {error.message}")
        for path, error in errors.items()
        if error is not None
    }


def _try_without(load: Callable[[], dg.Definitions], files: Iterable[Path]) -> OdError | None:
    """Return the error with which a project does not load even without some declarations; None if it loads."""
    try:
        with leave_out_folders(path.parent for path in files):
            load()
    except Exception as error:  # noqa: BLE001  # any exception of the project's code or YAML; no record is involved
        return make_unloadable_error(error)
    return None


def _refuse_endless_aliases() -> None:
    """Raise OdError for a declaration whose aliases stand for too many values, all of which Dagster would construct.

    Declarations that are left out already are not read.
    """
    for path in list_declaration_files():
        if not is_left_out(path.parent) and b"&" in read_declaration_content(path):
            read_yaml_documents(path, path.parent.name)


def _find_upstream_faults(definitions: dg.Definitions) -> dict[Path, OdError]:
    """Return the fault of every declaration with an upstream asset that is absent or does not fit, by file."""
    faults = {}
    prefix = read_key_prefix(find_current_project())
    for source in list_series():
        if b"asset:" not in read_declaration_content(source.path):
            continue
        graph = definitions.resolve_asset_graph()
        if graph.has(dg.AssetKey([*prefix, source.graph, "bundle"])):  # unless it is left out already
            try:
                refuse_wrong_upstream(read_series(source), graph)
            except OdError as error:
                faults[source.path] = error.with_file(source.describe())
    return faults


def _find_misspelt_keys(definitions: dg.Definitions) -> Iterator[OdError]:
    """Yield a fault for each asset that only ``deps`` name, and whose key is close to that of an asset of a release."""
    nodes = [*definitions.resolve_asset_graph().asset_nodes]
    release_keys = tuple(node.key.to_user_string() for node in nodes if "od/unit" in node.tags)
    for node in nodes:
        key = node.key.to_user_string()
        suggestion = suggest_similar_name(key, release_keys) if node.assets_def.is_auto_created_stub else ""
        if suggestion:
            below = " and ".join(sorted(child.to_user_string() for child in node.child_keys))
            step = "correct the key in deps; declare an asset of another code location as dg.AssetSpec"
            message = f"{below} depends on {key}, which this code location does not have{suggestion}"
            yield OdError("OD-UPSTREAM", message, next_step=step)


@contextmanager
def _set_current_project(path: Path) -> Iterator[None]:
    """Make the project that contains a path the current one, by setting ``OD_PROJECT`` in this context.

    Dagster may load several projects from a folder that is in none of them. Nothing is set if no project contains the
    path, or if ``OD_PROJECT`` names a folder of data rather than a project.
    """
    stated_folder = os.environ.get("OD_PROJECT")
    root = next(filter(read_project, (path, *path.parents)), None)
    if root is None or (stated_folder and read_project(Path(stated_folder).resolve()) is None):
        yield
        return
    os.environ["OD_PROJECT"] = str(root)
    try:
        yield
    finally:
        if stated_folder is None:
            del os.environ["OD_PROJECT"]
        else:
            os.environ["OD_PROJECT"] = stated_folder
