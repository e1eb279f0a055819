"""Find the names of the releases and comparisons declared below ``defs``, without importing a component."""

from __future__ import annotations

from pathlib import Path

DEFS = Path(__file__).parents[1] / "defs"
"""Folder of the declarations; each is a ``defs.yaml`` in a folder of its own."""

RELEASES = tuple(f"od_assets.components.{name}" for name in ("OdRelease", "OdGroupSizes", "OdStops"))
"""Types of the components of release series."""

COMPARISON = "od_assets.components.OdComparison"


def declared_releases() -> tuple[str, ...]:
    """Return the names of the declared release series."""
    return _declared(*RELEASES)


def declared_comparisons() -> tuple[str, ...]:
    """Return the names of the declared comparisons of mechanisms."""
    return _declared(COMPARISON)


def component_type(path: Path) -> str:
    """Return the type that a declaration names.

    A file without a type counts as a release of flows; reading it as such a declaration reports the fault.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    stated = next((line for line in lines if line.startswith("type:")), f"type: {RELEASES[0]}")
    return stated.removeprefix("type:").strip()


def _declared(*components: str) -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in DEFS.glob("*/defs.yaml") if component_type(path) in components))
