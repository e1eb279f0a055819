"""The assets of one release, made from its settings."""
