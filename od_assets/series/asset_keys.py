"""Build the Dagster keys of the assets of a release's levels."""

import dagster as dg

from od_assets.series.flows import FlowSeries


def measurement_key(settings: FlowSeries, level: int) -> dg.AssetKey:
    """Return the asset key of a level's noisy measurement. Dagster's graph shows only the last part of the key."""
    return dg.AssetKey([settings.name, "levels", f"noisy_measurement_{_padded(settings, level)}"])


def estimate_key(settings: FlowSeries, level: int) -> dg.AssetKey:
    """Return the asset key of a level's estimate."""
    return dg.AssetKey([settings.name, "levels", f"estimate_{_padded(settings, level)}"])


def refined_key(settings: FlowSeries) -> dg.AssetKey:
    """Return the asset key of the refined flows."""
    return dg.AssetKey([settings.name, "refined_flows"])


def released_key(settings: FlowSeries) -> dg.AssetKey:
    """Return the asset key of the estimate whose leaves are published: refined, or of the leaf level."""
    return refined_key(settings) if settings.mechanism.refines else estimate_key(settings, settings.depth)


def _padded(settings: FlowSeries, level: int) -> str:
    """Return the number of a level padded with zeros, because Dagster sorts names as text."""
    return str(level).zfill(len(str(settings.depth)))
