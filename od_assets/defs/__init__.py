"""Declarations of this project: one folder per release or comparison, the domains, the warehouse and the executor."""
