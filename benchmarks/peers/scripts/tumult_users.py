"""Publish the trips of users at each level with Tumult Analytics, with its own caps and equal shares of the budget.

``MaxRowsPerID`` bounds the trips of a user in each table. With ``pairs``, the table of zones has the caps of Tumult's
tutorial on privacy IDs instead: at most ``max_trips`` pairs of zones of a user, each once, which need less Gaussian
noise. With rho, which exact accounting of (epsilon, delta) permits, the noise is discrete Gaussian; with epsilon alone,
which is the stronger promise, it is discrete Laplace (double-sided geometric).
"""

import tempfile

import pandas as pd
from given import given, is_check
from pyspark.sql import SparkSession
from pyspark.sql.functions import concat_ws
from tmlt.analytics import (
    AddRowsWithID,
    KeySet,
    MaxGroupsPerID,
    MaxRowsPerGroupPerID,
    MaxRowsPerID,
    PureDPBudget,
    QueryBuilder,
    RhoZCDPBudget,
    Session,
)
from tmlt.analytics.utils import cleanup


def main():
    """Publish the tables of all levels."""
    folder, output, settings = given()
    levels, most = settings["levels"], settings["max_trips"]
    laplace, pairs = settings["noise"] == "laplace", settings["noise"] == "pairs"
    budget = PureDPBudget(settings["epsilon"]) if laplace else RhoZCDPBudget(settings["rho"])
    # user code begins
    # Its documentation advises more memory than Spark's 1 GB for more than 10,000 keys.
    builder = SparkSession.builder.config("spark.driver.memory", "4g")
    spark = builder.config("spark.sql.warehouse.dir", str(output / "warehouse")).getOrCreate()
    trips = spark.read.parquet(str(folder / "trips.parquet"))
    ends = [f"origin_{levels[-1]}", f"destination_{levels[-1]}"]
    session = Session.from_dataframe(
        privacy_budget=budget,
        source_id="trips",
        dataframe=trips.withColumn("pair", concat_ws(" ", *ends)),
        protected_change=AddRowsWithID("user"),
    )
    for level in levels:
        areas = pd.read_csv(folder / f"areas_{level}.csv", dtype=str, keep_default_na=False)[["area"]]
        listed = areas.merge(areas, how="cross").set_axis([f"origin_{level}", f"destination_{level}"], axis=1)
        query = QueryBuilder("trips")
        if pairs and level == levels[-1]:
            listed = listed.assign(pair=listed[ends[0]] + " " + listed[ends[1]])
            query = query.enforce(MaxGroupsPerID("pair", most)).enforce(MaxRowsPerGroupPerID("pair", 1))
        else:
            query = query.enforce(MaxRowsPerID(most))
        query = query.groupby(KeySet.from_dataframe(spark.createDataFrame(listed))).count()
        table = session.evaluate(query, budget / len(levels)).toPandas()
        table = table[[f"origin_{level}", f"destination_{level}", "count"]]
        table.set_axis(["origin", "destination", "trips"], axis=1).to_parquet(output / f"{level}.parquet")
    # user code ends


def check():
    """Run the example of ``QueryBuilder.enforce`` in the reference of Tumult Analytics, whose counts are published.

    The caps of the tutorial "Working with privacy IDs", whose data are not in the package, are run on the same rows.
    """
    with tempfile.TemporaryDirectory() as warehouse:
        spark = SparkSession.builder.config("spark.sql.warehouse.dir", warehouse).getOrCreate()
        data = spark.createDataFrame(pd.DataFrame([["0", 1, 0], ["1", 0, 1], ["1", 2, 1]], columns=["id", "B", "X"]))
        budget = PureDPBudget(float("inf"))
        session = Session.from_dataframe(budget, "rows", data, protected_change=AddRowsWithID("id"))
        for most, published in ((2, 3), (1, 2)):
            query = QueryBuilder("rows").enforce(MaxRowsPerID(most)).count()
            if session.evaluate(query, budget).toPandas()["count"].tolist() != [published]:
                raise SystemExit("the published counts are not found")
        query = QueryBuilder("rows").enforce(MaxGroupsPerID("X", 5)).enforce(MaxRowsPerGroupPerID("X", 1))
        counts = session.evaluate(query.groupby(KeySet.from_dict({"X": [0, 1]})).count(), budget).toPandas()
        if counts["count"].tolist() != [1, 1]:
            raise SystemExit("the counts of people are wrong")
        cleanup()


if __name__ == "__main__":
    check() if is_check() else main()
