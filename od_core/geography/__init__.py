"""Describe public areas: geographies, and the flow tree of pairs of areas."""
