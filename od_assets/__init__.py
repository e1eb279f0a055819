"""Dagster project and command line of the releases, which are computed by od_core."""
