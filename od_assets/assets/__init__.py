"""Define the Dagster assets of release series and comparisons from their settings."""
