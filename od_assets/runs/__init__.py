"""Run releases, comparisons and verification, and follow Dagster runs."""
