"""Run releases and look at them from the command line."""
