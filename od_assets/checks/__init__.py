"""Define blocking checks, with SQL and Great Expectations, and the daily verification of published releases."""
