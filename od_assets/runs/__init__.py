"""Run releases and comparisons with their Dagster jobs, and follow these runs."""
