"""Release flows in parts of the flow tree, which are processed separately: out of core on one machine, or on Spark."""
