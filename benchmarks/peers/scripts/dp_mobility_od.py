"""Publish the flows of each level with dp_mobility_report, from points: a report of flows alone, with an equal share.

The user bounds the trips of a user by ``max_trips_per_user`` and chooses the tessellation; there is one a report, so
each level has a report of its own. A report lists the flows above 0 alone, with the half width of a 95 % interval,
which is made one of 90 % here (Laplace noise). It is of epsilon alone, of one user added or removed.
"""

import math

import geopandas as gpd
import pandas as pd
from dp_mobility_report import DpMobilityReport
from dp_mobility_report import constants as const
from given import given, is_check
from shapely.geometry import box


def main():
    """Publish the tables of all levels."""
    folder, output, settings = given()
    levels = settings["levels"]
    # user code begins
    trips = pd.read_parquet(folder / "trips.parquet")
    ends = [
        pd.DataFrame(
            {
                "uid": trips["user"],
                "tid": trips.index,
                "datetime": number,
                "lat": trips[f"{side}_lat"],
                "lng": trips[f"{side}_lng"],
            }
        )
        for number, side in enumerate(("origin", "destination"))
    ]
    points = pd.concat(ends, ignore_index=True)
    zones = gpd.read_file(folder / "zones.geojson")
    for level in levels:
        report = DpMobilityReport(
            points,
            zones.dissolve(by=level).rename_axis("tile_id").reset_index(),
            privacy_budget=settings["epsilon"] / len(levels),
            max_trips_per_user=settings["max_trips"],
            analysis_selection=[const.OD_FLOWS],
            disable_progress_bar=True,
        )
        flows = report.report[const.OD_FLOWS]
        margin = flows.margin_of_error_laplace * math.log(10) / math.log(20)
        table = flows.data.rename(columns={"flow": "trips"})
        table = table.assign(lower=table["trips"] - margin, upper=table["trips"] + margin)
        table.to_parquet(output / f"{level}.parquet")
    # user code ends


def check():
    """Find the flows of ``test_get_od_flows`` in the repository of dp_mobility_report, and the documented sensitivity.

    The test has 51 trips from tile 1 to 3 and 49 from 2 to 4, whose points are not in the package. By the page
    "Differential Privacy", flows of at most 10 trips of a user have sensitivity 10. With the budget and the bound of
    the quickstart, 10 and 5, flows must be near.
    """
    tiles = {"1": (0, 0), "2": (1, 0), "3": (0, 1), "4": (1, 1)}
    squares = [box(x, y, x + 1, y + 1) for x, y in tiles.values()]
    tessellation = gpd.GeoDataFrame({"tile_id": list(tiles)}, geometry=squares, crs="EPSG:4326")
    points = [
        (trip // 5, trip, number, tiles[tile][1] + 0.5, tiles[tile][0] + 0.5)
        for trip in range(100)
        for number, tile in enumerate("13" if trip < 51 else "24")
    ]
    data = pd.DataFrame(points, columns=["uid", "tid", "datetime", "lat", "lng"])
    published = {("1", "3"): 51, ("2", "4"): 49}
    for budget, most, allowed in ((None, 10, 0), (10, 5, 10), (1, 10, 200)):
        report = DpMobilityReport(
            data, tessellation, budget, max_trips_per_user=most, analysis_selection=[const.OD_FLOWS]
        )
        flows = report.report[const.OD_FLOWS]
        found = flows.data.set_index(["origin", "destination"])["flow"]
        far = [pair for pair, trips in published.items() if abs(found.get(pair, 0) - trips) > allowed]
        if flows.sensitivity != most or far:
            raise SystemExit("the published flows are not found")


if __name__ == "__main__":
    check() if is_check() else main()
