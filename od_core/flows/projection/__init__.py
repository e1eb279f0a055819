"""Project the noisy counts of a node's children onto non-negative integers that sum to the node's trips."""
