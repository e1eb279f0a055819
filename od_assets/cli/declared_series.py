"""Read the declaration of a series for commands that only plan, and so need no Dagster."""

from __future__ import annotations

from od_assets.declared.reading import sound_series
from od_assets.declared.series import DeclaredSeries
from od_assets.series.names import declaration_file, declared_releases


def declared_series(name: str) -> DeclaredSeries:
    """Return the declaration of a release series. Dagster is imported only if the declaration needs it.

    Raises:
        OdError: as in :func:`od_assets.components.declarations.declaration`.
    """
    declared = sound_series(declaration_file(name)) if name in declared_releases() else None
    if declared is None:
        from od_assets.components.declarations import declaration

        return declaration(name)
    return declared
