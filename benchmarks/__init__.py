"""Measure time, memory and accuracy: ``python -m benchmarks.<name> --json``."""
