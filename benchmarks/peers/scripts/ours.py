"""Release the flows with this project, by its default mechanism and with intervals."""

import pandas as pd
from given import given, is_check

from od_core import Budget, Geography, PrivacyUnit, release_flows


def main():
    """Release the flows of all levels."""
    folder, output, settings = given()
    levels = settings["levels"]
    # user code begins
    trips = pd.read_parquet(folder / "trips.parquet", columns=[f"origin_{levels[-1]}", f"destination_{levels[-1]}"])
    geography = Geography.from_frame(pd.read_csv(folder / "zones.csv", dtype=str, keep_default_na=False), levels)
    release = release_flows(
        trips.set_axis(["origin", "destination"], axis=1),
        geography,
        unit=PrivacyUnit("trip", neighbours=settings["noise"] or "unbounded"),
        budget=Budget(settings["epsilon"], settings["delta"]),
        fault_threshold=0,
    )
    for level in levels:
        release.flows_at(level, level, interval=True).to_parquet(output / f"{level}.parquet")
    # user code ends


def check():
    """Run an example of the documentation: a table of two zones keeps its total under bounded neighbours."""
    zones = pd.DataFrame({"zone": ["A", "B"]})
    flows = pd.DataFrame({"origin": ["A", "B"], "destination": ["B", "B"], "trips": [40, 60]})
    unit = PrivacyUnit("trip", neighbours="bounded")
    release = release_flows(
        flows, Geography.from_frame(zones, ["zone"]), unit=unit, budget=Budget(1, "1e-6"), fault_threshold=0
    )
    if release.flows["trips"].sum() != 100:
        raise SystemExit("the total is not kept")


if __name__ == "__main__":
    check() if is_check() else main()
