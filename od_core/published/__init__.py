"""Open published releases of any kind, and verify them."""
