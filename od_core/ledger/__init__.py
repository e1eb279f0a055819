"""Account for the budget of releases, record their draws, and store their measurements."""
