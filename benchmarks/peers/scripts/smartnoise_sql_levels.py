"""Publish each level with SmartNoise SQL: a count of trips by origin and destination, with equal shares of the budget.

A query counts the pairs of areas that have trips. By default (``censor_dims``), a pair is left out if its noisy count
is below a threshold from epsilon and delta, so that the list does not tell which pairs have trips. The shares of delta
add up by basic composition; the odometer of SmartNoise SQL adds 12.5 % to their sum, for an advanced composition that
would not save epsilon here.
"""

import pandas as pd
import snsql
from given import given, is_check
from snsql import Privacy


def main():
    """Publish the tables of all levels."""
    folder, output, settings = given()
    levels = settings["levels"]
    # user code begins
    data = pd.read_parquet(folder / "trips.parquet")
    metadata = {"": {"OD": {"trips": {"row_privacy": True} | {name: {"type": "string"} for name in data}}}}
    privacy = Privacy(epsilon=settings["epsilon"] / len(levels), delta=settings["delta"] / len(levels))
    reader = snsql.from_df(data, privacy=privacy, metadata=metadata)
    for level in levels:
        pair = f"origin_{level}, destination_{level}"
        query = f"SELECT {pair}, COUNT(*) AS trips FROM OD.trips GROUP BY {pair}"  # noqa: S608
        accuracy = reader.get_simple_accuracy(query, 0.1)[-1]
        table = reader.execute_df(query).set_axis(["origin", "destination", "trips"], axis=1)
        table = table.assign(lower=table["trips"] - accuracy, upper=table["trips"] + accuracy)
        table.to_parquet(output / f"{level}.parquet")
    # user code ends


def check():
    """Run the example of ``pre_aggregated`` in "Advanced Usage" of the documentation, and compare with its counts.

    The documentation does not tell epsilon, which is taken as 1: both counts are then within 20 of the published ones.
    This version calls the column of counts ``keycount``.
    """
    metadata = {"": {"PUMS": {"PUMS": {"row_privacy": True, "sex": {"type": "string"}}}}}
    privacy = Privacy(epsilon=1.0, delta=0.01)
    reader = snsql.from_df(pd.DataFrame({"sex": ["0"]}), privacy=privacy, metadata=metadata)
    query = "SELECT sex, COUNT(*) AS n FROM PUMS.PUMS GROUP BY sex ORDER BY sex"
    _, *rows = reader.execute(query, pre_aggregated=[["keycount", "sex"], [510, "1"], [490, "0"]])
    for (sex, count), (published_sex, published) in zip(rows, [("0", 488), ("1", 511)], strict=True):
        if sex != published_sex or abs(count - published) > 20:
            raise SystemExit(f"{count} people of sex {sex} were counted, where the documentation has {published}")


if __name__ == "__main__":
    check() if is_check() else main()
