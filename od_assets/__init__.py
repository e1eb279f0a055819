"""The Dagster project and the command line, which orchestrate calls of od_core."""
