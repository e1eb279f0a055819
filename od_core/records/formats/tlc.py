"""TLC: monthly Parquet files of trips by yellow and green taxi and for-hire vehicle, of New York City.

The places of a trip are PULocationID and DOLocationID (PUlocationID and DOlocationID of for-hire vehicles), whole
numbers from 1 to 263, stored as integers or, where some are missing, as floating-point numbers; of for-hire vehicles
most may be missing. 264 is an unknown place, 265 one outside the city. The trip began at tpep_pickup_datetime (yellow),
lpep_pickup_datetime (green) or pickup_datetime (for-hire, also Pickup_DateTime), a local time without zone. Source:
NYC Taxi and Limousine Commission, data dictionaries of the trip records and the taxi zone lookup table,
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
    one_row_a_trip=True,
    has_numbered_zones=True,
    nowhere=("", "264", "265"),
)
"""One row a trip. The first of the columns of times that a file has is the one that is read."""
