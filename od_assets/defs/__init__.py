"""What the project is made of: one folder a release, and what all releases share."""
