"""The Dagster project: it arranges calls of od_core."""
