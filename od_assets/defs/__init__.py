"""Declarations of the project: one folder per release or comparison, the domains, and shared resources."""
