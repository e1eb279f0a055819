"""Read confidential records, validate them and count them in tree order."""
