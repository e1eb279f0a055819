"""Dagster resources: the warehouse, and the channel of notices."""
