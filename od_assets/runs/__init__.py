"""Run one period through Dagster, and follow what happens."""
