"""One parent's noisy children to integers of at least 0 with a given sum."""

from od_core.flows.projection.chebyshev import intopt

__all__ = ["intopt"]
