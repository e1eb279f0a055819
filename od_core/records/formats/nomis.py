"""Describe the NOMIS tables of commuters in the United Kingdom, by area of residence and of work (2011, 2021).

Census of 2011, tables such as WU01EW and WU03EW: "Area of usual residence" or "Area of residence", "Area of workplace",
and a column for all categories of the table's variable ("All categories: Sex") before those for each of them. The
workplace is OD0000001 for work mainly at or from home, OD0000002 for an offshore installation, OD0000003 for no fixed
place and OD0000004 for work outside the United Kingdom. Source: Office for National Statistics, 2011 Census
origin-destination tables, https://www.nomisweb.co.uk/census/2011/wu01ew.

Census of 2021, table ODWP01EW: code and label of the area of residence ("Lower tier local authorities code") and of the
workplace ("LTLA of workplace code"), "Place of work indicator (4 categories) code" with its label, and "Count". Under
indicator 1 (at or from home, no fixed place) the workplace is the residence. Indicator 3 is work at another place in
the United Kingdom. People without a workplace in the United Kingdom have the code 999999999. Source: Office for
National Statistics, Census 2021 origin-destination workplace data, https://www.nomisweb.co.uk/sources/census_2021_od.
"""

from __future__ import annotations

from od_core.records.format import RecordColumns, RecordFormat

NOMIS = RecordFormat(
    "nomis",
    "csv",
    RecordColumns(
        (
            "Area of usual residence",
            "Area of residence",
            "Lower tier local authorities code",
            "Upper tier local authorities code",
            "Middle layer Super Output Areas code",
            "Lower layer Super Output Areas code",
            "Output Areas code",
        ),
        (
            "Area of workplace",
            "LTLA of workplace code",
            "UTLA of workplace code",
            "MSOA of workplace code",
            "LSOA of workplace code",
            "OA of workplace code",
        ),
        trips=("Count", "All categories: Sex", "All categories: Method of travel to work"),
    ),
    nowhere=("OD0000001", "OD0000002", "OD0000003", "OD0000004", "999999999"),
)
"""Format with one row per pair of areas, and in 2021 one row per pair and indicator."""
