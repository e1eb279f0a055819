"""Release trips with stops: divide a public grid into boxes, and publish a noisy count of the trips in each box.

Range queries are answered from these counts.
"""
