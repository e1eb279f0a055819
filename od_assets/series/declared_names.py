"""Names of what is declared below ``defs``, by the types of components; no component is imported for it."""

from __future__ import annotations

from pathlib import Path

DEFS = Path(__file__).parents[1] / "defs"
"""The folder of declarations: one folder each, with ``defs.yaml``."""

RELEASES = tuple(f"od_assets.components.{name}" for name in ("OdRelease", "OdGroupSizes", "OdStops"))
"""Types of the components that release something, period after period."""

COMPARISON = "od_assets.components.OdComparison"


def declared_releases() -> tuple[str, ...]:
    """Return the names of the declared release series."""
    return _declared(*RELEASES)


def declared_comparisons() -> tuple[str, ...]:
    """Return the names of the declared comparisons of mechanisms."""
    return _declared(COMPARISON)


def component_type(path: Path) -> str:
    """Return the type that a declaration names; a file that names none is taken for a release, and refused as one."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    stated = next((line for line in lines if line.startswith("type:")), f"type: {RELEASES[0]}")
    return stated.removeprefix("type:").strip()


def _declared(*components: str) -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in DEFS.glob("*/defs.yaml") if component_type(path) in components))
