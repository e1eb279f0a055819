"""Define Dagster resources and the work on releases that uses them."""
