"""Describe public areas: hierarchies of areas, and the flow tree of pairs of them."""
