"""LODES: jobs by census block of home and of work, of the United States (LEHD Origin-Destination Statistics).

An OD file (``ca_od_main_JT00_2021.csv.gz``) has the columns w_geocode, h_geocode, S000 (all jobs), SA01 to SA03 (by
age), SE01 to SE03 (by earnings), SI01 to SI03 (by industry) and createdate. A geocode is the block's 15 digits, the
first of them the state's, with its zero. Source: U.S. Census Bureau, "LODES 8 technical documentation",
Origin-Destination (OD) file structure, https://lehd.ces.census.gov/data/lodes/LODES8/LODESTechDoc8.1.pdf.
"""

from __future__ import annotations

from od_core.records.format import RecordColumns, RecordFormat

LODES = RecordFormat("lodes", "csv", RecordColumns(("h_geocode",), ("w_geocode",), trips=("S000",)))
"""One row a pair of blocks; another column of jobs than S000 may be stated."""
