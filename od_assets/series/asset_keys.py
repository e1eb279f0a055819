"""Build the Dagster keys of the assets of a release's levels."""

import dagster as dg

from od_assets.series.flows import FlowSeries


def measurement_key(series: FlowSeries, level: int) -> dg.AssetKey:
    """Return the asset key of a level's noisy measurement. Dagster's graph shows only the last part of the key."""
    return dg.AssetKey([series.name, "levels", f"noisy_measurement_{_padded(series, level)}"])


def estimate_key(series: FlowSeries, level: int) -> dg.AssetKey:
    """Return the asset key of a level's estimate."""
    return dg.AssetKey([series.name, "levels", f"estimate_{_padded(series, level)}"])


def refined_key(series: FlowSeries) -> dg.AssetKey:
    """Return the asset key of the refined flows."""
    return dg.AssetKey([series.name, "refined_flows"])


def released_key(series: FlowSeries) -> dg.AssetKey:
    """Return the asset key of the estimate whose leaves are published: refined, or of the leaf level."""
    return refined_key(series) if series.mechanism.refines else estimate_key(series, series.depth)


def _padded(series: FlowSeries, level: int) -> str:
    """Return the number of a level padded with zeros, because Dagster sorts names as text."""
    return str(level).zfill(len(str(series.depth)))
