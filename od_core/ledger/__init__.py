"""Account for the budget: what is charged, what was drawn, and where measurements are kept."""
