"""Describe the NOMIS tables of commuters in the United Kingdom, by area of residence and of work (2011, 2021).

Census of 2011: tables such as WU01EW and WU03EW have the columns "Area of usual residence" or "Area of residence" and
"Area of workplace", then the total over the categories of a variable (such as "All categories: Sex"), then one column
per category. The workplace is OD0000001 for work mainly at or from home, OD0000002 for an offshore installation,
OD0000003 for no fixed place and OD0000004 for work outside the United Kingdom. Source: Office for National Statistics,
2011 Census origin-destination tables, https://www.nomisweb.co.uk/census/2011/wu01ew.

Census of 2021: table ODWP01EW has the code and the label of the area of residence ("Lower tier local authorities
code"), of the workplace ("LTLA of workplace code") and of the indicator ("Place of work indicator (4 categories)
code"), and the column "Count". If the indicator is 1 (at or from home, or no fixed place), the workplace is the area of
residence. If it is 3, the workplace is another place in the United Kingdom. People without a workplace in the United
Kingdom have the code 999999999. Source: Office for National Statistics, Census 2021 origin-destination workplace data,
https://www.nomisweb.co.uk/sources/census_2021_od.
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
"""Format with one row per pair of areas (2011), or one row per pair of areas and indicator (2021)."""
