"""Choose how a budget is divided among the levels of a release, from public facts alone."""
