"""Describe the monthly Parquet files of taxi and for-hire vehicle trips of New York City (TLC).

The columns PULocationID and DOLocationID (PUlocationID and DOlocationID for for-hire vehicles) contain the taxi zones
where a trip began and ended. Zones are whole numbers from 1 to 263, stored as integers, or as floating-point numbers if
some are missing. For for-hire vehicles, most may be missing. 264 is an unknown place, and 265 a place outside the city.
The time at which the trip began is in tpep_pickup_datetime (yellow taxis), lpep_pickup_datetime (green taxis) or
pickup_datetime (for-hire vehicles, also Pickup_DateTime). It is a local time without a zone.
Source: NYC Taxi and Limousine Commission, data dictionaries of the trip records and the taxi zone lookup table,
https://www.nyc.gov/site/tlc/about/tlc-trip-record-data.page.
"""

from __future__ import annotations

from od_core.records.format import RecordColumns, RecordFormat

TLC = RecordFormat(
    "tlc",
    "parquet",
    RecordColumns(
        ("PULocationID",),
        ("DOLocationID",),
        date=("tpep_pickup_datetime", "lpep_pickup_datetime", "pickup_datetime"),
    ),
    takes=("timestamps",),
    one_row_a_trip=True,
    has_numbered_zones=True,
    nowhere=("", "264", "265"),
)
"""Format with one row per trip. The time is read from the first listed time column that the file has."""
