"""Files of mobility feeds in their published layouts, made by the json and csv modules.

Names and order of the fields are those of the specification of each feed; see ``formats.yaml`` for the sources.
"""

import csv
import datetime
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

PROVIDER = "48415839-3e38-4ba5-a557-e45fb4e6a0a3"

Point = tuple[float | None, float | None]
"""Longitude and latitude; None where the field is absent."""

MdsTrip = tuple[Point, Point, int]
"""Start, end, and the time of the start in milliseconds."""


def make_mds_2_trip(number: int, trip: MdsTrip) -> dict[str, Any]:
    start, end, time = trip
    return {
        "provider_id": PROVIDER,
        "device_id": str(UUID(int=number % 7)),
        "trip_id": str(UUID(int=number)),
        "start_time": time,
        "end_time": time + 600_000,
        **{f"{name}_location": _make_gps(point) for name, point in (("start", start), ("end", end))},
        "duration": 600,
        "distance": 1200,
    }


def _make_gps(point: Point) -> dict[str, float]:
    named = zip(("lat", "lng"), reversed(point), strict=True)
    return {name: degrees for name, degrees in named if degrees is not None} | {"horizontal_accuracy": 3.0}


def make_mds_1_trip(number: int, trip: MdsTrip) -> dict[str, Any]:
    """The first and the last point of the route, and between them one on the other side of the world."""
    start, end, time = trip
    features = [
        {
            "type": "Feature",
            "properties": {"timestamp": time + place},
            "geometry": {"type": "Point", "coordinates": [longitude, latitude]},
        }
        for place, (longitude, latitude) in enumerate((start, (-170.0, -60.0), end))
    ]
    return {
        "provider_id": PROVIDER,
        "provider_name": 'An "operator", {of} [scooters]',
        "device_id": str(UUID(int=number % 7)),
        "vehicle_id": "7",
        "vehicle_type": "scooter",
        "propulsion_types": ["electric"],
        "trip_id": str(UUID(int=number)),
        "trip_duration": 600,
        "trip_distance": 1200,
        "route": {"type": "FeatureCollection", "features": features},
        "accuracy": 5,
        "start_time": time,
        "end_time": time + 600_000,
    }


def make_mds(trips: Iterable[MdsTrip], version: int = 2) -> str:
    """The answer of /trips of MDS 2.0.2 or 1.2.0."""
    make_trip = make_mds_2_trip if version == 2 else make_mds_1_trip
    listed = {"trips": [make_trip(number, trip) for number, trip in enumerate(trips)]}
    payload = {"version": "2.0.2", **listed} if version == 2 else {"version": "1.2.0", "data": listed}
    return json.dumps(payload, indent=1 if version == 1 else None)


def make_csv(header: str, rows: Iterable[dict[str, object]]) -> str:
    """CSV with the columns of a header, which are blank where a row has no value."""
    text = io.StringIO()
    writer = csv.DictWriter(text, header.split(","), lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


LYFT = (
    "ride_id,rideable_type,started_at,ended_at,start_station_name,start_station_id,end_station_name,end_station_id,"
    "start_lat,start_lng,end_lat,end_lng,member_casual"
)
CITI_BIKE = (
    "tripduration,starttime,stoptime,start station id,start station name,start station latitude,"
    "start station longitude,end station id,end station name,end station latitude,end station longitude,bikeid,"
    "usertype,birth year,gender"
)
CITI_BIKE_2016 = (
    "Trip Duration,Start Time,Stop Time,Start Station ID,Start Station Name,Start Station Latitude,"
    "Start Station Longitude,End Station ID,End Station Name,End Station Latitude,End Station Longitude,Bike ID,"
    "User Type,Birth Year,Gender"
)
BIXI_2014 = "start_date,start_station_code,end_date,end_station_code,duration_sec,is_member"
BIXI_2021 = "start_date,emplacement_pk_start,end_date,emplacement_pk_end,duration_sec,is_member"
BIXI_2022 = (
    "STARTSTATIONNAME,STARTSTATIONARRONDISSEMENT,STARTSTATIONLATITUDE,STARTSTATIONLONGITUDE,ENDSTATIONNAME,"
    "ENDSTATIONARRONDISSEMENT,ENDSTATIONLATITUDE,ENDSTATIONLONGITUDE,STARTTIMEMS,ENDTIMEMS"
)
BIKES = {
    "lyft": (LYFT, "start_station_id", "end_station_id", "started_at"),
    "lyft of Citi Bike until 2021": (CITI_BIKE, "start station id", "end station id", "starttime"),
    "lyft of Citi Bike in 2016": (CITI_BIKE_2016, "Start Station ID", "End Station ID", "Start Time"),
    "bixi until 2020": (BIXI_2014, "start_station_code", "end_station_code", "start_date"),
    "bixi of 2021": (BIXI_2021, "emplacement_pk_start", "emplacement_pk_end", "start_date"),
    "bixi since 2022": (BIXI_2022, "STARTSTATIONNAME", "ENDSTATIONNAME", "STARTTIMEMS"),
}
"""Header of each layout of bike-share trips, and its columns of stations and of the time. The reader comes first."""


def make_bikes(layout: str, trips: Iterable[tuple[str, str, datetime.datetime]]) -> str:
    """Trips between stations, with the time of their start in UTC or, but for milliseconds, as a local time."""
    header, origin, destination, time = BIKES[layout]
    rows = []
    for start, end, began in trips:
        is_in_milliseconds = time == "STARTTIMEMS"
        written = round(began.timestamp() * 1000) if is_in_milliseconds else began.strftime("%Y-%m-%d %H:%M:%S.123")
        rows.append({origin: start, destination: end, time: written})
    return make_csv(header, rows)


GTFS_RIDE = (
    "trip_id,stop_id,stop_sequence,record_use,schedule_relationship,boardings,alightings,current_load,load_type,"
    "rack_down,bike_boardings,bike_alightings,ramp_used,ramp_boardings,ramp_alightings,service_date,"
    "service_arrival_time,service_departure_time,source"
)
TIDES_STOP_VISITS = (
    "service_date,trip_id_performed,trip_stop_sequence,scheduled_stop_sequence,pattern_id,vehicle_id,dwell,stop_id,"
    "timepoint,schedule_arrival_time,schedule_departure_time,actual_arrival_time,actual_departure_time,distance,"
    "boarding_1,alighting_1,boarding_2,alighting_2,departure_load,door_open,door_close,door_status,ramp_deployed_time,"
    "ramp_failure,kneel_deployed_time,lift_deployed_time,bike_rack_deployed,bike_load,revenue,number_of_transactions,"
    "schedule_relationship"
)
TIDES_PASSENGER_EVENTS = (
    "passenger_event_id,service_date,event_timestamp,location_ping_id,trip_id_performed,trip_id_scheduled,"
    "trip_stop_sequence,scheduled_stop_sequence,event_type,vehicle_id,device_id,train_car_id,stop_id,pattern_id,"
    "event_count"
)


def make_gtfs_ride(rows: Sequence[tuple[str, str, object, str]]) -> str:
    """Rows of board_alight.txt: stop, day as YYYYMMDD, boardings and record_use. Alightings are one more."""
    return make_csv(
        GTFS_RIDE,
        (
            {
                "trip_id": f"T{number // 3}",
                "stop_id": stop,
                "stop_sequence": number % 3 + 1,
                "record_use": use,
                "boardings": boardings,
                "alightings": boardings if boardings == "" else int(str(boardings)) + 1,
                "service_date": day,
                "service_arrival_time": "6:15:00",
            }
            for number, (stop, day, boardings, use) in enumerate(rows)
        ),
    )
