"""Project noisy children onto non-negative integers that sum to their parent."""

from od_core.flows.projection.chebyshev import intopt

__all__ = ["intopt"]
