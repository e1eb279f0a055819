"""Estimate group sizes from noisy values."""
