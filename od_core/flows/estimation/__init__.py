"""Estimate consistent integers, and their intervals, from noisy measurements."""
