"""Watch for new files, open periods and failures."""
