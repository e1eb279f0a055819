"""Read confidential records, decide which are valid, and count them in tree order."""
