"""Estimate flows as integers that are consistent between levels, and compute intervals, from noisy measurements."""
