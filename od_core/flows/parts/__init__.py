"""Release flows in parts of the flow tree, each processed by itself: out of core on one machine, or on Spark."""
