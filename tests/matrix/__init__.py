"""A matrix of releases: every valid pair of options, from the plan to the site, and what must hold on each."""
