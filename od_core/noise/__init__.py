"""Draw exact discrete Gaussian and discrete Laplace noise from generators that no other process can repeat."""
