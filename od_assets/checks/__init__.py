"""Blocking checks: SQL for the invariants, Great Expectations for records and the published table."""
