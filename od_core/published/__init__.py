"""Open and verify published releases of any kind."""
