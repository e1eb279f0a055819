"""Publish each level with Tumult Analytics: a count for each public pair of areas, with equal shares of the budget.

With rho, which exact accounting of (epsilon, delta) permits, the noise is discrete Gaussian; with epsilon alone, which
is the stronger promise, it is discrete Laplace (double-sided geometric).
"""

import tempfile

import pandas as pd
from given import given, is_check
from pyspark.sql import SparkSession
from tmlt.analytics import AddOneRow, KeySet, PureDPBudget, QueryBuilder, RhoZCDPBudget, Session
from tmlt.analytics.utils import cleanup


def main():
    """Publish the tables of all levels."""
    folder, output, settings = given()
    levels = settings["levels"]
    laplace = settings["noise"] == "laplace"
    budget = PureDPBudget(settings["epsilon"]) if laplace else RhoZCDPBudget(settings["rho"])
    # user code begins
    # Its documentation advises more memory than Spark's 1 GB for more than 10,000 keys.
    builder = SparkSession.builder.config("spark.driver.memory", "4g")
    spark = builder.config("spark.sql.warehouse.dir", str(output / "warehouse")).getOrCreate()
    session = Session.from_dataframe(
        privacy_budget=budget,
        source_id="trips",
        dataframe=spark.read.parquet(str(folder / "trips.parquet")),
        protected_change=AddOneRow(),
    )
    for level in levels:
        areas = pd.read_csv(folder / f"areas_{level}.csv", dtype=str, keep_default_na=False)["area"].tolist()
        keys = KeySet.from_dict({f"origin_{level}": areas, f"destination_{level}": areas})
        query = QueryBuilder("trips").groupby(keys).count()
        table = session.evaluate(query, budget / len(levels)).toPandas()
        table.set_axis(["origin", "destination", "trips"], axis=1).to_parquet(output / f"{level}.parquet")
    # user code ends


def check():
    """Run the example of ``Session._noise_info`` in the source of Tumult Analytics, whose noise parameter is published.

    The tutorials print noisy counts of data that are not in the package; their session with an infinite budget is run
    on the data of this example, whose counts must then be exact.
    """
    with tempfile.TemporaryDirectory() as warehouse:
        spark = SparkSession.builder.config("spark.sql.warehouse.dir", warehouse).getOrCreate()
        data = spark.createDataFrame(pd.DataFrame([["0", 1, 0], ["1", 0, 1], ["1", 2, 1]], columns=["A", "B", "X"]))

        def session(epsilon):
            return Session.from_dataframe(PureDPBudget(epsilon), "my_private_data", data, protected_change=AddOneRow())

        query = QueryBuilder("my_private_data").count()
        (noise,) = session(1)._noise_info(query, PureDPBudget(0.5))
        if (noise["noise_mechanism"].name, noise["noise_parameter"]) != ("GEOMETRIC", 2):
            raise SystemExit("the published noise parameter is not found")
        query = QueryBuilder("my_private_data").groupby(KeySet.from_dict({"X": [0, 1, 2]})).count()
        counts = session(float("inf")).evaluate(query, PureDPBudget(float("inf"))).toPandas()
        if dict(zip(counts["X"], counts["count"], strict=True)) != {0: 1, 1: 2, 2: 0}:
            raise SystemExit("the counts without noise are wrong")
        cleanup()


if __name__ == "__main__":
    check() if is_check() else main()
