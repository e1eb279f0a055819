"""Define blocking checks and a daily verification.

SQL queries check invariants. Great Expectations checks records and flows.
"""
