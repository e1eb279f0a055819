"""Publish each level with SmartNoise SQL, for all public pairs of areas, with equal shares of epsilon.

SmartNoise SQL takes no list of groups, but adds noise to exact counts that were made elsewhere (``pre_aggregated``),
and its documentation permits ``censor_dims`` to be off where the groups are public. So pandas counts the trips here,
pairs without trips included.
"""

import pandas as pd
import snsql
from given import given, is_check
from smartnoise_sql_levels import check
from snsql import Privacy


def main():
    """Publish the tables of all levels."""
    folder, output, settings = given()
    levels = settings["levels"]
    # user code begins
    data = pd.read_parquet(folder / "trips.parquet")
    table_metadata = {"row_privacy": True, "censor_dims": False} | {name: {"type": "string"} for name in data}
    privacy = Privacy(epsilon=settings["epsilon"] / len(levels))
    reader = snsql.from_df(data, privacy=privacy, metadata={"": {"OD": {"trips": table_metadata}}})
    for level in levels:
        pair = [f"origin_{level}", f"destination_{level}"]
        areas = pd.read_csv(folder / f"areas_{level}.csv", dtype=str, keep_default_na=False)["area"]
        pairs = pd.MultiIndex.from_product([areas, areas], names=pair)
        exact = data.groupby(pair).size().reindex(pairs, fill_value=0).reset_index(name="count_star")
        query = f"SELECT {', '.join(pair)}, COUNT(*) AS trips FROM OD.trips GROUP BY {', '.join(pair)}"  # noqa: S608
        accuracy = reader.get_simple_accuracy(query, 0.1)[-1]
        table = reader.execute_df(query, pre_aggregated=exact)
        table = table.set_axis(["origin", "destination", "trips"], axis=1)
        table = table.assign(lower=table["trips"] - accuracy, upper=table["trips"] + accuracy)
        table.to_parquet(output / f"{level}.parquet")
    # user code ends


if __name__ == "__main__":
    check() if is_check() else main()
