"""What is protected, what it costs, and the noise that pays for it."""
