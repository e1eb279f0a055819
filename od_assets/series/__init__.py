"""Resolve declarations in YAML to the settings of series."""
