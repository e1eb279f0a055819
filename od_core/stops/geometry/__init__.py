"""Define grids, boxes of cells, and range queries on them."""
