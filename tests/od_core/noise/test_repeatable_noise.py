"""Noise that can be repeated is known to evaluations alone, which no release imports."""

from __future__ import annotations

import ast
from pathlib import Path

import od_assets
import od_core

NAMES = {"simulated", "RepeatableNoise"}
"""Names of what makes noise from given numbers."""


def test_only_evaluations_and_dry_runs_name_it() -> None:
    roots = [Path(package.__file__ or "").parent for package in (od_core, od_assets)]
    found = set()
    for path in (path for root in roots for path in root.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        if names & NAMES:
            found.add(path.stem if path.parent.name == "od_assets" else path.parent.name)
    assert found == {"evaluation", "testing"}
