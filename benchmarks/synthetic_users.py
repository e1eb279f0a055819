"""Make up users and their trips. The numbers of trips of the users have a heavy tail."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from od_core import Geography

SEED = 20010601
SPREAD = 1.2
"""Standard deviation of the logarithm of a user's expected number of trips. The mean is twice the median."""

MONTHS = 12
LEVELS = ("region", "district", "zone")

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Panel:
    """The trips of made-up users in the twelve months of a year.

    Attributes:
        name: name of the data set.
        geography: zones of origins and destinations.
        user, month, origin, destination: user, month (0 to 11) and zones of each trip; shape (trips,) each.
    """

    name: str
    geography: Geography
    user: Numbers
    month: Numbers
    origin: Numbers
    destination: Numbers


def shares(generator: np.random.Generator, users: int) -> NDArray[np.float64]:
    """Return the share of each user in all trips, cumulated; shape (users,)."""
    return _cumulated(generator.lognormal(sigma=SPREAD, size=users))


def drawn(generator: np.random.Generator, cumulated: NDArray[np.float64], count: int) -> Numbers:
    """Return numbers that are drawn with cumulated shares; shape (count,)."""
    return np.searchsorted(cumulated, generator.random(count), side="right")


def taxi_panel(folder: Path, users: int) -> Panel:
    """Return the trips of three years of New York taxis, by month of the year, of made-up users."""
    trips = pd.read_csv(folder / "trips.csv.gz", dtype=str)
    zones = pd.read_csv(folder / "zones.csv", dtype=str, keep_default_na=False)
    geography = Geography.from_frame(zones, levels=["borough", "service_area", "taxi_zone"])
    number = {code: at for at, code in enumerate(geography.zones)}
    origin, destination = (
        trips[column].map(number).to_numpy().astype(np.int64) for column in ("PULocationID", "DOLocationID")
    )
    month = trips["month"].str[5:].to_numpy(np.int64) - 1
    generator = np.random.default_rng(SEED)
    return Panel("taxis", geography, drawn(generator, shares(generator, users), len(trips)), month, origin, destination)


def mobility_panel(trips: int, users: int, zones: int, guests: float) -> Panel:
    """Return made-up trips between zones, whose sizes have a heavy tail, too.

    A user has a home and one usual place. Half of the trips are between these two, the others begin at one of them.

    Args:
        trips, users, zones: numbers of each.
        guests: share of the users whose trips are all in two consecutive months. The other users travel in all months
            alike.
    """
    generator = np.random.default_rng(SEED)
    numbers = np.arange(zones)
    districts = np.array([f"D{number * 40 // zones:02d}" for number in numbers])
    regions = np.array([f"R{number * 8 // zones}" for number in numbers])
    frame = pd.DataFrame(dict(zip(LEVELS, (regions, districts, [f"{number:06d}" for number in numbers]), strict=True)))
    sizes = _cumulated(generator.pareto(1.5, zones) + 1)
    home, usual = drawn(generator, sizes, users), drawn(generator, sizes, users)
    user = drawn(generator, shares(generator, users), trips)
    month = generator.integers(0, MONTHS, trips)
    first, is_guest = generator.integers(0, MONTHS, users), generator.random(users) < guests
    month = np.where(is_guest[user], (first[user] + generator.integers(0, 2, trips)) % MONTHS, month)
    begins_at_home = generator.random(trips) < 1 / 2
    origin = np.where(begins_at_home, home[user], usual[user])
    other = np.where(begins_at_home, usual[user], home[user])
    destination = np.where(generator.random(trips) < 1 / 2, other, drawn(generator, sizes, trips))
    return Panel("panel", Geography.from_frame(frame, LEVELS), user, month, origin, destination)


def write_loaded_records(path: Path, geography: Geography, records: int, users: int, places: int = 1000) -> None:
    """Write records as they are once they are loaded, in random order: origin, destination, user and in_period.

    Both ends of a user's trips are drawn from so many ``places``, so a user with few has many trips of the same pair.
    """
    generator = np.random.default_rng(SEED)
    cumulated = shares(generator, users)
    home = generator.integers(0, len(geography.zones), users)
    codes, ids = pa.array(geography.zones), pa.array([f"{number:016x}" for number in generator.permutation(users)])
    schema = pa.schema([("origin", pa.string()), ("destination", pa.string()), ("user", pa.string())])
    with pq.ParquetWriter(path, schema.append(pa.field("in_period", pa.bool_())), use_dictionary=False) as writer:
        for start in range(0, records, 1 << 20):
            user = drawn(generator, cumulated, min(1 << 20, records - start))
            near = generator.integers(0, places, (2, len(user)))
            ends = [codes.take(pa.array((home[user] + step) % len(codes))) for step in near]
            rows = pa.record_batch([*ends, ids.take(pa.array(user)), pa.array(np.ones(len(user), bool))], writer.schema)
            writer.write_batch(rows)


def _cumulated(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    cumulated: NDArray[np.float64] = np.cumsum(weights) / np.sum(weights)
    cumulated[-1] = 1
    return cumulated
