"""Comparison with a known truth: for synthetic and public data. Nothing in here is private."""
