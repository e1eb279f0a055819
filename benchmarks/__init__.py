"""Measurements of time and memory: ``python -m benchmarks.<name> --json``."""
