"""A release cut into parts of the flow tree, each worked on by itself: out of core on one machine, or on Spark."""
