"""Estimate the group sizes of areas from noisy histograms, cumulative counts or sorted sizes."""
