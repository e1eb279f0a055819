"""Describe the LODES files: numbers of jobs by census block of home and of work in the United States.

LODES stands for LEHD Origin-Destination Employment Statistics. An OD file (``ca_od_main_JT00_2021.csv.gz``) has the
columns w_geocode, h_geocode, S000 (all jobs), SA01 to SA03 (by age), SE01 to SE03 (by earnings), SI01 to SI03 (by
industry) and createdate. A geocode is the 15-digit code of the block; it begins with the state's code, including a
leading zero. Source: U.S. Census Bureau, "LODES 8 technical documentation", Origin-Destination (OD) file structure,
https://lehd.ces.census.gov/data/lodes/LODES8/LODESTechDoc8.1.pdf.
"""

from __future__ import annotations

from od_core.records.format import RecordColumns, RecordFormat

LODES = RecordFormat("lodes", "csv", RecordColumns(("h_geocode",), ("w_geocode",), trips=("S000",)))
"""Format with one row per pair of blocks. A declaration may name another column of jobs instead of S000."""
