"""Read the US domestic flights of June 2001, which are public, from a folder such as ``data/us_flights``."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from od_core import Geography
from od_core.evaluation.known_flows import KnownFlows

FLIGHTS = Path(__file__).resolve().parent.parent / "data" / "us_flights"
FLIGHTS_MONTH = "2001-06"


def us_flights(folder: Path) -> KnownFlows:
    """Return the US domestic flights of June 2001, which are public, from a folder such as ``data/us_flights``."""
    return KnownFlows.from_frame("us_flights", "public", *read_flights(folder))


def read_flights(folder: Path) -> tuple[pd.DataFrame, Geography]:
    """Return the flights of June 2001 and the geography of the airports, from a folder such as ``data/us_flights``."""
    zones = pd.read_csv(folder / "airports.csv", dtype=str, keep_default_na=False)
    geography = Geography.from_frame(zones, levels=["region", "division", "state", "airport"])
    return pd.read_parquet(folder / f"{FLIGHTS_MONTH}.parquet", columns=["origin", "destination"]), geography
