"""Account for the budget of releases, record their draws, and keep their measurements."""
