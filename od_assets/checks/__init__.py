"""Blocking checks, by SQL for invariants and by Great Expectations for records and flows; and a daily verification."""
