"""Write small projects of declarations, which ``od-release`` then runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILES = {
    "pyproject.toml": '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "declared"\n',
    "declared/definitions.py": """\
from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
""",
}


def write_project(root: Path, domain: Mapping[str, Any], series: list[dict[str, Any]]) -> None:
    """Declare a data set, series of it by their attributes, and the database, in a new project."""
    declared = {f"domains/{domain['name']}": json.dumps(domain), "warehouse/defs": _component("OdWarehouse", {})}
    declared |= {f"{one['name']}/defs": _component("OdRelease", one) for one in series}
    texts = {f"declared/defs/{name}.yaml": text for name, text in declared.items()}
    for name, text in {**FILES, **texts}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def _component(name: str, attributes: Mapping[str, Any]) -> str:
    return f"type: od_assets.components.{name}\nattributes: {json.dumps(attributes)}\n"  # JSON is YAML, too
