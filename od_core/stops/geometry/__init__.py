"""Describe grids, boxes of cells, and the questions that are asked of them."""
