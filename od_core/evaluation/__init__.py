"""Compare releases with true flows that are synthetic or public. The results are not differentially private."""
