"""The command line, ``od-release``: plan, run and inspect releases."""
