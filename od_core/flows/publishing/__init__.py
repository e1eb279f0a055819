"""Publish a release of flows: write its files, tables, report and database rows."""
