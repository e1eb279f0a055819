"""What a release means, said once."""
