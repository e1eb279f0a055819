"""Draw exact noise that no other process can repeat: the sources of discrete Gaussian and Laplace noise."""
