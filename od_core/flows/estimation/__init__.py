"""From noisy measurements to consistent integers."""
