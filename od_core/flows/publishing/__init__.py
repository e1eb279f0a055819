"""Publish flows: the files, tables, report and database rows of a release of flows."""
