"""Keys of the assets of a release's levels."""

import dagster as dg

from od_assets.series.settings import ReleaseSettings


def measurement_key(settings: ReleaseSettings, level: int) -> dg.AssetKey:
    """Key of a level's noisy measurement; the graph shows its last part alone."""
    return dg.AssetKey([settings.name, "levels", f"noisy_measurement_{_padded(settings, level)}"])


def estimate_key(settings: ReleaseSettings, level: int) -> dg.AssetKey:
    """Key of a level's estimate."""
    return dg.AssetKey([settings.name, "levels", f"estimate_{_padded(settings, level)}"])


def refined_key(settings: ReleaseSettings) -> dg.AssetKey:
    """Key of the refined flows."""
    return dg.AssetKey([settings.name, "refined_flows"])


def released_key(settings: ReleaseSettings) -> dg.AssetKey:
    """Key of the asset whose leaves are published."""
    return refined_key(settings) if settings.mechanism.refines else estimate_key(settings, settings.depth)


def _padded(settings: ReleaseSettings, level: int) -> str:
    """Levels are sorted as text."""
    return str(level).zfill(len(str(settings.depth)))
