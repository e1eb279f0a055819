"""Define what is protected, and account for what a release spends."""
