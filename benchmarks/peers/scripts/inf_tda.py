"""Publish all levels with InfTDA, in the package of its authors: every end of a pair goes down a level in turn.

The package is for bounded neighbours alone: a trip is replaced, and the total is published as it is. ``bounded`` is
that. Otherwise, trips are completed to a public number of records with an area of no trips, at every level: a trip that
is added replaces one of these, so that the package's own guarantee is that of one trip added or removed.

The package turns (epsilon, delta) into less rho than exact accounting permits. It is given the epsilon for which it
finds the rho of all others.
"""

import itertools
import math

import pandas as pd
from given import given, is_check
from InfTDA import inf_tda

RECORDS = 10**9
NO_TRIP = "(no trip)"


def main():
    """Publish the tables of all levels."""
    folder, output, settings = given()
    levels, rho, delta = settings["levels"], settings["rho"], settings["delta"]
    epsilon = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    # user code begins
    columns = [f"{side}_{level}" for level in levels for side in ("destination", "origin")]
    zones = list(pd.read_csv(folder / "zones.csv", dtype=str, keep_default_na=False).itertuples(index=False))
    tuples = [tuple(itertools.chain(*zip(to, at, strict=True))) for at in zones for to in zones]
    trips = pd.read_parquet(folder / "trips.parquet").groupby(columns).size()
    data = trips.reindex(pd.MultiIndex.from_tuples(tuples, names=columns), fill_value=0)
    if settings["noise"] != "bounded":
        data[(NO_TRIP,) * len(columns)] = RECORDS - trips.sum()
    result = inf_tda(data, budget=(epsilon, delta), contribution=1)
    result = result.rename_axis(columns)[result.index.get_level_values(0) != NO_TRIP]
    for level in levels:
        table = result.groupby([f"origin_{level}", f"destination_{level}"]).sum().rename("trips").reset_index()
        table.columns = ["origin", "destination", "trips"]
        table.to_parquet(output / f"{level}.parquet")
    # user code ends


def check():
    """Run the example of the package's page, which keeps the total of 1000 and publishes four counts near the true."""
    sexes, ages = ["Male", "Female"], [">= 18", "< 18"]
    true = pd.Series([100, 200, 300, 400], index=pd.MultiIndex.from_product([sexes, ages]))
    result = inf_tda(true, budget=(1.0, 1e-6), contribution=1, privacy_type="bounded", distinct_tuples=True)
    published = pd.Series([102, 198, 307, 393], index=true.index)
    if result.sum() != 1000 or (result - published).abs().max() > 80:
        raise SystemExit("the published counts are not found")


if __name__ == "__main__":
    check() if is_check() else main()
