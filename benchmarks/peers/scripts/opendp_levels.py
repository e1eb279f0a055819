"""Publish each level with OpenDP: a count for each public pair of areas, under one composition with equal parts.

With rho, which exact accounting of (epsilon, delta) permits, the noise is discrete Gaussian; with epsilon alone, which
is the stronger promise, it is discrete Laplace.
"""

import opendp.prelude as dp
import polars as pl
from given import given, is_check


def main():
    """Publish the tables of all levels."""
    dp.enable_features("contrib")
    folder, output, settings = given()
    levels = settings["levels"]
    loss = {"epsilon": settings["epsilon"]} if settings["noise"] == "laplace" else {"rho": settings["rho"]}
    # user code begins
    data = pl.scan_parquet(folder / "trips.parquet")
    context = dp.Context.compositor(
        data=data,
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(**loss),
        split_evenly_over=len(levels),
    )
    for level in levels:
        areas = pl.read_csv(folder / f"areas_{level}.csv", schema_overrides={"area": pl.String})["area"]
        keys = pl.DataFrame({f"origin_{level}": areas}).join(pl.DataFrame({f"destination_{level}": areas}), how="cross")
        query = context.query().group_by(keys.columns).agg(dp.len(signed=True)).with_keys(keys)
        accuracy = query.summarize(alpha=0.1)["accuracy"][0]
        table = query.release().collect().rename(dict(zip(keys.columns, ("origin", "destination"), strict=True)))
        table = table.rename({"len": "trips"}).with_columns(pl.col("trips").cast(pl.Int64))
        table = table.with_columns(lower=pl.col("trips") - accuracy, upper=pl.col("trips") + accuracy)
        table.write_parquet(output / f"{level}.parquet")
    # user code ends


def check():
    """Run the example of ``summarize`` in OpenDP's documentation, whose accuracy is published."""
    dp.enable_features("contrib")
    data = pl.LazyFrame([pl.Series("convicted", [0, 1, 1, 0, 1] * 50, dtype=pl.Int32)])
    context = dp.Context.compositor(
        data=data,
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=1.0),
        split_evenly_over=1,
        margins=[dp.polars.Margin(by=(), max_length=1000)],
    )
    query = context.query().select(dp.len(signed=True), pl.col("convicted").dp.sum((0, 1)))
    if round(query.summarize(alpha=0.05)["accuracy"][0], 6) != 6.429605:
        raise SystemExit("the published accuracy is not found")


if __name__ == "__main__":
    check() if is_check() else main()
