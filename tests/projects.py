"""Dagster projects of tests: a folder that ``dg`` takes for a project, with its declarations."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from od_assets.components import OdWarehouse

SETTINGS = """\
[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "declared"
code_location_target_module = "od_assets.definitions"
"""


def make_dg_project(root: Path) -> Path:
    """Make a folder a Dagster project without declarations, and return the folder of its declarations."""
    defs = root / "declared" / "defs"
    (defs / "domains").mkdir(parents=True, exist_ok=True)
    (root / "pyproject.toml").write_text(SETTINGS, encoding="utf-8")
    return defs


def with_warehouse(definitions: dg.Definitions) -> dg.Definitions:
    """Add what all releases of a project share, and its executor, as this repository declares both."""
    shared = OdWarehouse.model_validate({}).build_defs(None)
    return dg.Definitions.merge(definitions, shared, dg.Definitions(executor=dg.in_process_executor))
