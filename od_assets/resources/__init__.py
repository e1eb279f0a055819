"""What the assets stand on."""
