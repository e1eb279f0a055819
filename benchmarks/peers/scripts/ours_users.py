"""Release the flows of users with this project, by its default mechanism and with intervals.

A user has at most ``max_trips`` trips and, if ``pairs`` is asked for, at most one between the same two zones.
"""

import ours
import pandas as pd
from given import given, is_check

from od_core import Budget, Geography, PrivacyUnit, release_flows


def main():
    """Release the flows of all levels."""
    folder, output, settings = given()
    levels, choice = settings["levels"], settings["noise"]
    most_of_pair = 1 if choice == "pairs" else None
    # user code begins
    columns = [f"origin_{levels[-1]}", f"destination_{levels[-1]}", "user"]
    trips = pd.read_parquet(folder / "trips.parquet", columns=columns)
    geography = Geography.from_frame(pd.read_csv(folder / "zones.csv", dtype=str, keep_default_na=False), levels)
    release = release_flows(
        trips.set_axis(["origin", "destination", "user"], axis=1),
        geography,
        unit=PrivacyUnit("user", "unbounded", "user", settings["max_trips"], max_trips_pair=most_of_pair),
        budget=Budget(settings["epsilon"], 0 if "laplace" in choice else settings["delta"]),
        **ours.OPTIONS.get(choice, {}),
        fault_threshold=0,
    )
    for level in levels:
        release.flows_at(level, level, interval=True).to_parquet(output / f"{level}.parquet")
    # user code ends


def check():
    """Count people as docs/how-to/people.md does: at a large epsilon, counts are exact; then restart and replay."""
    zones = pd.DataFrame({"zone": ["A", "B"]})
    trips = pd.DataFrame(
        {"origin": ["A"] * 600, "destination": ["B"] * 600, "user": [f"U{n % 50}" for n in range(600)]}
    )
    for most_of_pair, counted in ((None, 500), (1, 50)):
        unit = PrivacyUnit("user", "unbounded", "user", 10, max_trips_pair=most_of_pair)
        geography = Geography.from_frame(zones, ["zone"])
        release = release_flows(trips, geography, unit=unit, budget=Budget(rho=10**6, delta="1e-6"), fault_threshold=0)
        if release.flows["trips"].tolist() != [counted]:
            raise SystemExit("the counts with almost no noise are wrong")
    ours.check()


if __name__ == "__main__":
    check() if is_check() else main()
