"""Compare releases with a known truth, for synthetic and public data. Nothing in this package is private."""
