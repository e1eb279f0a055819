"""Dagster projects of tests: a folder that ``dg`` takes for a project, with its declarations."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from od_assets.components import OdWarehouse

SETTINGS = """\
[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "declared"
code_location_target_module = "od_assets.definitions"
"""


DEFINED = """
from pathlib import Path

import dagster as dg
from {package} import load_from_defs_folder


@dg.definitions
def defs():
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
"""Definitions of a team's own, which are those of its folder of declarations."""


def make_dg_project(root: Path) -> Path:
    """Make a folder a Dagster project without declarations, and return the folder of its declarations."""
    defs = root / "declared" / "defs"
    (defs / "domains").mkdir(parents=True, exist_ok=True)
    (root / "pyproject.toml").write_text(SETTINGS, encoding="utf-8")
    return defs


def declare(defs: Path, folder: str, component: str, attributes: Mapping[str, Any]) -> Path:
    """Write the declaration of a component into a folder below that of the declarations, and return the file."""
    path = defs / folder / "defs.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.dump({"type": f"od_assets.components.{component}", "attributes": dict(attributes)}, sort_keys=False)
    path.write_text(text, encoding="utf-8")
    return path


def declare_domain(defs: Path, domain: Mapping[str, Any]) -> None:
    """Write the privacy domain of a data set."""
    (defs / "domains" / f"{domain['name']}.yaml").write_text(yaml.dump(dict(domain)), encoding="utf-8")


def define_all(root: Path, package: str = "od_assets.code_location") -> None:
    """Give a project definitions of its own, ``declared.all``, which a function of a package loads."""
    settings = (root / "pyproject.toml").read_text(encoding="utf-8")
    settings = settings.replace("od_assets.definitions", "declared.all")
    (root / "pyproject.toml").write_text(settings, encoding="utf-8")
    (root / "declared" / "all.py").write_text(DEFINED.format(package=package), encoding="utf-8")


def with_warehouse(definitions: dg.Definitions) -> dg.Definitions:
    """Add what all releases of a project share, and its executor, as this repository declares both."""
    shared = OdWarehouse.model_validate({}).build_defs(None)
    return dg.Definitions.merge(definitions, shared, dg.Definitions(executor=dg.in_process_executor))
