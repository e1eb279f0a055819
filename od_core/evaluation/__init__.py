"""Compare releases with a known truth, for synthetic and public data; the results are not differentially private."""
