"""Trips with stops, as points of a public grid: disjoint boxes with noisy counts that answer range queries (spec 5)."""
